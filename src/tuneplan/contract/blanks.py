"""What a blank key of the job file means, for the reference."""

from __future__ import annotations

from typing import Final

# By key path, else by section. Every such value is an assumption in the answer.
_BLANKS: Final = {
    "model": "required",
    "framework": "newest known `trl`",
    "software": "newest known versions",
    "date": "today",
    "objective": "`sft`",
    "method": "searched by `plan`; `qlora` where a quantised base is stated",
    "goal": "`cheapest`",
    "prices": "bundled prices",
    "accelerators": "bundled accelerators",
    "models": "bundled models",
    "data.eval_fraction": "no evaluation samples are held out",
    "data.tokenizer": "that of the model",
    "data.skip_bad_rows": "a row that cannot be used is an error",
    "training.max_steps": "from samples and epochs",
    "training.per_device_train_batch_size": "searched by `plan`; framework default in `estimate`",
    "training.gradient_checkpointing": "searched by `plan`; framework default in `estimate`",
    "training.packing": "searched by `plan`; framework default in `estimate`",
    "training.global_batch_size": "what the other batch keys give",
    "training.trained_layers": "framework default",
    "hardware.accelerator": "searched by `plan`; `estimate` answers with a table over the cards",
    "hardware.num_nodes": "searched by `plan`; 1 in `estimate`",
    "hardware.accelerators_per_node": "searched by `plan`; 1 in `estimate`",
    "hardware.interconnect": "that of the accelerator",
    "hardware.inter_node": "usual for the accelerator",
    "hardware.host_memory": "unknown",
    "hardware.disk.bandwidth": "unknown",
    "hardware.disk.size": "unknown",
    "parallelism.strategy": "searched by `plan`",
    "limits.headroom": "0.2",
    "limits.allow_interruptible": "searched by `plan`",
    "limits.single_tenant": "does not matter",
    "project.num_experiments": "0",
    "project.experiment_fraction": "1: each is a full run",
    "project.num_sweep_runs": "0",
    "project.sweep_fraction": "1: each is a full run",
    "project.data_iterations": "1",
    "project.retry_factor": "`[1.5, 3]`",
    "project.failure_fraction": "0",
    "project.runs_in_parallel": "1",
    "project.start": "weeks without dates",
    "project.duration": "as the hours ask for",
    "project.proof_of_concept_time": "as the hours ask for",
    "project.main_time": "as the hours ask for",
    "project.hand_over_time": "as the hours ask for",
}
_OF_SECTION: Final = {
    "": "left out",
    "adapter": "framework default",
    "quantization": "framework default",
    "data": "unknown",
    "training": "framework default",
    "parallelism": "1",
    "limits": "no limit",
    "project": "not counted",
    "lint": "every rule speaks",
}


def blank_meaning(path: str) -> str:
    """What is taken where the key at ``path`` is left blank."""
    return _BLANKS.get(path, _OF_SECTION.get(path.rpartition(".")[0], "framework default"))
