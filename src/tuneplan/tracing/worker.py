"""The process in which a job is traced: a request on stdin, progress on stderr, a result on stdout.

Libraries are patched here, so each trace has a process of its own. It is started by ``child``;
whatever a library prints goes to stderr, where lines of ours begin with ``MARK``.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
import time
import warnings
from importlib import metadata
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, TextIO

from tuneplan.errors import NotSupported, TuneplanError
from tuneplan.tracing.peft_methods import peft_config
from tuneplan.tracing.wire import Traced, TraceRequest, read_request, traced_document

if TYPE_CHECKING:
    from tuneplan.tracing.recording import Recording

MARK: Final = "\x1etuneplan "
_LIBRARIES: Final = (
    *("torch", "transformers", "peft", "accelerate", "bitsandbytes", "liger_kernel", "litgpt"),
)


def main() -> None:
    """Trace what stdin asks for."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent is interrupted too, and ends us
    answers = _own_stdout()
    try:
        document = _answer(read_request(json.load(sys.stdin)))
    except TuneplanError as error:
        text = error.message
        document = {
            "refused": {"code": text.code, "template": text.template, "params": dict(text.params)},
            "kind": type(error).__name__,
        }
    except Exception as error:  # any library may raise anything: the parent makes a sentence of it
        document = {"failed": failure(error)}
    json.dump(document, answers, default=str)
    answers.flush()
    os._exit(0)  # nothing here is worth taking apart


def _own_stdout() -> TextIO:
    """Stdout for the result alone; what libraries print goes to stderr."""
    own = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return own


def _answer(request: TraceRequest) -> dict[str, Any]:
    warnings.simplefilter("ignore")  # of the libraries: the reader cannot act on them
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    os.environ["HF_HUB_OFFLINE"] = "1"  # nothing is downloaded, whatever a configuration says
    tell("import", 0.0)
    started = time.perf_counter()
    from tuneplan.tracing.session import prepare_process, record

    prepare_process()
    imported = time.perf_counter()
    lengths = [request.length] + ([request.shorter] if request.shorter else [])
    recordings: list[Recording] = []
    for number, length in enumerate(lengths):
        progress = Progress(number, len(lengths))
        try:
            recording, _ = record(
                request.architecture,
                request.recipe,
                sequences=request.sequences,
                length=length,
                compute_capability=request.compute_capability,
                evaluation_sequences=request.evaluation_sequences,
                parallelism=request.parallelism,
                images=request.images,
                peft_config=peft_config(request.peft) if request.peft else None,
                progress=progress,
            )
        except NotSupported:
            if not (number and request.images):
                raise
            break  # a shorter row has no room for the images: told as what is left out
        recordings.append(recording)
    traced = Traced(
        recordings=tuple(recordings),
        versions=_versions(),
        import_s=imported - started,
        trace_s=time.perf_counter() - imported,
        host_peak_bytes=_most_memory(),
    )
    tell("done", 1.0)
    return traced_document(traced)


class Progress:
    """Phases of a recording as shares of the whole work, as they were timed for an 8B model."""

    _BEGINS: Final = {
        "build": 0.05,
        "load": 0.15,
        "forward 0": 0.25,
        "backward 0": 0.42,
        "forward 1": 0.65,
        "backward 1": 0.80,
        "evaluation": 0.97,
    }

    def __init__(self, number: int, count: int) -> None:
        self._number, self._count = number, count

    def __call__(self, phase: str) -> None:
        """A phase begins."""
        share = self._BEGINS.get(phase, 0.5)
        tell(phase, (self._number + share) / self._count)


def tell(phase: str, share: float) -> None:
    """A line for the parent."""
    sys.stderr.write(f"{MARK}{json.dumps({'phase': phase, 'share': round(share, 3)})}\n")
    sys.stderr.flush()


def _most_memory() -> int:
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most * 1024


def _versions() -> dict[str, str]:
    found = {"python": ".".join(map(str, sys.version_info[:3]))}
    for name in _LIBRARIES:
        module = sys.modules.get(name)
        version = getattr(module, "__version__", None)
        if name == "litgpt" and module is not None:
            version = metadata.version(name)  # it has no number of its own
        if version is not None and getattr(module, "__file__", None):
            found[name] = str(version)
    return found


def failure(error: BaseException) -> dict[str, str]:
    """What failed, and where: the module of the model, and the operation below it.

    Modules are found on the stack of the exception, outermost first, so it holds for a forward
    and for what checkpointing runs again in a backward.
    """
    modules: list[Any] = []
    operation = ""
    trace: TracebackType | None = error.__traceback__
    while trace is not None:
        own = trace.tb_frame.f_locals
        candidate = own.get("self")
        if _is_module(candidate):
            modules.append(candidate)
        if trace.tb_frame.f_code.co_name == "__torch_dispatch__" and "func" in own:
            operation = str(own["func"])
        trace = trace.tb_next
    text = " ".join(str(error).split())
    return {
        "module": _path(modules),
        "class": type(modules[-1]).__name__ if modules else "",
        "operation": operation,
        "error": type(error).__name__,
        "text": text[:300],
    }


def _is_module(candidate: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(candidate, torch.nn.Module)


def _path(modules: list[Any]) -> str:
    """Name of the innermost module, as the outermost one calls it."""
    if not modules:
        return ""
    names = {id(module): name for name, module in modules[0].named_modules()}
    return next((names[id(one)] for one in reversed(modules) if names.get(id(one))), "")


if __name__ == "__main__":
    main()
