"""The training itself: transformers' Trainer or TRL's SFTTrainer, as people run them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Final

from tuneplan.piloting.building import build
from tuneplan.piloting.images import image_columns
from tuneplan.piloting.meter import Meter
from tuneplan.piloting.rows import TokenRow, collated, dataset_of, rows_of
from tuneplan.piloting.surroundings import environment, host_bytes, rank_peaks
from tuneplan.piloting.wire import PilotRequest
from tuneplan.piloting.worker import Events, Stage

_END: Final = "<end>"


def train(request: PilotRequest, events: Events, stage: Stage, *, folder: Path) -> None:
    """All steps, or until they are steady, or until the time is up; then the peaks."""
    import torch

    torch.manual_seed(request.seed)
    meter = Meter(
        events.tell,
        stage.enter,
        time_limit_s=request.time_limit_s,
        until_steady=request.until_steady,
    )
    arguments = _arguments(request, folder)
    if arguments.device.type == "cpu" and _is_sharded(request):
        msg = "accelerate shards nothing over processors"
        raise ValueError(msg)
    events.tell("environment", **environment(arguments.device.type))
    before_bytes = host_bytes()
    model = build(request, _home(request, arguments.device))
    make = _sft_trainer if request.trainer == "trl" else _trainer
    trainer = make(request, model, arguments, meter, stage)
    stage.enter("forward")
    trainer.train()
    worst, ranks = rank_peaks(before_bytes, meter.own_step_s)
    events.tell("peak", **worst)
    events.tell("ranks", ranks=ranks)


def _home(request: PilotRequest, device: Any) -> Any:
    """Where the weights are made: on the device, or on the host where they will be sharded."""
    import torch

    return torch.device("cpu") if _is_sharded(request) else device


def _is_sharded(request: PilotRequest) -> bool:
    return bool(request.arguments.get("fsdp") or request.arguments.get("deepspeed"))


def _arguments(request: PilotRequest, folder: Path) -> Any:
    """The job's arguments, with nothing written and nothing reported."""
    if request.trainer == "trl":
        from trl import SFTConfig as Arguments
    else:
        from transformers import TrainingArguments as Arguments
    known = set(Arguments.__dataclass_fields__)
    asked = {
        **request.arguments,
        **request.sft,
        "output_dir": str(folder / "output"),
        "max_steps": request.num_steps,
        "save_strategy": "no",
        "eval_strategy": "no",
        "logging_strategy": "no",
        "report_to": [],
        "disable_tqdm": True,
        "remove_unused_columns": request.trainer == "trl",
        "dataloader_drop_last": False,
        "ddp_find_unused_parameters": False if _world_size() > 1 else None,
        "use_cpu": request.device == "cpu",
        "seed": request.seed,
    }
    return Arguments(**{name: value for name, value in asked.items() if name in known})


def _world_size() -> int:
    return int(os.environ.get("WORLD_SIZE", "1"))


def _staged(base: Any, stage: Stage, meter: Meter) -> Any:
    """The trainer with its stages told, its tokens counted, and rows in the order they stand in."""
    import torch

    class Staged(base):  # type: ignore[misc]
        def _get_train_sampler(self, *_: Any, **__: Any) -> Any:
            return torch.utils.data.SequentialSampler(self.train_dataset)

        def compute_loss(self, model: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
            stage.enter("forward")
            meter.count(inputs)
            loss = super().compute_loss(model, inputs, *args, **kwargs)
            stage.enter("backward")
            return loss

    return Staged


def _trainer(request: PilotRequest, model: Any, arguments: Any, meter: Meter, stage: Stage) -> Any:
    from transformers import Trainer

    columns = image_columns(model.config, request.images)

    def collate(rows: list[TokenRow]) -> dict[str, Any]:
        return columns(collated(rows, request.pad_to))

    return _staged(Trainer, stage, meter)(
        model=model,
        args=arguments,
        train_dataset=Rows(_rows(request, model), _num_rows(request)),
        data_collator=meter.timed(collate),
        callbacks=[meter.callback()],
    )


def _sft_trainer(
    request: PilotRequest, model: Any, arguments: Any, meter: Meter, stage: Stage
) -> Any:
    from trl import SFTTrainer

    rows = _rows(request, model)
    trainer = _staged(SFTTrainer, stage, meter)(
        model=model,
        args=arguments,
        train_dataset=dataset_of(rows),
        processing_class=_tokenizer(int(model.config.get_text_config().vocab_size)),
        callbacks=[meter.callback()],
    )
    trainer.data_collator = meter.timed(trainer.data_collator)
    return trainer


def _rows(request: PilotRequest, model: Any) -> list[TokenRow]:
    return rows_of(request, int(model.config.get_text_config().vocab_size))


def _num_rows(request: PilotRequest) -> int:
    accumulation = int(request.arguments.get("gradient_accumulation_steps", 1))
    return request.num_steps * accumulation * len(request.lengths[0]) * _world_size()


def _tokenizer(vocabulary: int) -> Any:
    """TRL asks for a tokenizer; of rows that are tokens already it takes the padding alone."""
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from transformers import PreTrainedTokenizerFast

    words = {_END: vocabulary - 1}
    made = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(WordLevel(words, unk_token=_END)))
    made.eos_token = made.pad_token = _END
    return made


class Rows:
    """Rows over and over, up to as many as the training takes."""

    def __init__(self, rows: list[TokenRow], count: int) -> None:
        self._rows = rows
        self._count = count

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> TokenRow:
        return self._rows[index % len(self._rows)]
