"""A ``triton`` whose kernels do nothing, so that the real wrappers around them run.

Libraries of fused kernels allocate every buffer in Python and hand it to a kernel. With kernels
that launch nothing the wrappers run as they are, on tensors without bytes, and what they allocate
and keep is seen. Launches are counted by name, so that a patch that did not apply is seen too.
What a wrapper asks of the card (its type, its multiprocessors) or reads from it is answered by
rewriting those few expressions as the library is imported.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import re
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any, Final

from tuneplan.frozen import dataclass
from tuneplan.tracing.device import DEVICE

VERSION: Final = "3.3.0"
LAUNCHES: Counter[str] = Counter()
_MODULES: Final = (
    "triton", "triton.language", "triton.language.math", "triton.language.extra",
    "triton.language.extra.libdevice", "triton.language.extra.cuda",
    "triton.language.extra.cuda.libdevice", "triton.runtime", "triton.compiler",
)  # fmt: skip
# What a wrapper asks, and what it is told instead; for every library that is listed.
_REWRITTEN: Final = ("liger_kernel",)
_ANSWERS: Final[Mapping[str, str]] = {
    r'(\.device\.type|\bdevice_type) == "cuda"': rf'\1 in ("cuda", "{DEVICE}")',
    r'(\.device\.type|\bdevice_type) != "cuda"': rf'\1 not in ("cuda", "{DEVICE}")',
    r"torch\.cuda\.get_device_properties\([^)]*\)\.multi_processor_count": (
        f"__import__('sys').modules['{__name__}'].CARD.multiprocessors"
    ),
    r"torch\.cuda\.get_device_capability\([^)]*\)": (
        f"__import__('sys').modules['{__name__}'].CARD.capability"
    ),
    # Nothing follows the loss: its gradient is one.
    r"torch\.equal\(grad_output, (torch\.tensor\(1\.0, device=grad_output\.device\))\)": (
        r"(\1 is not None)"
    ),
    # Every label counts.
    r"\btarget_mask\.sum\(\)\.item\(\)": "target_mask.numel()",
}


@dataclass(slots=True)
class Card:
    """What wrappers ask of the card."""

    multiprocessors: int = 108
    capability: tuple[int, int] = (8, 0)


CARD: Final = Card()


class Kernel:
    """A kernel: called on a grid it does nothing and is counted."""

    def __init__(self, function: Any) -> None:
        self.fn, self.__name__ = function, getattr(function, "__name__", "kernel")

    def __getitem__(self, grid: Any) -> Kernel:
        return self

    def __call__(self, *args: Any, **kwargs: Any) -> None:
        """Launch nothing."""
        del args, kwargs
        LAUNCHES[self.__name__] += 1

    run = warmup = __call__


class Anything(ModuleType):
    """A module or a name in it that only kernels use."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        found = Anything(f"{self.__name__}.{name}")
        setattr(self, name, found)
        return found

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """As if it were made."""
        del args, kwargs
        return self

    def __getitem__(self, index: Any) -> Any:
        return self


def _decorator(*args: Any, **kwargs: Any) -> Any:
    """``@triton.jit``, with arguments or without."""
    if args and callable(args[0]) and not kwargs:
        return Kernel(args[0])
    return Kernel


def _tuned(*args: Any, **kwargs: Any) -> Any:
    """``@triton.autotune(...)``: the kernel itself, untried."""
    del args, kwargs
    return lambda kernel: kernel if isinstance(kernel, Kernel) else Kernel(kernel)


def install_triton(card: Card | None = None) -> None:
    """Put the stub where libraries import it; before they are imported, and once a process."""
    if card is not None:
        CARD.multiprocessors, CARD.capability = card.multiprocessors, card.capability
    if isinstance(sys.modules.get("triton"), Anything):
        return

    # PyTorch decides now, and without the stub, what it can do.
    importlib.import_module("torch._inductor.runtime.hints")
    for name in _MODULES:
        module = Anything(name)
        module.__path__ = []
        module.__spec__ = importlib.machinery.ModuleSpec(name, None, is_package=True)
        sys.modules[name] = module
        parent, _, leaf = name.rpartition(".")
        if parent:
            setattr(sys.modules[parent], leaf, module)
    triton: Any = sys.modules["triton"]
    triton.__version__ = VERSION
    triton.jit = _decorator
    triton.autotune = triton.heuristics = _tuned
    triton.cdiv = lambda number, by: -(-number // by)
    triton.next_power_of_2 = lambda number: 1 << (number - 1).bit_length()
    sys.meta_path.insert(0, _Rewriting())


class _Rewriting(importlib.abc.MetaPathFinder):
    """Finds the libraries whose questions are answered."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """The ordinary place, read by ``_Loader``."""
        if fullname.split(".")[0] not in _REWRITTEN:
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if spec is not None and isinstance(spec.loader, importlib.machinery.SourceFileLoader):
            spec.loader = _Loader(spec.loader.name, spec.loader.path)
        return spec


class _Loader(importlib.machinery.SourceFileLoader):
    """Reads a module with the answers in the place of the questions; never from compiled files."""

    def get_code(self, fullname: str) -> Any:
        """The rewritten module's code."""
        path = self.get_filename(fullname)
        text = self.get_data(path).decode("utf-8")
        for question, answer in _ANSWERS.items():
            text = re.sub(question, answer, text)
        return compile(text, path, "exec", dont_inherit=True)
