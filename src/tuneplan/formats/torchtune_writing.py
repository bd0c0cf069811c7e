"""A job as a complete YAML of torchtune, and the recipe that takes it.

torchtune has no defaults: every key that a recipe reads is written. Keys and recipes: torchtune
``recipes/*.py`` 0.6.1; what stands where the job is blank is what most of its own files say.
"""

from __future__ import annotations

from typing import Any, Final

from tuneplan.formats import trainer_writing
from tuneplan.formats.data_writing import UNKNOWN, Rows, files_of, loader_of
from tuneplan.formats.file_text import yaml_text
from tuneplan.formats.foreign import ExportedFile
from tuneplan.formats.launching import Program
from tuneplan.formats.telling import Teller, kept
from tuneplan.formats.torchtune_builders import TorchtuneModel, known_models, torchtune_model
from tuneplan.language import message
from tuneplan.spec.stated import StatedJob

NAME: Final = "torchtune"
FILE: Final = "train.yaml"
OLDEST: Final = "0.5"
_ADAPTS: Final = {"full": False, "lora": True, "dora": True, "qlora": True}
_STRATEGIES: Final = {None: False, "auto": False, "single": False, "fsdp2": True}
_ATTENTION_MODULES: Final = {
    "q_proj": "q_proj",
    "k_proj": "k_proj",
    "v_proj": "v_proj",
    "o_proj": "output_proj",
    "output_proj": "output_proj",
}
_MLP_MODULES: Final = ("gate_proj", "up_proj", "down_proj")
_DTYPES: Final = {
    ("none", "bfloat16"): "bf16",
    ("none", "float32"): "fp32",
    ("fp32", "float32"): "fp32",
}
_OPTIMIZERS: Final[dict[str, dict[str, Any]]] = {
    "adamw_torch": {"_component_": "torch.optim.AdamW", "fused": True},  # as its own files
    "adamw_torch_foreach": {"_component_": "torch.optim.AdamW"},
    "adamw_torch_fused": {"_component_": "torch.optim.AdamW", "fused": True},
    "adamw_bnb_8bit": {"_component_": "bitsandbytes.optim.AdamW8bit"},
    "adamw_8bit": {"_component_": "bitsandbytes.optim.AdamW8bit"},
    "adamw_torch_8bit": {"_component_": "torchao.optim.AdamW8bit"},
    "paged_adamw_32bit": {"_component_": "bitsandbytes.optim.PagedAdamW"},
    "paged_adamw_8bit": {"_component_": "bitsandbytes.optim.PagedAdamW8bit"},
    "lion_32bit": {"_component_": "bitsandbytes.optim.Lion"},
    "lion_8bit": {"_component_": "bitsandbytes.optim.Lion8bit"},
    "paged_lion_32bit": {"_component_": "bitsandbytes.optim.PagedLion"},
    "paged_lion_8bit": {"_component_": "bitsandbytes.optim.PagedLion8bit"},
    "sgd": {"_component_": "torch.optim.SGD"},
    "sgd_momentum": {"_component_": "torch.optim.SGD", "momentum": 0.9},
}


def dump(job: StatedJob, *, rows: Rows = UNKNOWN) -> tuple[ExportedFile, ...]:
    """``train.yaml`` for the recipe of the method and the number of devices.

    Raises:
        CannotExport: torchtune has no builder for the model or no key for some of the settings;
            all of them named.
    """
    teller = Teller(job, framework="torchtune")
    trainer_writing.refuse_old(teller, "torchtune", OLDEST)
    model = torchtune_model(job.model)
    if model is None:
        why = message("no_builder", "torchtune builds no {model}", model=job.model)
        teller.refuse("model", why, near=known_models())
    distributed = bool(teller.word("parallelism.strategy", _STRATEGIES, near=("single", "fsdp2")))
    adapts = bool(teller.word("method", _ADAPTS))
    sections = (
        (
            message("section_model", "Model"),
            {"output_dir": "output", "model": _model(teller, model, adapts=adapts)},
        ),
        (message("section_checkpoint", "Checkpoint and tokenizer"), _checkpoint(teller, model)),
        (message("section_data", "Data"), _data(teller, rows)),
        (
            message("section_training", "Training"),
            _training(teller, adapts=adapts, distributed=distributed),
        ),
        (message("section_environment", "Environment"), _environment(teller)),
    )
    teller.finish()
    purpose = message(
        "purpose_torchtune",
        "the job for tune run {recipe}; the weights lie in {folder} (tune download {model}); "
        "the job says no learning rate: a usual one is written",
        recipe=recipe_of(job),
        folder=_folder(job),
        model=job.model,
    )
    return (ExportedFile(name=FILE, text=yaml_text(*sections), purpose=purpose),)


def program(job: StatedJob) -> Program:
    """``tune run RECIPE --config train.yaml``; tune takes torchrun's options before the recipe."""
    return Program(
        module=None,
        arguments=(recipe_of(job), "--config", FILE),
        starter=("tune", "run"),
        alone=not _STRATEGIES.get(job.recipe.parallelism.strategy),
    )


def recipe_of(job: StatedJob) -> str:
    """The recipe by objective, method and number of devices."""
    place = "distributed" if _STRATEGIES.get(job.recipe.parallelism.strategy) else "single_device"
    adapts = _ADAPTS.get(job.recipe.method or "lora", True)
    if job.recipe.objective == "dpo":
        return f"{'lora' if adapts else 'full'}_dpo_{place}"
    return f"{'lora' if adapts else 'full'}_finetune_{place}"


def _folder(job: StatedJob) -> str:
    return "models/" + job.model.rstrip("/").rsplit("/", 1)[-1]


def _model(teller: Teller, model: TorchtuneModel | None, *, adapts: bool) -> dict[str, Any]:
    component = model.component(adapts=adapts) if model is not None else None
    if not adapts:
        return {"_component_": component}
    if teller.take("adapter.use_rslora"):
        teller.refuse("adapter.use_rslora")
    quantized = teller.peek("method") == "qlora"
    if quantized:
        _nf4(teller)
    dora = teller.take("adapter.use_dora") or teller.peek("method") == "dora"
    rank = teller.take("adapter.r") or 8
    alpha = teller.take("adapter.lora_alpha")
    return kept(
        {
            "_component_": component,
            **_targets(teller, has_output=model is None or model.adapts_output),
            "lora_rank": rank,
            "lora_alpha": 2 * rank if alpha is None else alpha,
            "lora_dropout": teller.take("adapter.lora_dropout") or 0.0,
            "use_dora": True if dora else None,
            "quantize_base": True if quantized else None,
        }
    )


def _nf4(teller: Teller) -> None:
    """Torchao's NF4Tensor: 4 bits, its scales quantised too."""
    for path, only in (("bits", 4), ("type", "nf4"), ("double_quant", True)):
        if teller.take(f"quantization.{path}") not in (None, only):
            teller.refuse(f"quantization.{path}", near=(str(only),))
            teller.leave(("quantization.type", "quantization.double_quant"))  # they follow
            return


def _targets(teller: Teller, *, has_output: bool) -> dict[str, Any]:
    targets = teller.take("adapter.target_modules") or ("q_proj", "v_proj", "output_proj", "mlp")
    if targets == "all-linear":
        targets = ("q_proj", "k_proj", "v_proj", "output_proj", "mlp")
    names = (targets,) if isinstance(targets, str) else targets
    attention = [_ATTENTION_MODULES[name] for name in names if name in _ATTENTION_MODULES]
    feed_forward = [name for name in names if name in _MLP_MODULES]
    known = (*_ATTENTION_MODULES, *_MLP_MODULES, "mlp", "output", "lm_head")
    output = bool({"output", "lm_head"} & set(names))
    partly = feed_forward and len(set(feed_forward)) < len(_MLP_MODULES) and "mlp" not in names
    if (output and not has_output) or partly or any(name not in known for name in names):
        why = message(
            "torchtune_targets",
            "torchtune adapts q_proj, k_proj, v_proj, output_proj by name, the feed-forward as a "
            "whole (mlp), and the output",
        )
        teller.refuse("adapter.target_modules", why, near=("all-linear",))
    return {
        "lora_attn_modules": list(dict.fromkeys(attention)),
        "apply_lora_to_mlp": bool(feed_forward) or "mlp" in names,
        **({"apply_lora_to_output": output} if has_output else {}),
    }


def _checkpoint(teller: Teller, model: TorchtuneModel | None) -> dict[str, Any]:
    folder = _folder(teller.job)
    length = teller.take("training.max_length")
    if model is None:
        return {}
    files = {name: f"{folder}/{file}" for name, file in model.tokenizer_files}
    return {
        "tokenizer": {"_component_": model.tokenizer, **files, "max_seq_len": length},
        "checkpointer": {
            "_component_": "torchtune.training.FullModelHFCheckpointer",
            "checkpoint_dir": folder,
            "checkpoint_files": list(model.files),
            "recipe_checkpoint": None,
            "output_dir": "${output_dir}",
            "model_type": model.model_type,
        },
        "resume_from_checkpoint": False,
    }


def _data(teller: Teller, rows: Rows) -> dict[str, Any]:
    packed = bool(teller.take("training.packing"))
    padding = teller.take("training.padding")
    if padding not in (None, "longest") and not (packed and padding == "none"):
        teller.refuse("training.padding", near=("longest",))
    files = files_of(teller.job)
    source: dict[str, Any] = {
        "source": loader_of(files[0]),
        "data_files": list(files),
        "split": "train",
    }
    if teller.word("objective", {"sft": True, "dpo": False}) is False:
        if packed:
            teller.refuse("training.packing")
        dataset = {"_component_": "torchtune.datasets.preference_dataset", **source}
    else:
        dataset = {**_rows(rows), **source, "packed": packed}
    return {"dataset": dataset, "seed": None, "shuffle": True}


def _rows(rows: Rows) -> dict[str, Any]:
    shape = rows.shape or "messages"
    if shape == "text":
        column = rows.column or "text"
        return {"_component_": "torchtune.datasets.text_completion_dataset", "column": column}
    if shape == "prompt_completion":
        prompt, answer = rows.pair or ("prompt", "completion")
        return {
            "_component_": "torchtune.datasets.instruct_dataset",
            "column_map": {"input": prompt, "output": answer},
        }
    if shape == "alpaca":
        return {"_component_": "torchtune.datasets.alpaca_dataset"}
    style = "sharegpt" if shape == "sharegpt" else "openai"
    column = rows.column or ("conversations" if shape == "sharegpt" else "messages")
    return {
        "_component_": "torchtune.datasets.chat_dataset",
        "conversation_column": column,
        "conversation_style": style,
    }


def _training(teller: Teller, *, adapts: bool, distributed: bool) -> dict[str, Any]:
    said = trainer_writing.batches(teller)
    _no_evaluation(teller)
    clip = teller.take("training.max_grad_norm")
    steps = said.get("gradient_accumulation_steps", 8 if adapts else 1)
    optim = teller.take("training.optim")
    in_backward = teller.take("training.optimizer_in_backward")
    if in_backward is None:
        in_backward = not (adapts or distributed or optim or clip) and steps == 1
    if in_backward and adapts:
        teller.refuse("training.optimizer_in_backward", near=("false",))
    name = optim or ("adamw_torch_fused" if adapts or distributed else "paged_adamw_8bit")
    if name not in _OPTIMIZERS:
        teller.refuse("training.optim", near=("adamw_torch_fused", "paged_adamw_8bit"))
    rate = 3e-4 if adapts else 2e-5
    warmup = {
        "_component_": "torchtune.training.lr_schedulers.get_cosine_schedule_with_warmup",
        "num_warmup_steps": 100,
    }
    training: dict[str, Any] = {
        "batch_size": said.get("per_device_train_batch_size", 2),
        **_duration(teller),
        "gradient_accumulation_steps": steps,
        "optimizer": {**_OPTIMIZERS.get(name, {}), "lr": rate},
        "lr_scheduler": warmup if adapts else None,
        "clip_grad_norm": clip or None,
        "loss": _loss(teller),
        "compile": bool(teller.take("training.torch_compile")),
    }
    if not adapts:
        del training["lr_scheduler"]
        training["optimizer_in_bwd"] = in_backward
    if adapts:
        training["save_adapter_weights_only"] = False
    return training


def _duration(teller: Teller) -> dict[str, Any]:
    steps = teller.take("training.max_steps")
    epochs = teller.whole("training.num_train_epochs")
    if steps is not None:
        return {"epochs": 1, "max_steps_per_epoch": steps}
    return {"epochs": epochs or 1, "max_steps_per_epoch": None}


def _no_evaluation(teller: Teller) -> None:
    """The recipes of 0.6 neither evaluate nor save between epochs."""
    strategy = teller.take("training.eval_strategy")
    steps = teller.take("training.eval_steps")
    if strategy not in (None, "no") or (strategy is None and steps):
        why = message("no_evaluation_recipe", "torchtune's recipes do not evaluate while training")
        wrong = "training.eval_strategy" if strategy is not None else "training.eval_steps"
        teller.refuse(wrong, why, near=("no",) if strategy is not None else ())
    if teller.take("training.save_strategy") not in (None, "epoch"):
        why = message("saves_by_epoch", "torchtune's recipes save at the end of every epoch")
        teller.refuse("training.save_strategy", why, near=("epoch",))


def _loss(teller: Teller) -> dict[str, Any]:
    """Chunks unless full logits are asked for; one linear loss from 0.7 on."""
    loss = teller.take("training.loss")
    liger = teller.take("training.use_liger_kernel")
    if liger:
        teller.refuse("training.use_liger_kernel")
    if teller.peek("objective") == "dpo":
        if loss not in (None, "auto", "full"):
            teller.refuse("training.loss", near=("full",))
        return {"_component_": "torchtune.rlhf.loss.DPOLoss", "beta": 0.1, "label_smoothing": 0}
    if loss == "full":
        return {"_component_": "torch.nn.CrossEntropyLoss"}
    if loss not in (None, "auto", "chunked"):
        teller.refuse("training.loss", near=("chunked", "full"))
    if trainer_writing.at_least(teller.job, "torchtune", "0.7"):
        return {"_component_": "torchtune.modules.loss.LinearCrossEntropyLoss"}
    return {"_component_": "torchtune.modules.loss.CEWithChunkedOutputLoss"}


def _environment(teller: Teller) -> dict[str, Any]:
    precision, dtype = teller.take("training.precision"), teller.take("training.dtype")
    key = (precision or "none", dtype or ("float32" if precision == "fp32" else "bfloat16"))
    word = _DTYPES.get(key)
    if word is None:
        why = message(
            "torchtune_pure",
            "torchtune opens no autocast: it trains in the dtype of the weights, bfloat16 or "
            "float32, which is precision none",
        )
        wrong = "training.precision" if key[0] not in ("none", "fp32") else "training.dtype"
        teller.refuse(wrong, why, near=("none",) if wrong.endswith("precision") else ("bfloat16",))
    trainer_writing.masters(teller, fp32_weights=key[1] == "float32")
    _attention(teller)
    kind = teller.take("training.gradient_checkpointing")
    if teller.take("training.use_reentrant"):
        teller.refuse("training.use_reentrant", near=("false",))
    if isinstance(kind, str) and kind != "offload":
        teller.refuse("training.gradient_checkpointing", near=("true", "false", "offload"))
    offload = teller.take("parallelism.offload") or "none"
    if offload == "optimizer":
        why = message("fsdp_offloads_all", "FSDP offloads parameters and optimizer together")
        teller.refuse("parallelism.offload", why, near=("params",))
    return kept(
        {
            "device": "cuda",
            "dtype": word,
            "enable_activation_checkpointing": bool(kind),
            "enable_activation_offloading": kind == "offload",
            "fsdp_cpu_offload": True if offload == "params" else None,
            "metric_logger": {
                "_component_": "torchtune.training.metric_logging.DiskLogger",
                "log_dir": "${output_dir}/logs",
            },
            "log_every_n_steps": 1,
            "log_peak_memory_stats": True,
        }
    )


def _attention(teller: Teller) -> None:
    """The kernel follows from packing: flex attention for packed rows, SDPA else."""
    kernel = teller.take("training.attn_implementation")
    packed = bool(teller.peek("training.packing"))
    if kernel not in (None, "sdpa", "flex_attention") or (kernel == "flex_attention") != packed:
        if kernel is None:
            return
        own = "flex_attention" if packed else "sdpa"
        why = message("own_attention", "torchtune chooses its kernel by itself: {own}", own=own)
        teller.refuse("training.attn_implementation", why, near=(own,))
