"""A measured run as a job: the same settings under the names of the job file, blanks left blank.

What the columns state is taken as it stands; what they leave open stays None, so the defaults of
that program at that version or day fill it. Free text is never interpreted. The words of some
columns travel along as ``facts`` for settings that no job key has (``kernels``, ``kbit_prep``...).
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from tuneplan.runs.clusters import machine_of
from tuneplan.runs.dimensions import model_of
from tuneplan.runs.layouts import offloads_activations, parallelism_of
from tuneplan.runs.rows import MeasuredRun
from tuneplan.runs.skips import Skip, skip
from tuneplan.runs.software import canonical_framework, software_of
from tuneplan.runs.targets import target_modules
from tuneplan.spec.stated import (
    StatedAdapter,
    StatedData,
    StatedHardware,
    StatedJob,
    StatedParallelism,
    StatedQuantization,
    StatedRecipe,
    StatedTraining,
)

FACTS: Final = [
    "kernels",
    "fused_ce",
    "kbit_prep",
    "amp_dtype",
    "attention",
    "parallelism",
    "length_kind",
    "compute_dtype",
    "param_dtype",
    "activation_checkpointing",
    "double_quant",
    "compile",
    "offload",
    "packing",
    "optimizer",
]
_NARROW: Final = ("fp8", "mxfp8", "nvfp4", "mxfp4")  # refused by name alike: no formula yet
# Programs whose published runs compute in fp8 as often as in bf16: a blank is not bf16.
_NARROW_OR_HALF: Final = ("nemo",)
_CARDS_OF_A_NODE: Final = 8  # what a row with more cards and no number of nodes is taken to have
_DTYPES: Final = MappingProxyType(
    {
        **dict.fromkeys(("bf16", "bfloat16"), "bfloat16"),
        **dict.fromkeys(("fp16", "float16", "half"), "float16"),
        **dict.fromkeys(("fp32", "float32"), "float32"),
    }
)
_OBJECTIVES: Final = MappingProxyType({"pretrain": "pretrain"})
_METHODS: Final = MappingProxyType(
    {
        "full": "full",
        "pretrain": "full",
        "freeze": "freeze",
        "lora": "lora",
        "dora": "dora",
        "qlora": "qlora",
        "gptq-lora": "gptq-lora",
    }
)
_OPTIMIZERS: Final = (
    (r"paged.*(8.?bit)", "paged_adamw_8bit"),
    (r"paged", "paged_adamw_32bit"),
    (r"torchao adamw8bit|adamw_torch_8bit", "adamw_torch_8bit"),
    (r"torchao adamw4bit|adamw_torch_4bit", "adamw_torch_4bit"),
    (r"adamw.*8.?bit|8.?bit adamw|adamw_bnb_8bit", "adamw_bnb_8bit"),
    (r"lora.?fa", "lora_fa"),
    (r"muon", "muon"),
    (r"adafactor", "adafactor"),
    (r"adamw.*\(fused\)|fused_adamw|adamw_torch_fused", "adamw_torch_fused"),
    (r"adam", "adamw_torch"),
)


def to_job(run: MeasuredRun) -> StatedJob | Skip:
    """The job that a measured run was, or the reason why it cannot be said."""
    problem = _unreadable(run) or _unstated(run)
    if problem is not None:
        return problem
    quantization = _quantization(run)
    if isinstance(quantization, Skip):
        return quantization
    training = _training(run)
    if isinstance(training, Skip):
        return training
    parallelism = parallelism_of(run)
    if isinstance(parallelism, Skip):
        return parallelism
    hardware = _hardware(run)
    if isinstance(hardware, Skip):
        return hardware
    return StatedJob(
        model=model_of(run),
        recipe=_recipe(run, training, quantization, parallelism),
        data=_data(run),
        hardware=hardware,
    )


def _unreadable(run: MeasuredRun) -> Skip | None:
    if not run.faults:
        return None
    fault = run.faults[0]
    return skip(
        "unreadable_cell",
        "{column} in line {line} does not read: {detail}",
        column=fault.column,
        line=run.line,
        detail=fault.message,
    )


def _unstated(run: MeasuredRun) -> Skip | None:
    for column, value in (
        ("model", run.model),
        ("method", run.method),
        ("seq_len", run.max_length),
    ):
        if not value:
            return skip("not_stated", "{column} is not stated", column=column)
    if run.method not in _METHODS:
        return skip("method_unknown", "the method {method!r} has no formula", method=run.method)
    if run.words["length_kind"].startswith("padding-free"):
        return skip(
            "padding_free",
            "the batch holds whole samples one behind the other (padding-free), whose lengths are "
            "not in columns",
        )
    program = canonical_framework(run.framework)
    if program in _NARROW_OR_HALF and not run.words["compute_dtype"]:
        return skip("not_stated", "{column} is not stated", column="compute_dtype")
    if run.num_accelerators is None and not run.words["parallelism"].startswith("single"):
        return skip("not_stated", "{column} is not stated", column="num_gpus")
    return None


def _quantization(run: MeasuredRun) -> StatedQuantization | Skip:
    text = run.words["quantization"].casefold()
    if run.method not in ("qlora", "gptq-lora"):
        if text:
            return skip(
                "quantization_contradicts",
                "{method} with quantisation {text!r}: one of the two is wrong",
                method=run.method,
                text=text,
            )
        return StatedQuantization()
    for word in ("hqq", "awq", "aqlm", "eetq"):
        if word in text:
            return skip("quantization_unknown", "{kind} weights have no formula", kind=word.upper())
    stated = {"yes": True, "no": False}.get(run.words["double_quant"].casefold())
    if "gptq" in text or run.method == "gptq-lora":
        return StatedQuantization(bits=8 if "8" in text else 4, type="gptq")
    return StatedQuantization(
        bits=8 if re.search(r"int8|8.?bit", text) else 4,
        type=next((kind for kind in ("nf4", "fp4") if kind in text), None),
        double_quant=True if text.endswith("-dq") else False if text == "bnb.nf4" else stated,
    )


def _method(run: MeasuredRun, quantization: StatedQuantization) -> str:
    return "gptq-lora" if quantization.type == "gptq" else _METHODS[run.method]


def _training(run: MeasuredRun) -> StatedTraining | Skip:
    micro_batch = run.micro_batch or _derived_micro_batch(run)
    if micro_batch is None:
        return skip("not_stated", "{column} is not stated", column="micro_batch_per_gpu")
    optimizer = _optimizer(run.words["optimizer"])
    if optimizer == "lora_fa":
        return skip("optimizer_unknown", "the optimizer LoRA-FA freezes A and has no formula")
    packing, padding = _packing(run)
    return StatedTraining(
        dtype=_DTYPES.get(re.split(r"[ +(]", run.words["param_dtype"])[0]),
        precision=_precision(run),
        master_weights=True if "fp32 master" in run.words["param_dtype"] else None,
        num_train_epochs=run.num_epochs,
        max_length=run.max_length,
        packing=packing,
        padding=padding,
        per_device_train_batch_size=micro_batch,
        gradient_accumulation_steps=_accumulation(run),
        global_batch_size=run.global_batch if run.gradient_accumulation is None else None,
        optim=optimizer,
        gradient_checkpointing=_checkpointing(run),
        attn_implementation=_attention(run.words["attention"]),
        loss=_loss(run.words["fused_ce"]),
        torch_compile={"yes": True, "no": False}.get(run.words["compile"].casefold()),
    )


def _derived_micro_batch(run: MeasuredRun) -> int | None:
    if run.global_batch is None or run.gradient_accumulation is None:
        return None
    micro_batch, left = divmod(run.global_batch, run.gradient_accumulation * run.accelerators)
    return micro_batch if left == 0 and micro_batch else None


def _accumulation(run: MeasuredRun) -> int | str | None:
    if run.gradient_accumulation is not None:
        return run.gradient_accumulation
    return "auto" if run.global_batch is not None else None


def _optimizer(text: str) -> str | None:
    words = text.casefold()
    plain = words if re.search(r"\((fused\)|fused into)", words) else re.sub(r"\(.*\)", "", words)
    if not plain.strip():
        return None
    for pattern, name in _OPTIMIZERS:
        if re.search(pattern, plain):
            return name
    return text


def _packing(run: MeasuredRun) -> tuple[bool | None, str | None]:
    """Packing, and how unpacked samples are padded."""
    kind = run.words["length_kind"].casefold()
    text = run.words["packing"].casefold()
    if kind.startswith("packed") or text.startswith("yes"):
        return True, None
    if kind.startswith("fixed") or text == "fixed length":
        return False, "max_length"
    if kind.startswith("longest"):
        return False, "longest"
    return (False, None) if text == "no" else (None, None)


def _precision(run: MeasuredRun) -> str | None:
    """Autocast where a column says so; the compute dtype alone does not tell."""
    amp = run.words["amp_dtype"].casefold()
    if amp in ("none", "bf16", "fp16"):
        return amp
    compute = run.words["compute_dtype"].casefold()
    if compute.startswith(_NARROW):
        return "fp8"
    return compute if compute in ("fp32", "tf32") else None


def _checkpointing(run: MeasuredRun) -> bool | str | None:
    if offloads_activations(run):
        return "offload"
    words: dict[str, bool | str] = {"full": True, "none": False, "selective": "selective"}
    return words.get(run.words["activation_checkpointing"].casefold())


def _attention(text: str) -> str | None:
    return {
        "flash": "flash_attention_2",
        "flash_attention_2": "flash_attention_2",
        "flash_attention_3": "flash_attention_3",
        "sdpa": "sdpa",
        "eager": "eager",
        "flex": "flex_attention",
    }.get(text.casefold())


def _loss(text: str) -> str | None:
    lowered = text.casefold()
    if lowered == "no":
        return "full"
    if "chunked" in lowered:
        return "chunked"
    return "fused" if "liger" in lowered or lowered == "yes" else None


def _recipe(
    run: MeasuredRun,
    training: StatedTraining,
    quantization: StatedQuantization,
    parallelism: StatedParallelism,
) -> StatedRecipe:
    software = software_of(run)
    method = _method(run, quantization)
    return StatedRecipe(
        framework=software.framework,
        framework_version=software.version,
        software=software.libraries,
        date=software.date,
        objective=_OBJECTIVES.get(run.method, "sft"),
        method=method,
        adapter=_adapter(run, software.framework) if "lora" in method else StatedAdapter(),
        quantization=quantization,
        training=training,
        parallelism=parallelism,
        facts=_facts(run),
    )


def _adapter(run: MeasuredRun, framework: str | None) -> StatedAdapter:
    saved = run.words["modules_to_save"]
    return StatedAdapter(
        r=run.lora_rank,
        target_modules=target_modules(
            run.words["lora_targets"], framework=framework, model=run.model
        ),
        modules_to_save=tuple(re.split(r"[,\s]+", saved)) if saved else None,
    )


def _facts(run: MeasuredRun) -> Mapping[str, str]:
    facts = {name: run.words[name] for name in FACTS if run.words.get(name)}
    if "fused into backward" in run.words["optimizer"].casefold():
        facts["optimizer_in_backward"] = "yes"
    if run.num_nodes is None and run.accelerators > _CARDS_OF_A_NODE:
        facts["cards_of_a_node"] = f"{_CARDS_OF_A_NODE} assumed"
    machine = machine_of(run)
    blocking = machine.blocking_from_nodes if machine else None
    if blocking is not None and (run.num_nodes or 1) >= blocking:
        facts["launches"] = "blocking"
    return MappingProxyType(facts)


def _data(run: MeasuredRun) -> StatedData:
    fixed = run.words["length_kind"].casefold().startswith(("fixed", "packed"))
    mean = run.tokens_per_sample or (float(run.max_length) if fixed and run.max_length else None)
    return StatedData(num_samples=run.num_samples, mean_tokens=mean)


def _hardware(run: MeasuredRun) -> StatedHardware | Skip:
    name = run.accelerator
    if re.search(r"\||/| or ", name):
        return skip("accelerator_unclear", "the accelerator is one of several: {name}", name=name)
    if name and run.accelerator_memory_gb and not re.search(r"\d\s*GB", name, re.IGNORECASE):
        name = f"{name} {run.accelerator_memory_gb:g}GB"
    cards = run.accelerators
    machine = machine_of(run)
    of_a_node = machine.accelerators_per_node if machine else _CARDS_OF_A_NODE
    nodes = run.num_nodes or math.ceil(cards / of_a_node)
    if cards % nodes:
        return skip(
            "nodes_contradict",
            "{cards} cards do not divide into {nodes} nodes",
            cards=cards,
            nodes=nodes,
        )
    stated: dict[str, Any] = {"accelerator": (name,)} if name else {}
    if machine is not None and nodes > 1:
        stated["inter_node"] = machine.inter_node
    if machine is not None and machine.interconnect is not None:
        stated["interconnect"] = machine.interconnect
    return StatedHardware(num_nodes=nodes, accelerators_per_node=(cards // nodes,), **stated)
