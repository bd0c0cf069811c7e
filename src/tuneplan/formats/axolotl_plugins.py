"""Axolotl: fused losses and kernels, by keys and by plugins.

Source: axolotl 0.18.0 ``integrations/*/args.py`` and ``integrations/*/plugin.py`` at 067b021c8.
"""

from __future__ import annotations

from typing import Final

from tuneplan.formats import typed_values as typed
from tuneplan.formats.carrying import Carrier
from tuneplan.language import message

_LIGER: Final = (
    *("liger_rope", "liger_rms_norm", "liger_layer_norm", "liger_swiglu", "liger_glu_activation"),
)
_FUSED_HEAD: Final = "liger_fused_linear_cross_entropy"
_LEAVE_MEMORY: Final = ("swanlab", "lm_eval", "grokfast")
_PREFERENCES: Final = ("dpo", "kto", "orpo", "simpo", "grpo", "rm")


def carry_losses(carrier: Carrier) -> None:
    """The loss, Liger's kernels, and what became of every plugin."""
    plugins = typed.names(carrier, "plugins") or ()
    folders = tuple(name.lower().split(".") for name in plugins)
    known = {part for parts in folders for part in parts}
    cut = "cut_cross_entropy" in known and carrier.value("cut_cross_entropy") is not False
    fused = bool(typed.flag(carrier, _FUSED_HEAD))
    chunked = bool(typed.flag(carrier, "chunked_cross_entropy"))
    preference = carrier.said("objective") in _PREFERENCES
    if preference and (cut or fused or chunked):
        text = message("loss_of_preferences", "preference losses take all logits of the labels")
        carrier.irrelevant(("cut_cross_entropy", _FUSED_HEAD, "chunked_cross_entropy"), text)
    elif cut or fused:
        path = "plugins" if cut else _FUSED_HEAD
        carrier.carry(path, ("training.loss", "fused"))
        carrier.irrelevant(("cut_cross_entropy",), message("said_by_plugin", "its plugin says it"))
    elif chunked:
        carrier.carry("chunked_cross_entropy", ("training.loss", "chunked"))
    _liger(carrier, fused_head=(cut or fused) and not preference)
    off = message("loss_not_fused", "the loss is not fused that way")
    carrier.irrelevant(("cut_cross_entropy", _FUSED_HEAD, "chunked_cross_entropy"), off)
    if plugins:
        _plugins(carrier, folders)


def _liger(carrier: Carrier, *, fused_head: bool) -> None:
    """A job has Liger's kernels all together, the fused loss among them."""
    on = [path for path in _LIGER if typed.flag(carrier, path)]
    if on and fused_head:
        for path in on:
            carrier.carry(path, ("training.use_liger_kernel", True))
        if carrier.value(_FUSED_HEAD) is True:
            carrier.carry(_FUSED_HEAD, ("training.use_liger_kernel", True))
    elif on:
        text = message(
            "liger_without_loss",
            "a job has Liger's kernels together with its fused loss, which is off here",
        )
        carrier.not_carried(on, text)
    carrier.irrelevant(_LIGER, message("liger_off", "this kernel is off"))


def _plugins(carrier: Carrier, folders: tuple[list[str], ...]) -> None:
    carried = {"cut_cross_entropy", "liger", "expert_parallel"}
    for parts in folders:
        if carried & set(parts) or set(_LEAVE_MEMORY) & set(parts):
            continue
        if "spectrum" in parts:
            text = message("part_without_formula", "{key} has no formula yet", key="spectrum")
            carrier.refuse("plugins", text)
            return
        text = message(
            "plugin_not_counted",
            "what the plugin {name} changes is not counted",
            name=".".join(parts),
        )
        carrier.notice("plugins", text)
    carrier.carry("plugins")
