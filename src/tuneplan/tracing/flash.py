"""A stand-in for the package flash-attn: PyTorch's own flash kernel, which keeps the same tensors.

It stands in ``sys.modules`` before transformers looks for the package, so that each model's own
flash path runs. Both keep query, key, value, output and the fp32 log-sum-exp, and their backward
makes the same temporaries (flash-attn 2 ``flash_attn_interface.py FlashAttnFunc``,
``csrc/flash_attn/flash_api.cpp mha_bwd``; PyTorch carries a copy of that code).
"""

from __future__ import annotations

import importlib.machinery
import sys
from types import ModuleType
from typing import Any, Final

from tuneplan.errors import NotSupported
from tuneplan.language import message
from tuneplan.tracing.attention import flash

VERSION: Final = "2.8.3"
SOURCE: Final = "flash-attn 2.8.3 flash_attn_interface.py, as PyTorch's flash kernel"
_AVAILABLE: Final = (
    "is_flash_attn_2_available",
    "is_flash_attn_greater_or_equal",
    "is_flash_attn_greater_or_equal_2_10",
)


def install_flash_attention() -> None:
    """Put the stand-in where transformers looks for the package (before its models are loaded)."""
    package = _module("flash_attn")
    package.__version__ = VERSION  # type: ignore[attr-defined]
    package.flash_attn_func = flash_attn_func  # type: ignore[attr-defined]
    package.flash_attn_varlen_func = flash_attn_varlen_func  # type: ignore[attr-defined]
    package.flash_attn_with_kvcache = _cached  # type: ignore[attr-defined]
    padding = _module("flash_attn.bert_padding")
    for name in ("index_first_axis", "pad_input", "unpad_input"):
        setattr(padding, name, _unpadding)
    package.bert_padding = padding  # type: ignore[attr-defined]
    package.layers = _module("flash_attn.layers")  # type: ignore[attr-defined]
    rotary = _module("flash_attn.layers.rotary")
    rotary.apply_rotary_emb = _rotary  # type: ignore[attr-defined]

    _tell_that_it_is_there()
    _position_ids_rise()


def _tell_that_it_is_there() -> None:
    """Answer yes wherever transformers asks, in modules that are loaded already too."""
    import transformers.utils.import_utils  # noqa: F401 - among the modules below

    _answer_yes()  # before the next module is loaded, which asks at once

    import transformers.modeling_flash_attention_utils as utilities

    _answer_yes()
    for checks in getattr(utilities, "FLASH_ATTENTION_COMPATIBILITY_MATRIX", {}).values():
        if checks.get("flash_attn_version") == 2:
            checks["general_availability_check"] = _available


def _answer_yes() -> None:
    for path, module in list(sys.modules.items()):
        if path.partition(".")[0] == "transformers":
            for name in _AVAILABLE:
                if name in vars(module):
                    setattr(module, name, _available)


def _position_ids_rise() -> None:
    """Tell transformers that no row holds several documents: it would read that on the host."""
    import transformers.modeling_flash_attention_utils as utilities

    if hasattr(utilities, "_is_packed_sequence"):
        utilities._is_packed_sequence = lambda *_, **__: False  # noqa: SLF001
        return
    whole = utilities._flash_attention_forward  # noqa: SLF001

    def forward(*args: Any, **kwargs: Any) -> Any:
        kwargs.pop("position_ids", None)
        return whole(*args, **kwargs)

    utilities._flash_attention_forward = forward  # noqa: SLF001


def _module(name: str) -> ModuleType:
    module = ModuleType(name)
    module.__spec__ = importlib.machinery.ModuleSpec(name, None, is_package=True)
    module.__path__ = []
    sys.modules[name] = module
    return module


def _available(*_: Any, **__: Any) -> bool:
    return True


def flash_attn_func(
    q: Any,
    k: Any,
    v: Any,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,  # noqa: FBT001, FBT002 - the signature of the package's function
    window_size: tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: Any = None,
    deterministic: bool = False,  # noqa: FBT001, FBT002
    return_attn_probs: bool = False,  # noqa: FBT001, FBT002
) -> Any:
    """Attention of ``[batch, length, heads, width]``."""
    del window_size, softcap, alibi_slopes, deterministic, return_attn_probs
    query, key, value = (one.transpose(1, 2) for one in (q, k, v))
    return flash(query, key, value, dropout_p, softmax_scale, is_causal=causal).transpose(1, 2)


def flash_attn_varlen_func(
    q: Any,
    k: Any,
    v: Any,
    cu_seqlens_q: Any,
    cu_seqlens_k: Any,
    max_seqlen_q: Any,
    max_seqlen_k: Any,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,  # noqa: FBT001, FBT002
    **_: Any,
) -> Any:
    """Attention of ``[tokens, heads, width]``, as of one row: what is kept is the same."""
    del cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k
    whole = flash_attn_func(
        q.unsqueeze(0), k.unsqueeze(0), v.unsqueeze(0), dropout_p, softmax_scale, causal
    )
    return whole.squeeze(0)


def _unpadding(*_: Any, **__: Any) -> Any:
    raise NotSupported(
        message(
            "trace_flash_padding",
            "flash attention over padded rows takes the padding out, whose amount is not in a "
            "trace; pack the samples, or trace with attn_implementation sdpa",
        )
    )


def _rotary(*_: Any, **__: Any) -> Any:
    raise NotSupported(
        message("trace_flash_rotary", "flash-attn's own rotary kernel is not traced")
    )


def _cached(*_: Any, **__: Any) -> Any:
    raise NotSupported(
        message("trace_flash_cache", "flash attention over cached keys is not traced")
    )
