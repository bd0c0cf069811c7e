"""Keys that contradict each other: one function a question, each finding a mistake or none."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any, Final

from tuneplan.contract.job import JobFile
from tuneplan.contract.section import Section
from tuneplan.contract.values import Choice
from tuneplan.errors import Mistake
from tuneplan.language import Message, message

_PLAIN_BASE: Final = ("full", "freeze", "lora", "dora")
_NUMBERS: Final = ("num_samples", "mean_tokens", "total_tokens", "quantiles")


def contradictions(job: JobFile) -> list[Mistake]:
    """Every pair of keys that cannot both be meant."""
    return [mistake for question in _QUESTIONS for mistake in question(job)]


def is_about_absence(mistake: Mistake) -> bool:
    """Whether the mistake is that something is missing, not that two things disagree."""
    return mistake.message.code in ("samples_without_tokens", "tokens_without_samples")


def get(job: JobFile, path: str) -> Any:
    """The value at a key path, None where it or its section is blank."""
    value: Any = job
    for name in path.split("."):
        value = getattr(value, name, None)
    return value


def is_blank(section: Section | None) -> bool:
    """Whether a section says nothing: absent, or every key of it blank."""
    if section is None:
        return True
    return all(getattr(section, name) is None for name in type(section).model_fields)


def _mistake(path: str, text: Message, fix: Message, *, job: JobFile) -> Mistake:
    value = get(job, path)
    simple = value if isinstance(value, str | int | float | bool) else None
    return Mistake(message=text, path=path, value=simple, how_to_fix=fix)


def _methods(job: JobFile) -> tuple[str, ...]:
    """The methods that may be meant; empty where none is stated."""
    if isinstance(job.method, Choice):
        return job.method.values
    return (job.method,) if job.method else ()


def _quantized_base(job: JobFile) -> Iterator[Mistake]:
    methods = _methods(job)
    if is_blank(job.quantization) or not methods or set(methods) - set(_PLAIN_BASE):
        return
    stated = get(job, "quantization.bits")
    bits = stated if isinstance(stated, int) else None
    path = "quantization.bits" if bits else "quantization"
    yield _mistake(
        path,
        message(
            "method_without_quantization",
            "method {method} trains on a base that is not quantised, but the job asks for {what}",
            method=methods[0],
            what=f"{bits} bits" if bits else "quantization",
        ),
        message("qlora_or_no_bits", "write method: qlora, or leave the quantization out"),
        job=job,
    )


def _quantization_type(job: JobFile) -> Iterator[Mistake]:
    if job.quantization is None:
        return
    bits, kind = job.quantization.bits, job.quantization.type
    methods = _methods(job)
    if isinstance(kind, str) and isinstance(bits, int):
        allowed = {"nf4": (4,), "fp4": (4,), "int8": (8,), "awq": (4,)}.get(kind, (2, 3, 4, 8))
        if bits not in allowed:
            yield _mistake(
                "quantization.type",
                message("type_and_bits", "{type} has no {bits} bits", type=kind, bits=bits),
                message(
                    "bits_of_type",
                    "write bits: {bits}",
                    bits=" or ".join(str(one) for one in allowed),
                ),
                job=job,
            )
    if methods == ("gptq-lora",) and kind not in (None, "gptq"):
        yield _mistake(
            "quantization.type",
            message("gptq_type", "method gptq-lora needs a GPTQ base, not {type}", type=kind),
            message("gptq_or_qlora", "write type: gptq, or method: qlora"),
            job=job,
        )
    if methods == ("gptq-lora",) and isinstance(bits, int) and bits not in (4, 8):
        yield _mistake(
            "quantization.bits",
            message("gptq_bits", "a GPTQ base of {bits} bits has no formula yet", bits=bits),
            message("bits_of_type", "write bits: {bits}", bits="4 or 8"),
            job=job,
        )
    if methods == ("qlora",) and kind == "gptq":
        yield _mistake(
            "quantization.type",
            message("qlora_gptq", "adapters on a GPTQ base are another method"),
            message("write_gptq_lora", "write method: gptq-lora"),
            job=job,
        )
    if methods == ("qlora",) and kind is None and isinstance(bits, int) and bits not in (4, 8):
        yield _mistake(
            "quantization.bits",
            message("qlora_bits", "method qlora has 4 or 8 bits, not {bits}", bits=bits),
            message("bits_of_type", "write bits: {bits}", bits="4 or 8"),
            job=job,
        )


def _adapter_without_adapters(job: JobFile) -> Iterator[Mistake]:
    methods = _methods(job)
    if not is_blank(job.adapter) and methods and not set(methods) - {"full", "freeze"}:
        yield _mistake(
            "adapter",
            message(
                "adapter_unused",
                "method {method} trains no adapter, but there is an adapter section",
                method=methods[0],
            ),
            message("lora_or_no_adapter", "write method: lora, or leave the adapter section out"),
            job=job,
        )
    if job.adapter is not None and job.adapter.use_dora is False and methods == ("dora",):
        yield _mistake(
            "adapter.use_dora",
            message("dora_denied", "method dora and use_dora: false contradict each other"),
            message("keep_one", "keep one of them"),
            job=job,
        )


def _trained_layers(job: JobFile) -> Iterator[Mistake]:
    methods = _methods(job)
    if get(job, "training.trained_layers") and methods and "freeze" not in methods:
        yield _mistake(
            "training.trained_layers",
            message(
                "trained_layers_unused",
                "trained_layers belongs to method freeze, the method is {method}",
                method=methods[0],
            ),
            message("freeze_or_leave_out", "write method: freeze, or leave it out"),
            job=job,
        )


def _kinds_of_data(job: JobFile) -> Iterator[Mistake]:
    if job.data is None:
        return
    numbers = [name for name in _NUMBERS if getattr(job.data, name) is not None]
    kinds = [name for name in ("path", "profile") if getattr(job.data, name)] + numbers[:1]
    if len(kinds) > 1:
        yield _mistake(
            f"data.{kinds[1]}",
            message(
                "two_kinds_of_data",
                "data is said in two ways: {first} and {second}",
                first=kinds[0],
                second=kinds[1],
            ),
            message("one_kind_of_data", "keep one: path, profile, or the numbers"),
            job=job,
        )
        return
    if job.data.skip_bad_rows and not (job.data.path or job.data.profile):
        yield _mistake(
            "data.skip_bad_rows",
            message("no_rows_to_skip", "no rows are read, so that there are none to leave out"),
            message("name_data_files", "name the files (data.path), or leave it out"),
            job=job,
        )
    yield from _data_numbers(job)


def _data_numbers(job: JobFile) -> Iterator[Mistake]:
    data = job.data
    if data is None:
        return
    samples, mean, total = data.num_samples, data.mean_tokens, data.total_tokens
    if samples and mean and total and not math.isclose(samples * mean, total, rel_tol=0.02):
        yield _mistake(
            "data.total_tokens",
            message(
                "tokens_do_not_add_up",
                "{samples:,} samples of {mean:,g} tokens are {product:,.0f} tokens, not {total:,}",
                samples=samples,
                mean=mean,
                product=samples * mean,
                total=total,
            ),
            message("one_of_mean_and_total", "keep mean_tokens or total_tokens"),
            job=job,
        )
    if samples and not mean and not total and not data.quantiles:
        yield _mistake(
            "data.num_samples",
            message("samples_without_tokens", "the number of samples does not tell their length"),
            message("add_tokens", "add mean_tokens or total_tokens"),
            job=job,
        )
    if not samples and not total and (mean or data.quantiles):
        yield _mistake(
            "data.mean_tokens" if mean else "data.quantiles",
            message("tokens_without_samples", "lengths do not tell the number of samples"),
            message("add_samples", "add num_samples"),
            job=job,
        )
    if samples and total and total < samples:
        yield _mistake(
            "data.total_tokens",
            message("under_one_token", "that is less than one token a sample"),
            message("check_numbers", "check num_samples and total_tokens"),
            job=job,
        )
    mean = mean or (total / samples if total and samples else None)
    yield from _mean_among_quantiles(job, mean)


def _mean_among_quantiles(job: JobFile, mean: float | None) -> Iterator[Mistake]:
    ends = get(job, "data.quantiles") or {}
    least, most = ends.get(0.0, 0.0), ends.get(1.0, math.inf)
    if mean is not None and not least * 0.98 <= mean <= most * 1.02:
        yield _mistake(
            "data.quantiles",
            message(
                "mean_beyond_quantiles",
                "the mean is {mean:,g} tokens, but no sample is {word} than {end:,g}",
                mean=mean,
                word="shorter" if mean < least else "longer",
                end=least if mean < least else most,
            ),
            message(
                "check_lengths", "check the mean and the quantiles; one of them may be left out"
            ),
            job=job,
        )


def _padding(job: JobFile) -> Iterator[Mistake]:
    if get(job, "training.packing") is True and get(job, "training.padding") is not None:
        yield _mistake(
            "training.padding",
            message("packed_and_padded", "packed sequences are not padded"),
            message("packing_or_padding", "write packing: false, or leave padding out"),
            job=job,
        )


def _loss(job: JobFile) -> Iterator[Mistake]:
    if get(job, "training.use_liger_kernel") and get(job, "training.loss") in ("full", "chunked"):
        yield _mistake(
            "training.loss",
            message(
                "liger_loss",
                "use_liger_kernel fuses the loss with the output head, loss says {loss}",
                loss=get(job, "training.loss"),
            ),
            message("loss_auto", "write loss: auto, or use_liger_kernel: false"),
            job=job,
        )


def _degrees(job: JobFile) -> int | None:
    """Ranks that work on the same samples; None where a list leaves it open."""
    values = [get(job, f"parallelism.{name}") or 1 for name in ("tensor", "pipeline", "context")]
    return math.prod(values) if all(isinstance(value, int) for value in values) else None


def _devices(job: JobFile) -> int | None:
    nodes = get(job, "hardware.num_nodes") or 1
    per_node = get(job, "hardware.accelerators_per_node")
    return nodes * per_node if isinstance(nodes, int) and isinstance(per_node, int) else None


def _world(job: JobFile) -> Iterator[Mistake]:
    devices, degrees = _devices(job), _degrees(job)
    if devices and degrees and devices % degrees:
        yield _mistake(
            "parallelism",
            message(
                "degrees_do_not_divide",
                "tensor x pipeline x context = {degrees} does not divide {devices} accelerators",
                degrees=degrees,
                devices=devices,
            ),
            message("change_degrees", "choose degrees whose product divides the accelerators"),
            job=job,
        )
    max_nodes, nodes = get(job, "limits.max_nodes"), get(job, "hardware.num_nodes")
    if max_nodes and isinstance(nodes, int) and nodes > max_nodes:
        yield _mistake(
            "limits.max_nodes",
            message(
                "more_nodes_than_allowed",
                "hardware asks for {nodes} nodes, limits allow {limit}",
                nodes=nodes,
                limit=max_nodes,
            ),
            message("change_one", "change one of them"),
            job=job,
        )
    offload, strategy = get(job, "parallelism.offload"), get(job, "parallelism.strategy")
    if offload in ("optimizer", "params") and strategy in ("ddp", "single", "device_map"):
        yield _mistake(
            "parallelism.offload",
            message("ddp_offload", "{strategy} does not offload", strategy=strategy),
            message("offload_strategy", "write strategy: zero2, zero3 or fsdp2"),
            job=job,
        )


_ENGINE_KEYS: Final = (
    *("reduce_bucket_elements", "allgather_bucket_elements", "overlap_communication"),
    *("max_live_parameters", "persistence_threshold"),
)


def _engine_keys(job: JobFile) -> Iterator[Mistake]:
    """Keys of DeepSpeed's engine beside a strategy of another engine."""
    strategy = get(job, "parallelism.strategy")
    stated = [name for name in _ENGINE_KEYS if get(job, f"parallelism.{name}") is not None]
    if stated and isinstance(strategy, str) and not strategy.startswith(("zero", "auto")):
        yield _mistake(
            f"parallelism.{stated[0]}",
            message(
                "deepspeed_key_elsewhere",
                "{key} belongs to DeepSpeed, the strategy is {strategy}",
                key=stated[0],
                strategy=strategy,
            ),
            message("zero_or_leave_out", "write strategy: zero1, zero2 or zero3, or leave it out"),
            job=job,
        )


def _global_batch(job: JobFile) -> Iterator[Mistake]:
    total = get(job, "training.global_batch_size")
    micro = get(job, "training.per_device_train_batch_size")
    steps = get(job, "training.gradient_accumulation_steps")
    devices, degrees = _devices(job), _degrees(job)
    replicas = devices // degrees if devices and degrees and devices % degrees == 0 else None
    known = [number for number in (micro, steps, replicas) if isinstance(number, int)]
    product = math.prod(known)
    if not total or not known:
        return
    complete = len(known) == 3
    if (complete and product != total) or total % product:
        yield _mistake(
            "training.global_batch_size",
            message(
                "global_batch_does_not_match",
                "{total} is not {formula} = {product}"
                if complete
                else "{total} is no multiple of {formula} = {product}",
                total=total,
                formula=" x ".join(str(number) for number in known),
                product=product,
            ),
            message(
                "accumulation_auto",
                "write gradient_accumulation_steps: auto, and a multiple of what runs at once",
            ),
            job=job,
        )


def _user_files(job: JobFile) -> Iterator[Mistake]:
    for key, meant in (("accelerators", "hardware.accelerator"), ("models", "model")):
        for name in get(job, key) or ():
            if not name.lower().endswith((".yaml", ".yml", ".csv", ".toml", ".json")):
                yield Mistake(
                    message=message(
                        "not_a_fact_file",
                        "{key} lists your own fact files (.yaml, .csv), {name!r} is none",
                        key=key,
                        name=name,
                    ),
                    path=key,
                    value=name,
                    near=(meant,),
                )


_QUESTIONS: Final[tuple[Callable[[JobFile], Iterator[Mistake]], ...]] = (
    _quantized_base,
    _quantization_type,
    _adapter_without_adapters,
    _trained_layers,
    _kinds_of_data,
    _padding,
    _loss,
    _world,
    _engine_keys,
    _global_batch,
    _user_files,
)
