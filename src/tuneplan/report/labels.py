"""What people call the terms, phases, links and groups that the core knows by a code."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from tuneplan.language import say, sentence, translate


def memory_term_label(kind: str) -> str:
    """A term of memory in words; an unknown one as it is spelled."""
    return memory_term_labels().get(kind, kind)


def memory_term_labels() -> dict[str, str]:
    """What each term of memory is called."""
    return {
        "frozen_weights": say("model weights, frozen"),
        "quantized_weights": say("model weights, quantised"),
        "quantization_constants": say("scales of the quantised weights"),
        "trained_weights": say("model weights, trained"),
        "adapters": say("adapter weights"),
        "optimizer_states": say("optimizer states"),
        "master_weights": say("fp32 copy of the trained weights"),
        "gradients": say("gradients"),
        "gradient_buckets": say("gradient buckets (DDP)"),
        "gathered_units": say("embeddings and head, gathered"),
        "layer_unit": say("layers, gathered"),
        "communication_buffers": say("communication buffers"),
        "in_flight_activations": say("activations of other micro-batches in flight"),
        "sequence_buffer": say("gathered positions"),
        "context_buffer": say("keys and values of neighbours"),
        "stage_buffer": say("activations from and to other stages"),
        "cublas_workspace": say("workspace of the matrix library"),
        "reference_model": say("reference model"),
        "attention_mask": say("attention mask"),
        "token_ids": say("token ids and labels"),
        "kept_activations": say("activations kept for backward"),
        "autocast_weights": say("half-precision copies (autocast)"),
        "held_logits": say("logits still held"),
        "layer_working_set": say("working memory of a layer"),
        "loss_working_set": say("working memory of head and loss"),
        "embedding_gradient": say("gradient of the embedding"),
        "step_temporary": say("temporaries of the optimizer step"),
    }


def traced_term_label(kind: str) -> str:
    """A kind of block of a trace in words."""
    only_traced = {
        "temporary": say("temporaries"),
        "buffer": say("buffers"),
        "unsplit_blocks": say("cached blocks given whole"),
    }
    return only_traced.get(kind) or memory_term_label(kind)


def operation_label(kind: str) -> str:
    """A class of operations in words."""
    return {
        "matmul": say("matrix products"),
        "attention": say("attention"),
        "convolution": say("convolutions"),
        "optimizer": say("optimizer step"),
        "loss": say("loss"),
        "normalization": say("norms and softmax"),
        "embedding": say("embedding"),
        "view": say("views"),
        "copy": say("copies and casts"),
        "make": say("new tensors"),
        "reduction": say("sums and other reductions"),
        "elementwise": say("elementwise work"),
    }.get(kind, kind)


def time_term_label(kind: str) -> str:
    """A term of the step's time in words."""
    return time_term_labels().get(kind, kind)


def time_term_labels() -> dict[str, str]:
    """What each term of the step's time is called."""
    return {
        "matmul": say("matrix products"),
        "attention": say("attention"),
        "elementwise": say("elementwise work and norms"),
        "adapter": say("adapters"),
        "loss": say("loss"),
        "dequantize": say("expanding quantised weights"),
        "recurrence": say("recurrent layers"),
        "embedding": say("embedding"),
        "optimizer": say("optimizer step"),
        "launch": say("waiting for kernel launches"),
        "host": say("work on the CPU between batches"),
        "communication": say("waiting for other accelerators"),
        "tensor_exchange": say("tensor ranks' exchange"),
        "context_exchange": say("keys and values around the context ranks"),
        "expert_exchange": say("tokens to experts and back"),
        "stage_transfers": say("transfers between pipeline stages"),
        "pipeline_bubble": say("pipeline filling and draining"),
        "imbalance": say("waiting for the longest batch"),
        "offload": say("moving offloaded state"),
        "calibration": say("difference to measured runs"),
    }


def whole_name_of_term(kind: str) -> str | None:
    """``memory.terms.KIND`` or ``time.terms.KIND``, the path of a term in the answer."""
    if kind in memory_term_labels():
        return f"memory.terms.{kind}"
    return f"time.terms.{kind}" if kind in time_term_labels() else None


def phase_label(phase: str) -> str:
    """A phase of training in words."""
    return {
        "load": say("loading"),
        "forward": say("forward pass"),
        "loss": say("loss"),
        "backward": say("backward pass"),
        "optimizer": say("optimizer step"),
        "optimizer_step": say("optimizer step"),
        "step": say("optimizer step"),
        "evaluation": say("evaluation"),
    }.get(phase, phase)


def method_label(method: str) -> str:
    """A training method as papers write it."""
    return {
        "full": say("full fine-tuning"),
        "freeze": say("fine-tuning of the last layers"),
        "lora": "LoRA",
        "dora": "DoRA",
        "qlora": "QLoRA",
        "gptq-lora": "GPTQ-LoRA",
    }.get(method, method)


def cost_item_label(name: str) -> str:
    """An addend of the cost in words."""
    return {
        "used": say("for the accelerators used"),
        "unused_accelerators": say("for accelerators rented and not used"),
        "interruptions": say("for lost work and restarts"),
        "rounding": say("for least charges and rounding"),
        "unused_term": say("for the rest of the term"),
        "upfront": say("paid at once"),
    }.get(name, name)


def group_label(name: str) -> str:
    """The group that an assumption belongs to, by its name."""
    section = name.partition(".")[0]
    label = _GROUPS.get(section)
    return label() if label is not None else say("Training")


_GROUPS: Final[Mapping[str, Callable[[], str]]] = {
    "model": lambda: say("Model"),
    "data": lambda: say("Data"),
    "hardware": lambda: say("Hardware"),
    "parallelism": lambda: say("Hardware"),
    "limits": lambda: say("Limits"),
    "project": lambda: say("Project"),
    "software": lambda: say("Software"),
    "framework": lambda: say("Software"),
    "energy": lambda: say("Energy"),
    "behaviour": lambda: say("What the framework does"),
}


def layout_label(strategy: str) -> str:
    """A parallel layout as its library writes it."""
    return {
        "ddp": "DDP",
        "zero1": "ZeRO-1",
        "zero2": "ZeRO-2",
        "zero3": "ZeRO-3",
        "fsdp": "FSDP",
        "fsdp2": "FSDP2",
        "hsdp": "HSDP",
        "device_map": say("layers spread over the cards"),
        "single": say("one card"),
    }.get(strategy, strategy)


def cards_text(name: str, count: int, nodes: int = 1) -> str:
    """``8 x NVIDIA L4``; over machines ``2 machines x 4 NVIDIA L4``: a network lies between."""
    if nodes > 1 and count % nodes == 0:
        return say(
            "{nodes} machines x {count} {name}", nodes=nodes, count=count // nodes, name=name
        )
    return f"{count} x {name}"


def goal_label(goal: str) -> str:
    """A goal, or what a plan is the best at."""
    return {
        "cheapest": say("cheapest"),
        "fastest": say("fastest"),
        "balanced": say("balanced"),
        "smallest": say("smallest"),
    }.get(goal, goal)


def phase_of_project_label(phase: str) -> str:
    """A phase of a project in words."""
    return {
        "proof_of_concept": say("proof of concept"),
        "main": say("main runs"),
        "hand_over": say("hand-over"),
    }.get(phase, phase)


def driver_label(name: str) -> str:
    """An open figure of a project in words."""
    return {
        "run_hours": say("hours of one run"),
        "experiment_fraction": say("length of an experiment"),
        "sweep_fraction": say("length of a sweep's run"),
        "retry_factor": say("repetitions of a run"),
        "failure_fraction": say("runs that fail"),
        "evaluation_hours": say("hours of an evaluation"),
        "setup_hours": say("hours of set-up"),
        "idle_fraction": say("idle share of rented hours"),
    }.get(name, name)


def disk_label(name: str) -> str:
    """A kind of disk that checkpoints are written to."""
    return {
        "stated": say("the disk stated"),
        "nvme": "NVMe",
        "sata_ssd": "SATA SSD",
        "network_10g": say("file system over 10 Gbit/s"),
    }.get(name, name)


def writing_label(how: str) -> str:
    """How a checkpoint is written."""
    return {
        "gathered": say("gathered, by one process"),
        "sharded": say("sharded, each machine its share"),
        "asynchronous": say("asynchronous, beside the training"),
    }.get(how, how)


def basis_label(basis: str) -> str:
    """How well founded a figure or a fact is."""
    return {
        "assumed": say("assumed"),
        "analytic": say("analytic"),
        "traced": say("traced"),
        "calibrated": say("calibrated"),
        "measured": say("measured"),
        "stated": say("stated"),
        "sourced": say("sourced"),
        "quoted": say("quoted"),
        "rule": say("by rule"),
        "likely": say("likely"),
        "uncertain": say("uncertain"),
        "high": say("high"),
        "medium": say("medium"),
        "low": say("low"),
    }.get(basis, basis)


def counted(number: str, unit: str) -> str:
    """A number with its unit; units that are no words are the same in every language."""
    template = {
        "tokens": sentence("{number} tokens"),
        "tokens per sequence": sentence("{number} tokens per sequence"),
        "sequences": sentence("{number} sequences"),
        "samples": sentence("{number} samples"),
        "parameters": sentence("{number} parameters"),
        "runs": sentence("{number} runs"),
    }.get(unit)
    return f"{number} {unit}".rstrip() if template is None else say(template, number=number)


def run_term_label(kind: str) -> str:
    """A part of the hours of a run in words."""
    return {
        "training": say("training"),
        "evaluation": say("evaluation"),
        "checkpoints": say("checkpoints"),
        "start-up": say("start-up"),
    }.get(kind, kind)


def source_text(source: str) -> str:
    """Where a figure is from: a citation as it is written, words of ours in the language."""
    return {"assumed": say("assumed"), "stated": say("stated")}.get(source) or translate(source)


def per_label(per: str) -> str:
    """What a price is for: an hour, or a term of so many."""
    count = per.removesuffix(" hours")
    if count != per and count.isdigit():
        return say("{count} hours", count=count)
    return say("hour") if per == "hour" else per
