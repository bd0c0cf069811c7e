"""Qwen's own ``finetune.py`` for Qwen 1: a Trainer, PEFT, and DeepSpeed by its shell files.

The model code comes with the checkpoint (``modeling_qwen.py``): it turns itself into bf16 where the
chip has it, and runs flash attention where the package is installed (``use_flash_attn: auto``).
Source: QwenLM/Qwen ``finetune.py``, ``finetune/*.sh`` and ``ds_config_zero*.json``, af22d5e0 to
2df8e8ac.
"""

from __future__ import annotations

from dataclasses import replace

from tuneplan.frameworks.context import Context, Head
from tuneplan.frameworks.framework import HUGGING_FACE_LIBRARIES, Framework
from tuneplan.frameworks.hugging_face import hugging_face_defaults, hugging_face_stack
from tuneplan.frameworks.ledger import Default, by_rule, by_table, switched_on
from tuneplan.frameworks.settings import Defaults, Settings
from tuneplan.frameworks.stack import Stack
from tuneplan.frameworks.timeline import look_up
from tuneplan.frameworks.transformers import half_by_compute, method_by_section
from tuneplan.language import message
from tuneplan.spec.parallelism import Strategy
from tuneplan.spec.recipe import Checkpointing, Method, OptimizerImplementation

_SCRIPT = "QwenLM/Qwen finetune.py at 2df8e8ac"
_SHELLS = "QwenLM/Qwen finetune/*.sh at 2df8e8ac"
_JSON = "QwenLM/Qwen finetune/ds_config_zero2.json and ds_config_zero3.json at 2df8e8ac"
_MODEL_CODE = "modeling_qwen.py of the Qwen 1 checkpoints: use_flash_attn auto"
_TARGETS = ("c_attn", "c_proj", "w1", "w2")
_ZERO2_BUCKET_ELEMENTS = 200_000_000  # ds_config_zero2.json; zero3 leaves it "auto"


def _method(context: Context) -> Default[Method]:
    return method_by_section(context, Method.LORA, f"{_SHELLS}: finetune_lora_single_gpu.sh")


def _strategy(context: Context, method: Method) -> Default[Strategy]:
    del context
    reason = message("strategy_qwen", "its shell files launch DeepSpeed with this stage")
    return by_rule(Strategy.ZERO2 if method.uses_adapter else Strategy.ZERO3, reason, _SHELLS)


def qwen_defaults(context: Context, head: Head) -> Defaults:
    """The flags of the shell file that fits the method."""
    base = hugging_face_defaults(context, head)
    shell = message("qwen_shell", "its shell file says so")
    script = message("qwen_script", "the script's default")
    adapter = head.method.uses_adapter
    # AutoGPTQ's kernels take fp16 alone: the Q-LoRA files say --fp16.
    gptq = head.method is Method.GPTQ_LORA
    word = "bf16" if context.has_bf16 and not gptq else "fp16"
    half = "float16" if gptq or not context.has_bf16 else "bfloat16"
    saved = look_up("qwen", "modules_to_save", "", date=context.software.date)
    names = () if gptq or saved.value == "none" else _saved(context)
    return replace(
        base,
        dtype=by_rule(half, shell, _MODEL_CODE),
        precision=half_by_compute(context, by_rule(word, shell, _SHELLS)),
        max_length=by_rule(512, shell, f"{_SHELLS}: model_max_length"),
        padding=by_rule("max_length", script, f"{_SCRIPT} preprocess"),
        per_device_train_batch_size=by_rule(2 if adapter else 1, shell, _SHELLS),
        per_device_eval_batch_size=by_rule(1, shell, _SHELLS),
        gradient_accumulation_steps=by_rule(8 if adapter else 16, shell, _SHELLS),
        optim=by_rule("adamw_torch", script, _SCRIPT),
        gradient_checkpointing=by_rule(Checkpointing.FULL, shell, _SHELLS),
        use_reentrant=switched_on(shell, "transformers 4.32 to 4.37 gradient_checkpointing_enable"),
        attn_implementation=by_rule(
            "flash_attention_2" if context.has_flash_attention_2 else "sdpa",
            message("qwen_flash", "the model code takes flash attention where it is installed"),
            _MODEL_CODE,
        ),
        num_train_epochs=by_rule(5.0, shell, _SHELLS),
        save_steps=by_rule(1000, shell, _SHELLS),
        save_total_limit=by_rule(10, shell, _SHELLS),
        r=by_rule(64, script, _SCRIPT),
        lora_alpha=by_rule(16.0, script, _SCRIPT),
        lora_dropout=by_rule(0.05, script, _SCRIPT),
        target_modules=_targets(context, base),
        modules_to_save=by_table(saved, names),
    )


def _saved(context: Context) -> tuple[str, ...]:
    """Embedding and head by the model's own names (``wte`` and ``lm_head`` in Qwen 1)."""
    head = context.architecture.head
    outer = (*context.architecture.embeddings[:1], *((head,) if head is not None else ()))
    return tuple(weight.leaf for weight in outer)


def _targets(context: Context, base: Defaults) -> Default[str | tuple[str, ...]]:
    """The script's linears, on models that have them."""
    leaves = {
        weight.leaf for group in context.architecture.groups for weight in group.layer.weights()
    }
    if not leaves.issuperset(_TARGETS):
        return base.target_modules
    return by_rule(_TARGETS, message("qwen_script", "the script's default"), _SCRIPT)


def qwen_stack(context: Context, settings: Settings) -> Stack:
    """Trainer's behaviour; under DeepSpeed the JSON's AdamW, which is FusedAdam."""
    stack = hugging_face_stack(context, settings)
    if not settings.head.deepspeed:
        return stack
    fused = message("qwen_fused_adam", "the JSON names AdamW, which DeepSpeed runs as FusedAdam")
    zero2 = settings.strategy is Strategy.ZERO2
    return replace(
        stack,
        optimizer_step=by_rule(OptimizerImplementation.FUSED, fused, _JSON),
        reduce_bucket_elements=_ZERO2_BUCKET_ELEMENTS if zero2 else None,
        overlap_communication=True,
    )


QWEN = Framework(
    name="qwen",
    aliases=("qwen finetune.py", "qwenlm/qwen"),
    package="qwen",
    libraries=(*HUGGING_FACE_LIBRARIES, "deepspeed"),
    method=_method,
    strategy=_strategy,
    defaults=qwen_defaults,
    stack=qwen_stack,
)
