"""Methods of PEFT that no job names: by a configuration of PEFT's own, as it is saved.

Every adapter of PEFT is saved with its ``adapter_config.json``. Its method is traced where traces
of it were compared with real steps, and is refused by name elsewhere.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping
from typing import Any, Final

from tuneplan.errors import InvalidRequest, Mistake, NotSupported
from tuneplan.language import message

# PEFT's names of the methods whose traces were compared with real steps
# (docs/internals/parts_against_cpu.md).
COMPARED: Final = (
    "ADALORA", "ADAPTION_PROMPT", "BEFT", "BOFT", "C3A", "DEFT", "DELORA", "FOURIERFT", "GLORA",
    "GRALORA", "HIRA", "HRA", "IA3", "LILY", "LN_TUNING", "LOHA", "LOKR", "LORA", "MISS", "OFT",
    "OSF", "PEANUT", "PREFIX_TUNING", "PROMPT_TUNING", "PSOFT", "PVERA", "P_TUNING", "RANDLORA",
    "ROAD", "SUPERTUNING", "TINYLORA", "TRAINABLE_TOKENS", "UNILORA", "VBLORA", "VERA", "WAVEFT",
)  # fmt: skip
# What a saved configuration says of the adapter's origin and use, and nothing of its training.
_OF_ITS_PAST: Final = ("auto_mapping", "base_model_name_or_path", "revision", "peft_version")


def peft_settings(found: Mapping[str, Any]) -> str:
    """The values of a configuration of PEFT as JSON, its keys sorted.

    Raises:
        InvalidRequest: It is not one, or its method is not traced.
    """
    kind = found.get("peft_type")
    kind = getattr(kind, "value", kind)  # PEFT's own word for it
    if kind not in COMPARED:
        raise InvalidRequest([_not_compared(kind)])
    settings = {name: value for name, value in found.items() if name not in _OF_ITS_PAST}
    settings |= {"peft_type": kind, "inference_mode": False}
    return json.dumps(settings, sort_keys=True, default=_plain)


def peft_config(settings: str) -> Any:
    """PEFT's own configuration of ``peft_settings``; for the process that traces."""
    import peft

    known = json.loads(settings)
    known.setdefault("task_type", "CAUSAL_LM")
    try:
        return peft.PeftConfig.from_peft_type(**known)
    except KeyError:  # an older PEFT
        raise NotSupported(
            message(
                "peft_method_unknown",
                "PEFT {version} has no method {name}",
                version=peft.__version__,
                name=known["peft_type"],
            ),
            path="peft_type",
        ) from None


def check_method(config: object) -> None:
    """Refuse a configuration whose method was never compared with a real step.

    Raises:
        InvalidRequest: With its name.
    """
    kind = getattr(config, "peft_type", None)
    name = str(getattr(kind, "value", kind))
    if name not in COMPARED:
        raise InvalidRequest([_not_compared(name)])


def _not_compared(kind: object) -> Mistake:
    if kind is None:
        return Mistake(
            message=message("peft_type_missing", "this is no configuration of PEFT: no peft_type"),
            path="peft_type",
            how_to_fix=message(
                "peft_saves_it", "PEFT saves one beside every adapter, as adapter_config.json"
            ),
        )
    return Mistake(
        message=message(
            "peft_method_not_traced",
            "PEFT's method {name} is not traced; traced are {known}",
            name=str(kind),
            known=", ".join(COMPARED),
        ),
        path="peft_type",
        value=kind,
        near=tuple(difflib.get_close_matches(str(kind).upper(), COMPARED, n=3)),
    )


def _plain(value: Any) -> Any:
    """Sets and enums of a configuration that was not saved."""
    if isinstance(value, (set, frozenset)):
        return sorted(value)
    return getattr(value, "value", str(value))
