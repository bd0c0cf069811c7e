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


def loads_by_name() -> bool:
    """Whether weights come to the card in the order of their names.

    Source: transformers ``core_model_loading.py convert_and_load_state_dict_in_model`` (5.0, 5.17).
    """
    import transformers
    from packaging.version import Version

    return Version(transformers.__version__) >= Version("5.0")


def leave_masks_alone() -> None:
    """No questions about values of a mask: fake tensors have none.

    There is no search for several documents in a row (fake tensors pass for a compilation), and
    a mask that is given is used: that of a real batch has padding.
    """
    masking: Any
    try:
        masking = import_module("transformers.masking_utils")
        masking.find_packed_sequence_indices = lambda position_ids: None  # noqa: ARG005
        _use_given_masks(masking, "_ignore_causal_mask_sdpa", 0, "padding_mask")
    except ImportError:
        pass  # before 4.53
    try:
        converter = import_module("transformers.modeling_attn_mask_utils").AttentionMaskConverter
        _use_given_masks(converter, "_ignore_causal_mask_sdpa", 0, "attention_mask", static=True)
    except (ImportError, AttributeError):
        pass  # gone in 5


def _use_given_masks(
    owner: Any, name: str, position: int, word: str, *, static: bool = False
) -> None:
    whole = getattr(owner, name, None)
    if whole is None:
        return

    def ignored(*args: Any, **kwargs: Any) -> bool:
        given = args[position] if len(args) > position else kwargs.get(word)
        return False if given is not None else bool(whole(*args, **kwargs))

    setattr(owner, name, staticmethod(ignored) if static else ignored)
