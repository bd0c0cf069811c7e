"""Keys of ``TrainingArguments`` that no job key is made of, by the reason why.

Sources: transformers 5.24, 4.57 and 4.31 ``training_args.py``, ``training_args_seq2seq.py``.
"""

from __future__ import annotations

from typing import Final

from tuneplan.formats.tables import Reasons
from tuneplan.language import message

# transformers training_args.py OptimizerNames, of 5.24 and those of older releases.
OPTIMIZERS: Final = (
    *("adamw_torch", "adamw_torch_fused", "adamw_torch_xla", "adamw_torch_npu_fused", "adafactor"),
    *("adamw_anyprecision", "adamw_torch_4bit", "adamw_torch_8bit", "ademamix", "sgd", "adagrad"),
    *("adamw_bnb_8bit", "adamw_8bit", "ademamix_8bit", "lion_8bit", "lion_32bit"),
    *("paged_adamw_32bit", "paged_adamw_8bit", "paged_ademamix_32bit", "paged_ademamix_8bit"),
    *("paged_lion_32bit", "paged_lion_8bit", "rmsprop", "rmsprop_bnb", "rmsprop_bnb_8bit"),
    *("rmsprop_bnb_32bit", "galore_adamw", "galore_adamw_8bit", "galore_adafactor"),
    *("galore_adamw_layerwise", "galore_adamw_8bit_layerwise", "galore_adafactor_layerwise"),
    *("lomo", "adalomo", "grokadamw", "schedule_free_radam", "schedule_free_adamw"),
    *("schedule_free_sgd", "apollo_adamw", "apollo_adamw_layerwise", "stable_adamw"),
    *("adamw_hf", "adamw_apex_fused"),
)

# transformers trainer_utils.py SchedulerType of 5.24.
SCHEDULERS: Final = (
    *("linear", "cosine", "cosine_with_restarts", "polynomial", "constant", "inverse_sqrt"),
    *("constant_with_warmup", "reduce_lr_on_plateau", "cosine_with_min_lr", "greedy"),
    *("cosine_warmup_with_min_lr", "warmup_stable_decay"),
)

IRRELEVANT: Final = Reasons(
    (
        message("hf_learning", "what is learnt, not what it takes"),
        (
            *("learning_rate", "lr_scheduler_type", "lr_scheduler_kwargs", "warmup_steps"),
            *("warmup_ratio", "weight_decay", "adam_beta1", "adam_beta2", "adam_epsilon"),
            *("seed", "data_seed", "full_determinism", "neftune_noise_alpha", "optim_args"),
            *("average_tokens_across_devices", "label_names", "ignore_data_skip", "warmup_min_lr"),
            *("metric_for_best_model", "greater_is_better", "load_best_model_at_end", "min_lr"),
            *("sortish_sampler", "length_column_name", "dataloader_drop_last", "past_index"),
        ),
    ),
    (
        message("hf_reports", "what is logged, printed or published"),
        (
            *("logging_dir", "logging_steps", "logging_strategy", "logging_first_step"),
            *("logging_nan_inf_filter", "log_level", "log_level_replica", "log_on_each_node"),
            *("report_to", "run_name", "disable_tqdm", "include_num_input_tokens_seen", "project"),
            *("include_tokens_per_second", "push_to_hub", "hub_model_id", "hub_strategy"),
            *("hub_token", "hub_private_repo", "hub_always_push", "hub_revision", "wandb_*"),
            *("push_to_hub_model_id", "push_to_hub_organization", "push_to_hub_token"),
            *("trackio_*", "hub_model_revision", "swanlab_*", "save_on_each_node", "debug"),
            *("skip_memory_metrics", "include_inputs_for_metrics", "include_for_metrics"),
            *("mp_parameters", "tags", "logging_file"),
        ),
    ),
    (
        message("hf_folders", "where the run starts, what it is called and where it is stored"),
        (
            *("output_dir", "overwrite_output_dir", "do_train", "do_eval", "do_predict"),
            *("resume_from_checkpoint", "cache_dir", "enable_jit_checkpoint", "save_safetensors"),
            *("restore_callback_states_from_checkpoint", "local_rank", "ray_scope", "tpu_*"),
            *("local-rank", "overwrite_cache", "use_auth_token", "token", "job_id"),
        ),
    ),
    (
        message("hf_loading", "how samples are loaded and sent, on the host"),
        (
            *("dataloader_num_workers", "dataloader_pin_memory", "dataloader_prefetch_factor"),
            *("dataloader_persistent_workers", "remove_unused_columns", "accelerator_config"),
            *("dataloader_in_order", "dataloader_multiprocessing_context", "split_batches"),
            *("dispatch_batches", "preprocessing_num_workers"),
        ),
    ),
    (
        message("hf_ddp", "how DDP finds its peers and checks their gradients"),
        (
            *("ddp_find_unused_parameters", "ddp_broadcast_buffers", "ddp_timeout", "ddp_backend"),
            *("ddp_static_graph", "ddp_timeout_seconds", "xpu_backend"),
        ),
    ),
    (
        message("hf_half", "which library does the half precision, or scales its losses"),
        (
            *("half_precision_backend", "fp16_opt_level", "fp16_backend", "bf16_full_eval"),
            *("fp16_full_eval", "use_ipex", "jit_mode_eval"),
        ),
    ),
    (
        message("hf_cache", "the Trainer switches the cache of keys and values off in training"),
        ("use_cache", "eval_on_start", "eval_delay", "eval_do_concat_batches",
         "eval_use_gather_object"),
    ),
)  # fmt: skip

NOT_CARRIED: Final = Reasons(
    (
        message("hf_eval_held", "what evaluation keeps beside the loss is not counted"),
        (
            *("eval_accumulation_steps", "prediction_loss_only", "batch_eval_metrics"),
            *("predict_with_generate", "generation_max_length", "generation_num_beams"),
            "generation_config",
        ),
    ),
    (
        message("hf_smoothing", "label smoothing makes copies of the logits that are not counted"),
        ("label_smoothing_factor",),
    ),
    (
        message("hf_checkpoints", "checkpoints are counted with their optimizer states"),
        ("save_only_model",),
    ),
    (
        message("hf_memory", "this switch of the Trainer has no job key"),
        (
            *("torch_empty_cache_steps", "auto_find_batch_size", "optim_target_modules"),
            *("sharded_ddp", "ddp_bucket_cap_mb", "torchdynamo"),
        ),
    ),
)  # fmt: skip

KNOWN: Final = (
    *("per_device_train_batch_size", "per_device_eval_batch_size", "gradient_accumulation_steps"),
    *("num_train_epochs", "max_steps", "max_grad_norm", "optim", "bf16", "fp16", "tf32"),
    *("gradient_checkpointing", "gradient_checkpointing_kwargs", "torch_compile", "deepspeed"),
    *("use_liger_kernel", "group_by_length", "eval_strategy", "eval_steps", "save_strategy"),
    *("save_steps", "save_total_limit", "fsdp", "fsdp_config", "evaluation_strategy"),
    *IRRELEVANT.names,
    *NOT_CARRIED.names,
)
