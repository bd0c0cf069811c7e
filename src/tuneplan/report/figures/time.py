"""How the time, data and parameter figures of an estimate come about."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from tuneplan.contract.answers import ExplainedInput, ExplainedNode
from tuneplan.contract.parts import TimeTerm
from tuneplan.estimation.utilization import model_flop_per_token
from tuneplan.language import sentence
from tuneplan.planner.evaluating import TimeAnswer
from tuneplan.report.figures.tree import Context, Explain, known
from tuneplan.spec.answer import Basis, Term
from tuneplan.spec.hardware import Cluster

_BATCH: Final = (
    "training.per_device_train_batch_size",
    "training.gradient_accumulation_steps",
    "training.max_length",
    "training.packing",
    "training.padding",
)
_RUN_TERMS: Final = {
    "time.train_s": "training",
    "time.eval_s": "evaluation",
    "time.checkpoint_s": "checkpoints",
}


def _known_time(context: Context) -> tuple[TimeAnswer, Cluster] | None:
    time, cluster = context.estimate.time, context.estimate.resolved.cluster
    return None if time is None or cluster is None else (time, cluster)


def _step(context: Context) -> ExplainedNode | None:
    found = _known_time(context)
    if found is None or context.body.time is None:
        return None
    step, cluster, nearest = found[0].step.step_s, found[1], found[0].nearest
    basis, source = Basis.ASSUMED, "estimation/step_time.py"
    closest = []
    if nearest is not None:
        closest = [known("measured runs closest to the job", dict(nearest.rows), "runs")]
        basis, source = Basis.CALIBRATED, sentence("measured runs; docs/concepts/uncertainty.md")
    inputs = [
        known("low / likely", step.low / step.likely, basis=basis, source=source),
        known("high / likely", step.high / step.likely, basis=basis, source=source),
        *closest,
        known("accelerators", cluster.num_accelerators),
        *context.settings(*_BATCH, "training.gradient_checkpointing"),
    ]  # fmt: skip
    return context.figure(
        "time.step_s",
        "sum of what one optimizer step does on the slowest rank",
        inputs=inputs,
        children=[time_term_node(term) for term in context.body.time.terms],
        source="estimation/step_time.py; docs/concepts/time.md",
    )


def time_term_node(term: TimeTerm, *, name: str | None = None) -> ExplainedNode:
    """A term of the step."""
    return ExplainedNode(
        name=name or term.kind,
        value=term.time_s,
        unit="s",
        formula=term.formula,
        basis=term.basis.value,
        source=term.source or None,
        inputs=[
            ExplainedInput(name=symbol, value=value, basis=term.basis.value)
            for symbol, value in term.inputs.items()
        ],
        children=[time_term_node(part) for part in term.parts],
    )


def _rate(figure: str, formula: str, amount: str) -> Explain:
    def explain(context: Context) -> ExplainedNode | None:
        if context.value(figure) is None:
            return None
        batch, resolved = context.estimate.resolved.batch, context.estimate.resolved
        micro_batches = resolved.recipe.gradient_accumulation_steps * resolved.parallelism.data
        cluster = resolved.cluster
        inputs = [
            known(f"{amount} of a micro-batch", getattr(batch, amount)),
            known("micro-batches of a step, over all ranks", micro_batches),
            known("accelerators", cluster.num_accelerators if cluster else 1),
        ]
        return context.figure(figure, formula, inputs=inputs, children=[_step(context)])

    return explain


def _utilisation(figure: str, formula: str) -> Explain:
    def explain(context: Context) -> ExplainedNode | None:
        found = _known_time(context)
        if found is None or context.value(figure) is None:
            return None
        resolved = context.estimate.resolved
        per_token = model_flop_per_token(
            resolved.model, resolved.recipe, sequence_length=resolved.batch.sequence_length
        )
        chip = found[1].accelerator
        inputs = [
            known("model operations per token", per_token, "FLOP",
                  source="estimation/utilization.py"),
            known("peak", chip.peak_flop_per_s(resolved.recipe.compute_dtype), "FLOP/s",
                  basis=Basis.MEASURED, source=chip.source),
            *context.settings("training.precision", "method"),
        ]  # fmt: skip
        rate = _FIGURES["time.tokens_per_s_per_accelerator"](context)
        return context.figure(figure, formula, inputs=inputs, children=[rate])

    return explain


def _steps(context: Context) -> ExplainedNode | None:
    run = context.estimate.time.run if context.estimate.time else None
    if run is None:
        return None
    resolved = context.estimate.resolved
    rounding = "up" if resolved.schedule.rounds_up else "down"
    return context.figure(
        "time.steps",
        "epochs x samples / (samples of a micro-batch x data ranks x accumulation), "
        "each epoch rounded as the framework rounds; or max_steps",
        inputs=[
            known("num_samples", context.value("data.num_samples"), "samples"),
            known("samples of a micro-batch", resolved.batch.samples),
            known("data ranks", resolved.parallelism.data),
            known("steps of an epoch", run.steps_per_epoch),
            known("a started group of micro-batches is rounded", rounding,
                  source="transformers trainer.py"),
            *context.settings("training.num_train_epochs", "training.max_steps", *_BATCH[:2]),
        ],
    )  # fmt: skip


def _part_of_run(figure: str, formula: str, *settings: str) -> Explain:
    def explain(context: Context) -> ExplainedNode | None:
        if context.value(figure) is None:
            return None
        children = [_steps(context), _step(context)] if figure == "time.train_s" else []
        inputs = []
        if figure == "time.checkpoint_s":
            size = context.value("storage.checkpoint_bytes")
            inputs.append(known("bytes of a checkpoint", size, sentence("bytes on disk")))
        return context.figure(
            figure, formula, inputs=[*inputs, *context.settings(*settings)], children=children
        )

    return explain


def _total(context: Context) -> ExplainedNode | None:
    run = context.estimate.time.run if context.estimate.time else None
    if run is None:
        return None
    children = [_FIGURES[figure](context) for figure in _RUN_TERMS]
    start_up = next(term for term in run.terms if term.kind == "start-up")
    return context.figure(
        "time.total_s",
        "training + evaluation + checkpoints + start-up",
        children=[*children, _run_term(start_up)],
        source="estimation/run_time.py",
    )


def _run_term(term: Term) -> ExplainedNode:
    return ExplainedNode(
        name=term.kind,
        value=term.value,
        unit="s",
        formula=term.formula,
        basis=term.basis.value,
        source="estimation/run_time.py",
        inputs=[known(name, value, basis=term.basis) for name, value in term.inputs.items()],
        children=[],
    )


def _hours(context: Context) -> ExplainedNode | None:
    found = _known_time(context)
    if found is None or context.value("accelerator_hours") is None:
        return None
    return context.figure(
        "accelerator_hours",
        "accelerators x whole run / 3600 s",
        inputs=[known("accelerators", found[1].num_accelerators)],
        children=[_total(context)],
    )


_FIGURES: Final[Mapping[str, Explain]] = MappingProxyType(
    {
        "time.step_s": _step,
        "time.tokens_per_s_per_accelerator": _rate(
            "time.tokens_per_s_per_accelerator",
            sentence("positions of a step, padding included / step_s / accelerators"),
            "positions",
        ),
        "time.real_tokens_per_s_per_accelerator": _rate(
            "time.real_tokens_per_s_per_accelerator",
            sentence("tokens of samples in a step / step_s / accelerators"),
            "real_tokens",
        ),
        "time.samples_per_s": _rate(
            "time.samples_per_s", sentence("samples of a step over all ranks / step_s"), "samples"
        ),
        "time.mfu_fraction": _utilisation(
            "time.mfu_fraction",
            sentence(
                "model operations per token x tokens per second and accelerator / peak; "
                "operations: 6 for each active matmul parameter (4 for a frozen one) and "
                "causal attention"
            ),
        ),
        "time.hfu_fraction": _utilisation(
            "time.hfu_fraction",
            sentence("as mfu_fraction, with the operations that checkpointing executes again"),
        ),
        "time.steps": _steps,
        "time.train_s": _part_of_run("time.train_s", sentence("steps x step_s")),
        "time.eval_s": _part_of_run(
            "time.eval_s",
            sentence("evaluations x evaluation samples x forward time of a sample"),
            "data.eval_fraction",
            "training.eval_steps",
            "training.per_device_eval_batch_size",
        ),
        "time.checkpoint_s": _part_of_run(
            "time.checkpoint_s",
            sentence("saves x bytes of a checkpoint / rate of the disk"),
            "training.save_steps",
            "hardware.disk",
        ),
        "time.total_s": _total,
        "accelerator_hours": _hours,
    }
)
TIME_FIGURES: Final = _FIGURES
