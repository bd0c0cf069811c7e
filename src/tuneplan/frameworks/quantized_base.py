"""The quantised base of a recipe: what is stored in few bits, and how it is expanded."""

from __future__ import annotations

from tuneplan.errors import NotSupported
from tuneplan.frameworks.context import Context
from tuneplan.frameworks.ledger import Default, Ledger, by_rule
from tuneplan.frameworks.settings import Settings
from tuneplan.frameworks.stack import Stack
from tuneplan.language import message
from tuneplan.spec.parallelism import Strategy
from tuneplan.spec.recipe import DType, Method, Quantization, QuantizationType


def quantization_of(
    context: Context, settings: Settings, stack: Stack, ledger: Ledger
) -> Quantization | None:
    """How the frozen base is stored; None where it is held as it is."""
    if not settings.method.quantized:
        return None
    gptq = settings.method is Method.GPTQ_LORA
    kind = QuantizationType.GPTQ if gptq else QuantizationType(settings.quantization_type)
    load = settings.dtype
    dequantized = DType.FLOAT16 if gptq else load
    if stack.dequantized_dtype is not None and not gptq:
        dequantized = ledger.assume("behaviour.dequantized_dtype", stack.dequantized_dtype)
    keeps = False
    if not gptq and stack.keeps_inputs is not None:
        keeps = ledger.assume("behaviour.quantized_linears_keep_inputs", stack.keeps_inputs)
    experts, expands = True, False
    if stack.quantizes_experts is not None and context.has_experts:
        experts, expands = _experts(context, settings, stack.quantizes_experts, ledger)
    storage = DType.UINT8
    if settings.head.fsdp or settings.strategy is Strategy.ZERO3:
        reason = message(
            "quant_storage",
            "integer storage cannot be sharded, so the scripts store in {d}",
            d=load,
        )
        storage = ledger.assume(
            "behaviour.quantized_storage_dtype",
            by_rule(load, reason, "bitsandbytes nn/modules.py quant_storage, 0.43.0"),
        )
    return Quantization(
        bits=settings.bits,
        type=kind,
        double_quant=settings.double_quant,
        block_size=128 if gptq else 64,
        dequantized_dtype=dequantized,
        keeps_inputs=keeps,
        quantizes_head=stack.quantizes_head,
        one_kernel=_one_kernel(stack, ledger) if gptq else True,
        quantizes_experts=experts,
        expands_experts=expands,
        quantizes_subclasses=stack.quantizes_experts is None or stack.quantizes_experts.value,
        storage_dtype=storage,
    )


def _experts(
    context: Context, settings: Settings, default: Default[bool], ledger: Ledger
) -> tuple[bool, bool]:
    """Whether routed experts are quantised, and whether that is by expanding whole stacks.

    Raises:
        NotSupported: Stacks that are quantised on request, under a layout that splits weights:
            axolotl 0.18 ``docs/expert_quantization.qmd`` says that not all of them are split.
    """
    if not context.stated.quantization.quantize_experts:
        return ledger.assume("behaviour.quantizes_experts", default), False
    if default.value:
        return True, False
    if settings.head.fsdp or settings.strategy is Strategy.ZERO3:
        raise NotSupported(
            message(
                "sharded_quantized_experts",
                "stacked experts that are quantised are not all split over the cards, and how much "
                "of them is has no formula yet",
            ),
            path="quantization.quantize_experts",
            value=True,
        )
    ledger.notice(
        message(
            "expanded_experts",
            "all experts of a layer are expanded at once where they are quantised as stacks; no "
            "complete measured run confirms the figure yet",
        ),
        "quantization.quantize_experts",
    )
    return True, True


def _one_kernel(stack: Stack, ledger: Ledger) -> bool:
    """Whether one kernel expands a GPTQ matrix while training."""
    reason = (
        message("gptq_triton", "the plugin loads AutoGPTQ's Triton kernels")
        if stack.gptq_in_one_kernel
        else message("gptq_pytorch", "training runs AutoGPTQ's PyTorch code, step by step")
    )
    source = "AutoGPTQ 0.4-0.7 nn_modules/qlinear/qlinear_cuda_old.py, qlinear_tritonv2.py"
    return ledger.assume("behaviour.gptq_kernel", by_rule(stack.gptq_in_one_kernel, reason, source))
