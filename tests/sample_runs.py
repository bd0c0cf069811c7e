"""Answers about measured runs, small but with every part, for the tests of contract and report."""

from __future__ import annotations

import sample_answers
from tuneplan.contract.answers import EstimateBody, header
from tuneplan.contract.evidenced import (
    AccuracyAnswer,
    AccuracyFigure,
    AccuracyPoint,
    AccuracySource,
)
from tuneplan.contract.kept_runs import RunsAnswer
from tuneplan.contract.learned import (
    LearnAnswer,
    LearnedFigure,
    LearnedLog,
    LearnedRun,
    StoreAnswer,
    StoredMeasurement,
)
from tuneplan.contract.parts import Money, MoneyRange, Notice, Range
from tuneplan.contract.piloted import (
    PilotAnswer,
    PilotCase,
    PilotEnvironment,
    PilotMatrixAnswer,
    PilotMoved,
    PilotPeak,
    PilotStable,
    PilotStep,
)
from tuneplan.contract.watched import WatchAlert, WatchAnswer, WatchDevice
from tuneplan.spec.answer import Basis
from tuneplan.units import GIB

DAY = "2026-12-01"
ID = "0123456789abcdef" * 4


def span(likely: float, basis: Basis = Basis.ANALYTIC) -> Range:
    return Range(low=0.9 * likely, likely=likely, high=1.2 * likely, basis=basis)


def figure(quantity: str, measured: float, predicted: float | None = None) -> LearnedFigure:
    if predicted is None:
        return LearnedFigure(quantity=quantity, measured=measured)
    return LearnedFigure(
        quantity=quantity,
        measured=measured,
        predicted=span(predicted),
        error_fraction=predicted / measured - 1,
        inside_interval=0.9 * predicted <= measured <= 1.2 * predicted,
    )


def warning(code: str, text: str) -> Notice:
    return Notice(code=code, params={}, message=text)


def learned() -> LearnAnswer:
    return LearnAnswer(
        **header("learn", as_of=DAY),
        job={"model": "Qwen/Qwen2.5-7B-Instruct"},
        store="measurements.sqlite3",
        runs=[
            LearnedRun(
                name="run",
                logs=[
                    LearnedLog(
                        path="run/trainer_log.jsonl",
                        format="llamafactory",
                        points=40,
                        first_step=10,
                        last_step=400,
                    )
                ],
                accelerator="NVIDIA H100 SXM",
                num_accelerators=1,
                steps=400,
                relative_error=0.014,
                measured_at=None,
                figures=[
                    figure("step_s", 2.3, 2.5),
                    figure("train_s", 920.0, 1000.0),
                    figure("peak_bytes", 20.5 * GIB, 15.0 * GIB),
                    figure("power_w", 612.0),
                    figure("utilization_fraction", 0.97),
                ],
                measurement_id=ID,
                warnings=[warning("log_rows_unread", "2 rows tell no step or no time")],
            )
        ],
    )


def stored() -> StoreAnswer:
    return StoreAnswer(
        **header("store list", as_of=DAY),
        store="measurements.sqlite3",
        measurements=[
            StoredMeasurement(
                measurement_id=ID,
                kept_at="2026-12-01T10:00:00.000+00:00",
                measured_at=None,
                origin="pilot",
                status="oom",
                model="Qwen/Qwen2.5-7B-Instruct",
                method="lora",
                accelerator="NVIDIA H100 SXM",
                num_accelerators=2,
                step_s=2.3,
                peak_bytes=20 * GIB,
            )
        ],
    )


def watched() -> WatchAnswer:
    def usd(amount: str) -> Money:
        return Money(amount=amount, currency="USD")

    return WatchAnswer(
        **header("watch", as_of=DAY),
        time="2026-12-01T10:00:00+00:00",
        step=120,
        total_steps=400,
        epoch=0.9,
        loss=1.25,
        eval_loss=1.31,
        step_s=2.31,
        tokens_per_s=14_150.0,
        memory_bytes=22 * GIB,
        quiet_s=3.0,
        elapsed_s=280.0,
        eta_s=span(650.0, Basis.MEASURED),
        cost=MoneyRange(low=usd("0.60"), likely=usd("0.65"), high=usd("0.72")),
        finished=False,
        missing=False,
        devices=[
            WatchDevice(
                index=0,
                name="NVIDIA H100 80GB HBM3",
                used_bytes=22 * GIB,
                total_bytes=80 * GIB,
                utilization_fraction=0.98,
                temperature_c=61.0,
                power_w=655.0,
            )
        ],
        alerts=[
            WatchAlert(
                code="slow",
                since="2026-12-01T09:58:00+00:00",
                message="a step takes 2.31 s; the plan said 1.8 to 2.2 s",
                new=True,
            )
        ],
    )


def piloted_matrix() -> PilotMatrixAnswer:
    return PilotMatrixAnswer(
        **header("pilot matrix", as_of=DAY),
        matrix="large-gpu",
        rows="pilot-large-gpu.csv",
        store=None,
        cases=[
            PilotCase(
                name="lora-8b",
                status="ok",
                steps=12,
                step_s=1.5,
                tokens_per_s_per_accelerator=5400.0,
                peak_bytes=20 * GIB,
                predicted_peak_bytes=span(20.5 * GIB),
                predicted_step_s=span(1.6),
                measurement_id=ID,
            ),
            PilotCase(name="full-7b", status="oom", stage="first_backward", steps=0),
            PilotCase(name="vlm", status="not_run", reason="there is no card"),
            PilotCase(name="moe", status="not_run", reason="there is no card"),
            PilotCase(name="before", status="kept"),
        ],
    )


def piloted() -> PilotAnswer:
    body = EstimateBody.model_validate(
        {
            name: value
            for name, value in sample_answers.estimate().model_dump().items()
            if name in EstimateBody.model_fields
        }
    )
    return PilotAnswer(
        **header("pilot", as_of=DAY),
        job={"model": "Qwen/Qwen2.5-7B-Instruct"},
        status="ok",
        stage=None,
        environment=PilotEnvironment(
            accelerator="NVIDIA H100 80GB HBM3",
            device="cuda",
            num_accelerators=1,
            driver="12.9",
            software={"torch": "2.13.0", "transformers": "5.24.0"},
        ),
        warm_up_steps=2,
        steps=[
            PilotStep(
                step_s=seconds, tokens=7000, padded_tokens=8192, loader_wait_s=0.01, cpu_s=seconds
            )
            for seconds in (4.0, 2.6, 2.3, 2.31, 2.29, 2.3, 2.3)
        ],
        stable=PilotStable(stable=True, step_s=span(2.3, Basis.MEASURED), relative_error=0.004),
        peak=PilotPeak(
            allocated_bytes=20 * GIB,
            reserved_bytes=22 * GIB,
            device_bytes=23 * GIB,
            host_bytes=3 * GIB,
        ),
        power_w=None,
        figures=[figure("step_s", 2.3, 2.5), figure("peak_bytes", 20 * GIB, 20.1 * GIB)],
        measurement_id=ID,
        before=body,
        after=body,
        moved=[
            PilotMoved(
                figure="step_s",
                before=span(2.5),
                after=span(2.3, Basis.CALIBRATED),
                because="measured here: 0.920 times the predicted step",
            )
        ],
        warnings=[],
    )


def runs() -> RunsAnswer:
    return RunsAnswer(
        **header("runs", as_of=DAY),
        store="measurements.sqlite3",
        measurements=stored().measurements,
        moved=piloted().moved,
        run="outputs/run-1",
        watch=watched(),
        warnings=[],
    )


def accuracy() -> AccuracyAnswer:
    return AccuracyAnswer(
        **header("accuracy", as_of=DAY),
        measured_on=DAY,
        num_runs=2,
        num_predicted=1,
        figures=[
            AccuracyFigure(
                key="memory_one",
                runs=1,
                must=[0.04, 0.12],
                aim=[0.01, None],
                measured=[0.02, 0.02],
                by_source=None,
                met=True,
                aimed=False,
            )
        ],
        points=[
            AccuracyPoint(
                quantity="peak_bytes",
                source="fms",
                measured=20e9,
                likely=20.4e9,
                low=20e9,
                high=21e9,
                probability=0.1,
            )
        ],
        sources=[AccuracySource(name="fms", runs=2, published_in="owner/repository@1234")],
    )
