"""torchtune's keys that no job key is made of, by the reason why.

Source: torchtune 0.7.0 ``recipes/*.py`` and ``recipes/dev/*.py`` at bd2a0fc7.
"""

from __future__ import annotations

from typing import Final

from tuneplan.formats.tables import Reasons
from tuneplan.language import message

IRRELEVANT: Final = Reasons(
    (
        message("key_learns", "it changes what is learnt, not memory, time or cost"),
        (
            *("lr_scheduler", "seed", "shuffle", "optimizer.lr", "optimizer.weight_decay"),
            *("optimizer.betas", "optimizer.eps", "optimizer.amsgrad", "cudnn_deterministic_mode"),
            *("loss.beta", "loss.label_smoothing", "loss.ignore_index", "loss.gamma", "loss.tau"),
            *(
                "cfg.seed",
                "dataset.train_on_input",
                "dataset.new_system_prompt",
                "model.lora_alpha",
            ),
            *("dataset_val.train_on_input", "early_exit_loss", "loss.reduction"),
        ),
    ),
    (
        message("key_logs", "it only logs, watches or publishes"),
        (
            *("metric_logger", "log_every_n_steps", "log_peak_memory_stats", "log_level"),
            *("profiler", "profile_memory", "output_dir", "name", "debug_logging_enabled"),
            *("debug_num_samples_per_step",),
        ),
    ),
    (
        message("key_prepares", "it prepares or renders the samples before training"),
        (
            *("tokenizer", "collate_fn", "dataset.column_map", "dataset.add_eos"),
            *("dataset.conversation_column", "dataset.conversation_style", "dataset.filter_fn"),
            *("dataset.column", "dataset.chosen_role", "dataset_val", "dataloader"),
            *("dataset.prompt_template", "dataset.split_across_pack", "chat_template"),
            *("dataset.trust_remote_code", "dataset.field"),
        ),
    ),
    (
        message("key_loads", "it tells how things are loaded, kept on disk or started"),
        (
            *("checkpointer", "resume_from_checkpoint", "device", "low_cpu_ram", "include_path"),
            *("ref_checkpointer", "save_last_epoch_only", "enable_async_checkpointing"),
            *("use_distributed_state_dict", "base_model_path", "resize_token_embeddings"),
            *("process_group_backend", "model.image_size", "enable_expandable_segments"),
            *("tensor_parallel_plan", "quantizer.groupsize"),
        ),
    ),
)
NOT_CARRIED: Final = Reasons(
    (
        message("key_checkpoint_files", "a checkpoint is counted with the optimizer's states"),
        ("save_adapter_weights_only",),
    ),
    (
        message("key_wrapping", "how FSDP wraps parts of the model is not counted one by one"),
        (
            *("custom_sharded_layers", "memory_efficient_fsdp_wrap", "fsdp_reshard_after_forward"),
            *("fsdp",),
        ),
    ),
    (
        message("key_quantised_training", "simulated quantisation and pruning are not counted"),
        ("quantizer", "fake_quant_after_n_steps", "layer_dropout", "fp8_recipe_name"),
    ),
    (
        message("key_trained_parts", "which part of a model that sees is trained has no job key"),
        ("model.decoder_trainable", "model.encoder_trainable", "model.fusion_trainable"),
    ),
    (
        message("key_model_overrides", "the model is taken as it is published"),
        ("model", "policy_model"),
    ),
    (message("key_flex", "the kernel follows from packing"), ("use_flex",)),
    (message("key_dataset_options", "a job counts samples and tokens, not this"), ("dataset",)),
    (message("key_optimizer_options", "an option of the optimizer without a job key"),
     ("optimizer", "loss")),
)  # fmt: skip
OF_REINFORCEMENT: Final = (
    *("temperature", "top_k", "max_generated_tokens", "forward_batch_size", "ppo_batch_size"),
    *("ppo_epochs", "grpo_samples", "kl_coeff", "gamma", "lmbda", "whiten_rewards", "num_steps"),
    *("min_response_length", "penalise_no_eos", "reward_penalty", "stop_token_ids", "loss"),
    *("reward_and_value_model", "ref_policy_checkpointer", "reward_checkpointer"),
    *("value_checkpointer", "enable_kv_cache", "reward_functions", "inference", "orchestration"),
    *("postprocessing", "training", "save_every_n_steps", "policy_model", "dataset", "datasets"),
)
OF_DISTILLATION: Final = ("teacher_model", "teacher_checkpointer", "kd_loss", "kd_ratio")
