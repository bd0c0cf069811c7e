"""fms-hf-tuning: TRL's SFTTrainer with the plugins of fms-acceleration.

The plugins are named in the fact ``kernels``, e.g. ``accelerated-peft-bnb-foak-liger``:
``baseline-peft-bnb`` is plain TRL; ``accelerated-peft-bnb`` freezes without any cast; ``foak``
adds fused cross entropy, RMSNorm and rotary, and on a quantised base fused adapters that stay out
of FSDP; ``liger`` swaps the loss for a fused linear cross entropy.
"""

from __future__ import annotations

from dataclasses import replace

from tuneplan.frameworks.context import Context, Head
from tuneplan.frameworks.framework import Framework
from tuneplan.frameworks.hugging_face import number, whole
from tuneplan.frameworks.ledger import Default, by_rule, by_table, switched_on
from tuneplan.frameworks.settings import Defaults, Settings
from tuneplan.frameworks.stack import KbitPreparation, Stack
from tuneplan.frameworks.timeline import look_up
from tuneplan.frameworks.transformers import method_by_section
from tuneplan.frameworks.trl import trl_defaults, trl_stack
from tuneplan.language import message
from tuneplan.spec.parallelism import Strategy
from tuneplan.spec.recipe import Checkpointing, Kernels, Method

_BENCHMARKS = "fms-acceleration scripts/benchmarks/defaults.yaml and scenarios.yaml"
_PLUGINS = "fms-acceleration plugins accelerated-peft and fused-ops-and-kernels"
_BNB = "fms-acceleration framework_plugin_bnb.py: bnb_4bit_use_double_quant"
# Model types for which the plugin has a rule for the cross entropy alone
# (fms_acceleration_foak/models/gpt_bigcode.py).
_LOSS_ONLY = ("gpt_bigcode",)


def _method(context: Context) -> Default[Method]:
    return method_by_section(context, Method.FULL, "fms-hf-tuning tuning/sft_trainer.py")


def _strategy(context: Context, method: Method) -> Default[Strategy]:
    del context, method
    reason = message("strategy_fms", "its accelerate file shards with FSDP")
    return by_rule(Strategy.FSDP, reason, "fms-acceleration scripts/benchmarks/accelerate.yaml")


def fms_defaults(context: Context, head: Head) -> Defaults:
    """TRL's defaults with the flags its scripts set: checkpointing, flash attention, packing."""
    base = trl_defaults(context, head)
    script = message("fms_scripts", "its scripts set this")
    gptq = head.method is Method.GPTQ_LORA
    half = "float16" if gptq or not context.has_bf16 else "bfloat16"
    return replace(
        base,
        dtype=by_rule(half, script, _BENCHMARKS),
        precision=_precision(context, head, half),
        packing=switched_on(script, _BENCHMARKS),
        gradient_checkpointing=by_rule(Checkpointing.FULL, script, _BENCHMARKS),
        attn_implementation=by_rule(
            "flash_attention_2" if context.has_flash_attention_2 else "sdpa", script, _BENCHMARKS
        ),
        quantization_type=by_rule("nf4", script, _PLUGINS),
        double_quant=switched_on(message("fms_double_quant", "the plugin sets it"), _BNB),
        r=whole(look_up("fms-hf-tuning", "lora_r", "")),
        lora_alpha=number(look_up("fms-hf-tuning", "lora_alpha", "")),
        lora_dropout=number(look_up("fms-hf-tuning", "lora_dropout", "")),
    )


def _precision(context: Context, head: Head, half: str) -> Default[str]:
    """Autocast on quantised bases always, elsewhere only in the Liger scenarios of late 2024."""
    word = {"bfloat16": "bf16", "float16": "fp16"}[half]
    measured = context.measured.compute_dtype
    if measured in ("bfloat16", "float16"):
        word = {"bfloat16": "bf16", "float16": "fp16"}[measured]
    if head.method.quantized:
        reason = message("fms_amp_quantized", "its scenarios for quantised bases set autocast")
        return by_rule(word, reason, _BENCHMARKS)
    fact = look_up("fms-hf-tuning", "amp_unquantized", "", date=context.software.date)
    return by_table(fact, word if fact.value == "true" else "none")


def fms_stack(context: Context, settings: Settings) -> Stack:
    """TRL's behaviour, less the casts and plus the kernels of the plugins that are named."""
    stack = replace(trl_stack(context, settings), gptq_in_one_kernel=True)
    measured = context.measured
    accelerated = measured.kernels is not None and "accelerated-peft" in measured.kernels
    if accelerated:
        reason = message("kbit_fms", "the plugin freezes the base and casts nothing")
        source = "fms-acceleration framework_plugin_bnb.py _prepare_model_for_kbit_training"
        stack = replace(stack, kbit=by_rule(KbitPreparation.NONE, reason, source))
    if not measured.kernel("foak") or context.model_type in _LOSS_ONLY:
        return stack
    fused_adapter = settings.method.quantized
    return replace(
        stack,
        kernels=Kernels(fused_norm=True, fused_rope=True, fused_adapter=fused_adapter),
        kernels_source=f"{_PLUGINS}: fused RMSNorm, rotary; fused adapters on quantised bases",
        adapter_sharded=not fused_adapter,
        adapter_cast=False if fused_adapter else None,
    )


FMS = Framework(
    name="fms-hf-tuning",
    aliases=("fms-hf-tuning/hf sfttrainer + fms-acceleration", "fms", "fms-acceleration"),
    libraries=("torch", "transformers", "trl", "peft", "accelerate", "bitsandbytes"),
    method=_method,
    strategy=_strategy,
    defaults=fms_defaults,
    stack=fms_stack,
)
