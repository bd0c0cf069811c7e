"""What people and drivers call a chip: text to model, form and memory.

``NVIDIA H100 80GB HBM3``, ``h100-sxm5-80gb`` and ``H100`` name one model; the form (SXM, PCIe,
NVL) and the memory tell its variants apart. Models are compared whole, never as substrings:
``H200`` contains ``H20``.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from tuneplan.frozen import dataclass
from tuneplan.units import GB, GIB

_FORMS: Final = re.compile(r"sxm\d?|pci-?e|nvl(?!ink)(?:\d+)?|hbm\d\w*|gddr\d\w*")
_MEMORY: Final = re.compile(r"(?<![a-z0-9.])(\d+)\s*g(?:i?b)?(?![a-z0-9])")
_WORDS: Final = re.compile(r"[a-z0-9]+")
_NOISE_WORDS: Final = """
nvidia tesla geforce quadro amd instinct radeon intel google apple huawei aws r tm gpu gpus card
accelerator tensor core graphics generation gen edition hgx dgx oam ac with w
"""
_NOISE: Final = frozenset(_NOISE_WORDS.split())
_BYTES_TOLERANCE: Final = 0.07  # a marketed 24 GB is 22.5 GiB in the driver with ECC on
_WRITTEN_TOLERANCE: Final = 0.02  # 192 GB is 178.8 GiB, and such a card is sold as 180 GB


@dataclass(frozen=True, slots=True)
class ChipName:
    """A chip name taken apart.

    Attributes:
        model: Letters and digits of the model, without vendor, form or memory: ``rtx4090``.
        form: ``sxm``, ``pcie``, ``nvl`` or empty.
        memory: The number before GB or GiB, None where none is written.
    """

    model: str
    form: str
    memory: int | None


@lru_cache(maxsize=4096)
def parse_name(text: str) -> ChipName:
    """Model, form and memory of a name as written by people, clouds and drivers."""
    lowered = text.lower().replace("_", " ")
    form = ""
    for found in _FORMS.findall(lowered):
        if found.startswith(("sxm", "pci", "nvl")) and not found.startswith("nvl7"):
            form = {"sx": "sxm", "pc": "pcie", "nv": "nvl"}[found[:2]]
    rest = _FORMS.sub(" ", lowered)
    memory = _MEMORY.search(rest)
    rest = _MEMORY.sub(" ", rest)
    words = [word for word in _WORDS.findall(rest) if word not in _NOISE]
    return ChipName("".join(words), form, int(memory[1]) if memory else None)


@lru_cache(maxsize=4096)
def same_text(text: str) -> str:
    """A name as drivers print it, for exact comparison: case and separators do not count."""
    return "".join(_WORDS.findall(text.lower()))


@lru_cache(maxsize=1024)
def models_of(names: tuple[str, ...]) -> frozenset[str]:
    """Every model under which a chip with these names and aliases is found.

    A leading ``rtx``, ``gtx`` or ``rx`` may be left out: ``4090``.
    """
    models = {parse_name(name).model for name in names}
    models |= {re.sub(r"^(rtx|gtx|rx|tpu)(?=\w*\d{3}|v\d)", "", model) for model in models}
    return frozenset(model for model in models if model)


def memory_agrees(*, stated_bytes: float, memory_bytes: int, capacity_bytes: int) -> bool:
    """Whether a stated amount can be this chip's: marketed, in a driver's or in torch's count."""
    return any(
        abs(stated_bytes - known_bytes) <= _BYTES_TOLERANCE * known_bytes
        for known_bytes in (memory_bytes, capacity_bytes)
    )


def written_memory_agrees(*, written: int, memory_bytes: int) -> bool:
    """Whether the number in a name can mean this chip's marketed memory, as GB or as GiB."""
    return any(
        abs(written * unit - memory_bytes) <= _WRITTEN_TOLERANCE * memory_bytes
        for unit in (GB, GIB)
    )
