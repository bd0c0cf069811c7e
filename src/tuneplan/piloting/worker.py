"""The process that trains: transformers' Trainer and PEFT, as people run them, a few steps.

``python -m tuneplan.piloting.worker REQUEST EVENTS``; each event is a line of JSON in EVENTS, which
the parent reads as it grows. Out of memory is an event, with the stage it came in.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from pathlib import Path
from typing import Any, Final

from tuneplan.piloting.stability import steadiness
from tuneplan.piloting.wire import PilotRequest, read_pilot_request

_OUT_OF_MEMORY: Final = (
    *("out of memory", "not enough memory", "can't allocate memory", "cannot allocate memory"),
    *("bad_alloc", "can't start new thread", "failed to map segment"),
)
_LIBRARIES: Final = ("torch", "transformers", "peft", "trl", "accelerate", "bitsandbytes")


class Events:
    """A growing file of JSON lines; only rank 0 writes."""

    def __init__(self, path: Path) -> None:
        self._writes = os.environ.get("RANK", "0") == "0"
        self._file = path.open("a", encoding="utf-8") if self._writes else None

    def tell(self, event: str, **facts: Any) -> None:
        """Write one event and make sure that it is seen."""
        if self._file is not None:
            self._file.write(json.dumps({"event": event, **facts}) + "\n")
            self._file.flush()


def main() -> int:
    """Train what the request says; the exit status is 0 whenever the last event tells the end."""
    request = read_pilot_request(Path(sys.argv[1]))
    events = Events(Path(sys.argv[2]))
    stage = Stage(events)
    try:
        limit_memory(request)
        run = Run(request, events, stage)
        run.prepare()
        run.train()
    except Exception as error:  # any library may raise anything; the parent makes a sentence of it
        text = str(error)
        kind = type(error).__name__
        oom = isinstance(error, MemoryError) or kind == "OutOfMemoryError"
        oom = oom or any(words in text.casefold() for words in _OUT_OF_MEMORY)
        events.tell("oom" if oom else "failed", stage=stage.name, kind=kind, text=text[:2000])
        return 0
    events.tell("done")
    return 0


class Stage:
    """Where the run is; the parent needs it when the process is killed."""

    def __init__(self, events: Events) -> None:
        self._events = events
        self.name = "load"
        self.told: set[str] = set()

    def enter(self, name: str) -> None:
        """A stage begins; each is told once."""
        self.name = name
        if name not in self.told:
            self.told.add(name)
            self._events.tell("stage", name=name)


def limit_memory(request: PilotRequest) -> None:
    """A limit on what this process may hold: of its data on a CPU, of the card otherwise."""
    limit = request.memory_limit_bytes
    if limit is None:
        return
    import torch
    import transformers  # noqa: F401 - the limit is on the run, not on loading its libraries

    if request.device != "cpu" and torch.cuda.is_available():
        total = torch.cuda.get_device_properties(0).total_memory
        torch.cuda.set_per_process_memory_fraction(min(limit / total, 1.0))
    else:
        resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))


class Run:
    """The training itself."""

    def __init__(self, request: PilotRequest, events: Events, stage: Stage) -> None:
        self._request = request
        self._events = events
        self._stage = stage
        self._trainer: Any = None
        self._before_bytes = 0

    def prepare(self) -> None:
        """Model, adapters, arguments, data."""
        import torch
        from transformers import Trainer, TrainingArguments

        self._stage.enter("load")
        torch.manual_seed(self._request.seed)
        self._before_bytes = host_bytes()
        model = build(self._request)
        arguments = TrainingArguments(**self._arguments(TrainingArguments))
        self._events.tell("environment", **environment(arguments))
        stage, events, request = self._stage, self._events, self._request
        meter = Meter(request, events, stage)

        class Measured(Trainer):  # type: ignore[misc]
            """The Trainer with its stages told, and rows in the order in which they stand."""

            def _get_train_sampler(self, *_: Any, **__: Any) -> Any:
                return torch.utils.data.SequentialSampler(self.train_dataset)

            def compute_loss(self, *args: Any, **kwargs: Any) -> Any:
                stage.enter("forward")
                loss = super().compute_loss(*args, **kwargs)
                stage.enter("backward")
                return loss

        self._trainer = Measured(
            model=model,
            args=arguments,
            train_dataset=Rows(request, model),
            data_collator=meter.collate,
            callbacks=[meter.callback()],
        )

    def _arguments(self, kind: Any) -> dict[str, Any]:
        """The job's arguments, with nothing written and nothing reported."""
        known = set(kind.__dataclass_fields__)
        asked = {
            **self._request.arguments,
            "output_dir": str(Path(sys.argv[2]).parent / "output"),
            "max_steps": self._request.num_steps,
            "save_strategy": "no",
            "eval_strategy": "no",
            "logging_strategy": "no",
            "report_to": [],
            "disable_tqdm": True,
            "remove_unused_columns": False,
            "dataloader_drop_last": False,
            "use_cpu": self._request.device == "cpu",
            "seed": self._request.seed,
        }
        return {name: value for name, value in asked.items() if name in known}

    def train(self) -> None:
        """All steps, or until they are steady, or until the time is up."""
        self._stage.enter("forward")
        self._trainer.train()
        self._events.tell("peak", **peak(self._before_bytes))


def build(request: PilotRequest) -> Any:
    """The model on the host, with the adapters of the recipe."""
    import torch

    from tuneplan.spec.recipe import Method
    from tuneplan.tracing.adapters import adapt, torch_dtype
    from tuneplan.tracing.configuration import build_config

    wanted, recipe = request.model, request.model.recipe
    trained = recipe.method is Method.FULL
    dtype = torch_dtype(recipe.trainable_dtype if trained else recipe.frozen_dtype)
    attention = {"eager": "eager", "sdpa": "sdpa"}.get(recipe.attention.value, "sdpa")
    from transformers import AutoModelForCausalLM

    if request.weights is not None:
        model = AutoModelForCausalLM.from_pretrained(
            request.weights, dtype=dtype, attn_implementation=attention, trust_remote_code=False
        )
    else:
        config = build_config(wanted.architecture)
        model = AutoModelForCausalLM.from_config(
            config, dtype=dtype, attn_implementation=attention, trust_remote_code=False
        )
    model.config.use_cache = False
    if recipe.adapter is not None:
        model = adapt(model, wanted.architecture, recipe)
        if recipe.gradient_checkpointing.value != "none":
            model.enable_input_require_grads()
    if not isinstance(model, torch.nn.Module):
        msg = f"transformers gave a {type(model).__name__}"
        raise TypeError(msg)
    return model


class Rows:
    """Random tokens in rows of the lengths asked for; speed and memory do not depend on them."""

    def __init__(self, request: PilotRequest, model: Any) -> None:
        import torch

        flat = [length for rows in request.lengths for length in rows]
        steps = request.num_steps * int(request.arguments.get("gradient_accumulation_steps", 1))
        rows = len(request.lengths[0])
        self._lengths = [flat[number % len(flat)] for number in range(steps * rows)]
        self._generator = torch.Generator().manual_seed(request.seed)
        self._vocabulary = int(model.config.get_text_config().vocab_size)

    def __len__(self) -> int:
        return len(self._lengths)

    def __getitem__(self, index: int) -> dict[str, Any]:
        import torch

        size = (self._lengths[index],)
        return {"input_ids": torch.randint(0, self._vocabulary, size, generator=self._generator)}


class Meter:
    """Counts tokens and takes times; says when it is enough."""

    def __init__(self, request: PilotRequest, events: Events, stage: Stage) -> None:
        self._request = request
        self._events = events
        self._stage = stage
        self._tokens = self._padded = 0
        self._loader_s = 0.0
        self._steps_s: list[float] = []
        self._positions: list[float] = []
        self._began = self._began_cpu = 0.0
        self._started = time.perf_counter()

    def collate(self, rows: list[dict[str, Any]]) -> dict[str, Any]:
        """A micro-batch, padded on the right."""
        import torch

        began = time.perf_counter()
        longest = self._request.pad_to or max(len(row["input_ids"]) for row in rows)
        ids = torch.zeros((len(rows), longest), dtype=torch.long)
        mask = torch.zeros_like(ids)
        for number, row in enumerate(rows):
            length = len(row["input_ids"])
            ids[number, :length] = row["input_ids"]
            mask[number, :length] = 1
            self._tokens += length
        self._padded += ids.numel()
        labels = ids.masked_fill(mask == 0, -100)
        self._loader_s += time.perf_counter() - began
        batch = {"input_ids": ids, "labels": labels}
        return batch if bool(mask.all()) else {**batch, "attention_mask": mask}

    def callback(self) -> Any:
        """The Trainer's callback that takes the times."""
        from transformers import TrainerCallback

        meter = self

        class Clock(TrainerCallback):  # type: ignore[misc]
            def on_step_begin(self, *_: Any, **__: Any) -> None:
                meter.begin()

            def on_pre_optimizer_step(self, *_: Any, **__: Any) -> None:
                meter.stage("optimizer_step")

            def on_step_end(self, _args: Any, _state: Any, control: Any, **_: Any) -> Any:
                if meter.end():
                    control.should_training_stop = True
                return control

        return Clock()

    def stage(self, name: str) -> None:
        """Tell the stage."""
        self._stage.enter(name)

    def begin(self) -> None:
        """A step begins."""
        if not self._began:
            self._began, self._began_cpu = time.perf_counter(), time.process_time()

    def end(self) -> bool:
        """A step ended; whether it is enough."""
        synchronize()
        now, cpu = time.perf_counter(), time.process_time()
        self._steps_s.append(now - self._began)
        self._positions.append(float(self._padded))
        self._events.tell(
            "step",
            step_s=now - self._began,
            cpu_s=cpu - self._began_cpu,
            tokens=self._tokens,
            padded_tokens=self._padded,
            loader_wait_s=self._loader_s,
        )
        self._tokens = self._padded = 0
        self._loader_s = 0.0
        self._began, self._began_cpu = now, cpu
        self._stage.enter("later")
        if now - self._started > self._request.time_limit_s:
            self._events.tell("time_is_up")
            return True
        steady = self._request.until_steady and steadiness(self._steps_s, self._positions).stable
        return bool(steady)


def synchronize() -> None:
    """Wait until the device has done what it was told."""
    import torch

    if torch.cuda.is_available() and torch.cuda.is_initialized():
        torch.cuda.synchronize()
    elif torch.backends.mps.is_available():
        torch.mps.synchronize()


def host_bytes() -> int:
    """The most that this process has held so far (getrusage(2) counts KiB on Linux)."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def peak(before_bytes: int) -> dict[str, int | None]:
    """The highest memory so far, of each kind that this device tells.

    A processor has no allocator that counts: what the process holds is its device memory, and what
    came on top of ``before_bytes``, before there was a model, stands for reserved memory.
    """
    import torch

    host = host_bytes()
    if not (torch.cuda.is_available() and torch.cuda.is_initialized()):
        alone = not torch.backends.mps.is_available()
        return {
            "allocated_bytes": None,
            "reserved_bytes": max(host - before_bytes, 0) if alone else None,
            "device_bytes": host if alone else None,
            "host_bytes": host,
        }
    free, total = torch.cuda.mem_get_info()
    return {
        "allocated_bytes": torch.cuda.max_memory_allocated(),
        "reserved_bytes": torch.cuda.max_memory_reserved(),
        "device_bytes": total - free,
        "host_bytes": host,
    }


def environment(arguments: Any) -> dict[str, Any]:
    """Chip, count, driver and versions."""
    from importlib import metadata

    import torch

    software = {}
    for name in _LIBRARIES:
        try:
            software[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    kind = arguments.device.type
    name = torch.cuda.get_device_name(0) if kind == "cuda" else processor()
    return {
        "accelerator": name,
        "device": kind,
        "num_accelerators": int(os.environ.get("WORLD_SIZE", "1")),
        "driver": torch.version.cuda or torch.version.hip,
        "threads": torch.get_num_threads(),
        "software": software,
    }


def processor() -> str:
    """The CPU's own name."""
    import platform

    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


if __name__ == "__main__":
    sys.exit(main())
