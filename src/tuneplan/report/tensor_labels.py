"""What people call the tensors of a walk: a name such as ``gradient of q_proj input as float32``.

The walk of the layer's code (``estimation/shadow.py``) names a tensor by its module and by what was
done to it. A module keeps its name in every language; the words around it are said one by one, and
what has no words here stays as it is named.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Final

from tuneplan.language import current_language, say, sentence

# What stands before a tensor or behind it, outermost first; ``{what}`` is the rest.
_AROUND: Final = tuple(
    (re.compile(pattern), template)
    for pattern, template in (
        (r"gradient of (?P<what>.+)", sentence("gradient of {what}")),
        (r"gradient before (?P<what>.+)", sentence("gradient before {what}")),
        (r"(?P<what>.+), one chunk", sentence("{what}, one chunk")),
        (r"(?P<what>.+), other chunks", sentence("{what}, other chunks")),
        (r"(?P<what>.+), sum of chunks", sentence("{what}, sum of chunks")),
        (r"(?P<what>.+), left", sentence("{what}, left")),
        (r"(?P<what>.+), right", sentence("{what}, right")),
        (r"(?P<what>.+), joined", sentence("{what}, joined")),
        (r"(?P<what>.+), heads joined", sentence("{what}, heads joined")),
        (r"(?P<what>.+), repeated", sentence("{what}, repeated")),
        (r"(?P<what>.+), in order", sentence("{what}, in order")),
        (r"(?P<what>.+), weighted", sentence("{what}, weighted")),
        (r"(?P<what>.+), scaled", sentence("{what}, scaled")),
        (r"(?P<what>.+), shifted", sentence("{what}, shifted")),
        (r"(?P<what>.+), padded", sentence("{what}, padded")),
        (r"(?P<what>.+), cast", sentence("{what}, cast")),
        (r"(?P<what>.+), copied", sentence("{what}, copied")),
        (r"(?P<what>.+), dropped out", sentence("{what}, dropped out")),
        (r"(?P<what>.+), tangent", sentence("{what}, tangent")),
        (r"(?P<what>.+), derived", sentence("{what}, derived")),
        (r"(?P<what>.+), half of input", sentence("{what}, half of input")),
        (r"(?P<what>.+) as (?P<dtype>b?float\d+|int\d+|fp\d+)", sentence("{what} as {dtype}")),
        (r"(?P<what>.+) dropout mask", sentence("{what} dropout mask")),
        (r"(?P<what>.+) adapter input", sentence("{what} adapter input")),
        (r"(?P<what>.+) adapter output", sentence("{what} adapter output")),
        (r"(?P<what>.+) output with adapter", sentence("{what} output with adapter")),
        (r"(?P<what>.+) weight with adapter", sentence("{what} weight with adapter")),
        (r"(?P<what>.+) with adapter", sentence("{what} with adapter")),
        (r"(?P<what>.+) normalised", sentence("{what} normalised")),
        (r"(?P<what>[\w.]+) weight", sentence("{what} weight")),
        (r"(?P<what>[\w.]+) input", sentence("{what} input")),
        (r"(?P<what>[\w.]+) output", sentence("{what} output")),
        (r"chunk of (?P<what>.+)", sentence("chunk of {what}")),
    )
)
# Tensors that no module names.
_NAMED: Final = (
    sentence("arriving gradient"), sentence("gradients on their way"), sentence("gradients"),
    sentence("attention log-sum-exp"), sentence("attention mask as numbers"),
    sentence("attention output"), sentence("attention probabilities"),
    sentence("attention scores"), sentence("block output"), sentence("capped logits"),
    sentence("cross entropy"), sentence("experts"), sentence("experts' gate and up output"),
    sentence("experts' gated activation"), sentence("experts' output"),
    sentence("experts and shared expert"), sentence("gated activation"),
    sentence("hidden states"), sentence("hidden states after attention"),
    sentence("hidden states after feed-forward"), sentence("keys"),
    sentence("keys of every head"), sentence("last hidden state"), sentence("layer input"),
    sentence("log-softmax of logits"), sentence("log-softmax"), sentence("logits"),
    sentence("logits of the outputs"), sentence("loss"), sentence("output"),
    sentence("probabilities"), sentence("queries"), sentence("router input"),
    sentence("router probabilities"), sentence("routing weights"), sentence("scores"),
    sentence("softmax backward: gradient times output"), sentence("tokens gathered by expert"),
    sentence("values"), sentence("values of every head"), sentence("queries of every head"),
)  # fmt: skip


def tensor_label(name: str) -> str:
    """A tensor in words, in the current language."""
    return name if current_language() == "en" else _label(name, current_language())


@cache
def _label(name: str, language: str) -> str:
    if name in _NAMED:
        return say(name)
    for pattern, template in _AROUND:
        found = pattern.fullmatch(name)
        if found is not None:
            parts = {**found.groupdict(), "what": _label(found["what"], language)}
            return say(template, **parts).replace("） ", "）")
    return name
