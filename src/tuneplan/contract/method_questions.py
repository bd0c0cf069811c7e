"""Do method, adapter and quantization of a job agree?"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from tuneplan.contract.job import JobFile
from tuneplan.contract.questions import get, is_blank, methods_of, mistake_at
from tuneplan.errors import Mistake
from tuneplan.language import message, phrase

_PLAIN_BASE: Final = ("full", "freeze", "lora", "dora")


def quantized_base(job: JobFile) -> Iterator[Mistake]:
    """A method on a plain base, and a quantization beside it."""
    methods = methods_of(job)
    if is_blank(job.quantization) or not methods or set(methods) - set(_PLAIN_BASE):
        return
    stated = get(job, "quantization.bits")
    bits = stated if isinstance(stated, int) else None
    path = "quantization.bits" if bits else "quantization"
    yield mistake_at(
        path,
        message(
            "method_without_quantization",
            "method {method} trains on a base that is not quantised, but the job asks for {what}",
            method=methods[0],
            what=message("bits", "{bits} bits", bits=bits) if bits else phrase("quantization"),
        ),
        message("qlora_or_no_bits", "write method: qlora, or leave the quantization out"),
        job=job,
    )


def quantization_type(job: JobFile) -> Iterator[Mistake]:
    """Bits that a type does not have, and types that a method does not take."""
    if job.quantization is None:
        return
    bits, kind = job.quantization.bits, job.quantization.type
    methods = methods_of(job)
    if isinstance(kind, str) and isinstance(bits, int):
        allowed = {"nf4": (4,), "fp4": (4,), "int8": (8,), "awq": (4,)}.get(kind, (2, 3, 4, 8))
        if bits not in allowed:
            yield mistake_at(
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
        yield mistake_at(
            "quantization.type",
            message("gptq_type", "method gptq-lora needs a GPTQ base, not {type}", type=kind),
            message("gptq_or_qlora", "write type: gptq, or method: qlora"),
            job=job,
        )
    if methods == ("gptq-lora",) and isinstance(bits, int) and bits not in (4, 8):
        yield mistake_at(
            "quantization.bits",
            message("gptq_bits", "a GPTQ base of {bits} bits has no formula yet", bits=bits),
            message("bits_of_type", "write bits: {bits}", bits=phrase("4 or 8")),
            job=job,
        )
    if methods == ("qlora",) and kind == "gptq":
        yield mistake_at(
            "quantization.type",
            message("qlora_gptq", "adapters on a GPTQ base are another method"),
            message("write_gptq_lora", "write method: gptq-lora"),
            job=job,
        )
    if methods == ("qlora",) and kind is None and isinstance(bits, int) and bits not in (4, 8):
        yield mistake_at(
            "quantization.bits",
            message("qlora_bits", "method qlora has 4 or 8 bits, not {bits}", bits=bits),
            message("bits_of_type", "write bits: {bits}", bits=phrase("4 or 8")),
            job=job,
        )


def adapter_without_adapters(job: JobFile) -> Iterator[Mistake]:
    """An adapter section where nothing has adapters, or DoRA that is asked for and denied."""
    methods = methods_of(job)
    if not is_blank(job.adapter) and methods and not set(methods) - {"full", "freeze"}:
        yield mistake_at(
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
        yield mistake_at(
            "adapter.use_dora",
            message("dora_denied", "method dora and use_dora: false contradict each other"),
            message("keep_one", "keep one of them"),
            job=job,
        )


def trained_layers(job: JobFile) -> Iterator[Mistake]:
    """``trained_layers`` of a method other than freeze."""
    methods = methods_of(job)
    if get(job, "training.trained_layers") and methods and "freeze" not in methods:
        yield mistake_at(
            "training.trained_layers",
            message(
                "trained_layers_unused",
                "trained_layers belongs to method freeze, the method is {method}",
                method=methods[0],
            ),
            message("freeze_or_leave_out", "write method: freeze, or leave it out"),
            job=job,
        )
