"""What moved between transformers 4.45 and 5: found where this version has it."""

from __future__ import annotations

from importlib import import_module
from typing import Any


def without_initialization() -> Any:
    """The context in which weights are left as they come."""
    for place in ("transformers.initialization", "transformers.modeling_utils"):
        try:
            return import_module(place).no_init_weights()
        except (ImportError, AttributeError):
            continue
    raise ImportError("no_init_weights")


def dtype_word() -> str:
    """What ``from_config`` calls the type of the weights (``torch_dtype`` before 4.56)."""
    import transformers
    from packaging.version import Version

    return "dtype" if Version(transformers.__version__) >= Version("4.56") else "torch_dtype"


def leave_masks_alone() -> None:
    """No search for several documents in a row: it would take fake tensors for a compilation."""
    try:
        masking: Any = import_module("transformers.masking_utils")
    except ImportError:
        return  # before 4.53 nothing looks for them
    masking.find_packed_sequence_indices = lambda position_ids: None  # noqa: ARG005
