"""LitGPT's keys that no job key is made of, by the reason why.

Source: litgpt 0.5.13 ``litgpt/args.py``, ``litgpt/data/*.py`` and the scripts at 26857050.
"""

from __future__ import annotations

from typing import Final

from tuneplan.formats.tables import Reasons
from tuneplan.language import message

IRRELEVANT: Final = Reasons(
    (
        message("key_learns", "it changes what is learnt, not memory, time or cost"),
        (
            *("seed", "train.lr_warmup_steps", "train.lr_warmup_fraction", "train.min_lr"),
            *("train.learning_rate", "train.weight_decay", "train.beta1", "train.beta2"),
            *("optimizer.init_args", "learning_rate", "train.lr_warmup_iters"),
        ),
    ),
    (
        message("key_logs", "it only logs, watches or publishes"),
        ("logger_name", "log", "train.log_interval", "out_dir", "io.out_dir", "access_token"),
    ),
    (
        message("key_prepares", "it prepares or renders the samples before training"),
        (
            *("data.init_args.mask_prompt", "data.init_args.prompt_style", "data.init_args.seed"),
            *("data.init_args.ignore_index", "data.init_args.num_workers", "data.prompt_style"),
            *("data.init_args.download_dir", "data.init_args.include_multiturn_conversations"),
            *("data.init_args.pin_memory", "data.mask_prompt", "data.init_args.repo_id"),
        ),
    ),
    (
        message("key_loads", "it tells how things are loaded, kept on disk or started"),
        ("resume", "io.train_data_dir", "io.val_data_dir"),
    ),
)
NOT_CARRIED: Final = Reasons(
    (
        message("key_evaluation", "an evaluation is counted as forward passes over held-out rows"),
        (
            *("eval.max_iters", "eval.max_new_tokens", "eval.initial_validation"),
            *("eval.final_validation", "eval.evaluate_example"),
        ),
    ),
    (message("key_model_overrides", "the model is taken as it is published"), ("model_config",)),
    (message("key_tied", "head and embedding are counted as two weights"),
     ("train.tie_embeddings",)),
    (message("key_time_limit", "a limit of the run's time has no job key"), ("train.max_time",)),
    (message("key_dataset_options", "a job counts samples and tokens, not this"), ("data",)),
    (message("key_compiler", "the compiler's own options have no job key"),
     ("compiler", "jit", "executors")),
)  # fmt: skip
