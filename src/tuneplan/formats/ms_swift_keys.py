"""ms-swift's arguments that no job key is made of, by the reason why.

Source: ms-swift 4.6.0.dev0 ``swift/arguments/`` and ``swift/trainers/arguments.py`` at 3602360a;
2.6.1 ``swift/llm/utils/argument.py`` for the names of older releases.
"""

from __future__ import annotations

from typing import Final

from tuneplan.formats.tables import Reasons
from tuneplan.language import message

IRRELEVANT: Final = Reasons(
    (
        message("key_learns", "it changes what is learnt, not memory, time or cost"),
        (
            *("beta", "label_smoothing", "desirable_weight", "undesirable_weight", "cpo_alpha"),
            *("simpo_gamma", "rpo_alpha", "ld_alpha", "discopop_tau", "loss_type", "loss_weights"),
            *("center_rewards_coefficient", "lorap_lr_ratio", "lora_lr_ratio", "init_weights"),
            *("init_lora_weights", "lora_bias", "lora_bias_trainable", "lora_ga_*", "aligner_lr"),
            *("vit_lr", "enable_dft_loss", "enable_channel_loss", "acc_strategy", "acc_steps"),
            *("neftune_alpha", "neftune_backend", "router_aux_loss_coef", "dataset_seed"),
            *("loss_scale", "use_loss_scale", "loss_scale_config_path", "is_binary_loss_scale"),
            *("loss_name", "min_lr", "early_stop_interval", "f_divergence_type", "reference_free"),
            *("train_dataloader_shuffle", "metric_warmup_step", "init_strategy", "problem_type"),
        ),
    ),
    (
        message("key_logs", "it only logs, watches or publishes"),
        (
            *("swanlab_*", "add_version", "create_checkpoint_symlink", "eval_metric", "callbacks"),
            *("hub_private_repo", "push_hub_strategy", "add_output_dir_suffix", "logprobs"),
            *(
                "eval_use_evalscope",
                "channels",
                "eval_datasets",
                "eval_datasets_args",
                "eval_dataset",
                "eval_dataset_args",
                "eval_limit",
            ),
            *("eval_generation_config", "extra_eval_args", "disable_tqdm", "top_logprobs"),
        ),
    ),
    (
        message("key_prepares", "it prepares or renders the samples before training"),
        (
            *("template", "template_type", "system", "agent_template", "tools_prompt", "columns"),
            *("use_chat_template", "padding_side", "template_backend", "response_prefix"),
            *("enable_thinking", "preserve_thinking", "add_non_thinking_prefix", "norm_bbox"),
            *("disable_ignore_empty_think", "dataset_num_proc", "preprocess_num_proc"),
            *("load_from_cache_file", "dataset_shuffle", "val_dataset_shuffle", "streaming"),
            *("streaming_buffer_size", "shuffle_buffer_size", "lazy_tokenize", "packing_num_proc"),
            *("packing_strategy", "stopping_strategy", "interleave_prob", "download_mode"),
            *("strict", "disable_auto_column_mapping", "model_name", "model_author"),
            *("custom_dataset_info", "cached_dataset", "cached_val_dataset", "stop_words"),
            *("check_dataset_strategy", "external_plugins", "custom_register_path", "stream"),
            *("max_new_tokens", "temperature", "top_k", "top_p", "repetition_penalty", "num_beams"),
            *("do_sample", "structured_outputs_regex", "new_special_tokens", "load_data_args"),
        ),
    ),
    (
        message("key_loads", "it tells how things are loaded, kept on disk or started"),
        (
            *("model_revision", "use_hf", "check_model", "check_model_is_latest", "load_args"),
            *("local_repo_path", "ddp_backend", "ignore_args_error", "enable_npu_model_patch"),
            *("resume_only_model", "safe_serialization", "max_shard_size", "use_flash_ckpt"),
            *("model_kwargs", "rope_scaling", "max_model_len", "use_ray", "ray_exp_name"),
            *("device_groups", "ds3_gather_for_generation", "adapters", "model_cache_dir"),
            *(
                "test_oom_error",
                "use_swift_lora",
                "ref_model_revision",
                "ref_adapters",
                "num_labels",
            ),
            *("ref_model_type", "ref_adapter_name", "model_layer_cls_name", "save_on_each_node"),
            *("bnb_4bit_compute_dtype", "bnb_4bit_comp_dtype", "experts_impl", "ckpt_dir"),
            *("train_backend", "push_to_hub", "save_safetensors", "mcore_model", "optimizer"),
        ),
    ),
)
NOT_CARRIED: Final = Reasons(
    (
        message("key_data", "a job counts samples and tokens of files, not this treatment of them"),
        (
            *("truncation_strategy", "train_dataset_sample", "val_dataset_sample", "val_dataset"),
            *("self_cognition_sample", "train_dataset_mix_ratio", "train_dataset_mix_ds"),
            *("streaming_val_size", "max_epochs", "seq_kd", "custom_val_dataset_path"),
        ),
    ),
    (
        message("key_trained_parts", "which part of a model that sees is trained has no job key"),
        ("freeze_vit", "freeze_aligner", "freeze_llm", "vit_gradient_checkpointing", "vit_use_gc"),
    ),
    (
        message("key_pixels", "how large images are cut has no job key"),
        ("max_pixels", "rescale_image"),
    ),
    (
        message("key_adapter_dtype", "the framework decides the type of adapters and outer layers"),
        ("lora_dtype", "bnb_4bit_quant_storage"),
    ),
    (
        message("key_adapter_parts", "all adapters of a job have one rank, in every layer"),
        (
            *("lora_layers_to_transform", "lora_layers_pattern"),
            *("lora_rank_pattern", "lora_alpha_pattern", "lora_loftq_config"),
            *("additional_trainable_parameters", "trainable_parameters"),
            *("trainable_parameters_regex", "freeze_parameters", "freeze_parameters_regex"),
        ),
    ),
    (
        message("key_placement", "where one process puts the layers is not part of a launched job"),
        (
            *("device_map", "device_map_config", "device_map_config_path", "max_memory"),
            *("device_max_memory", "gpu_memory_fraction", "fsdp_num"),
        ),
    ),
    (
        message("key_unsloth_under", "Unsloth's kernels under ms-swift are not counted"),
        ("tuner_backend",),
    ),
    (
        message("key_logits", "whether logits of masked tokens are made is the framework's rule"),
        ("use_logits_to_keep",),
    ),
    (
        message("key_reference_model", "a reference model is counted where the objective has one"),
        ("ref_model", "ref_model_id_or_path", "precompute_ref_log_probs"),
    ),
    (
        message("key_generation", "generating samples while training has no formula yet"),
        (
            *("vllm_*", "use_vllm", "num_generations", "reward_*", "max_completion_length"),
            *("generation_batch_size", "steps_per_generation", "num_iterations", "sleep_level"),
            *(
                "async_generate",
                "log_rollout_*",
                "advantage_reweight",
                "off_policy_*",
                "offload_model",
                "offload_optimizer",
                "multi_turn_scheduler",
                "multi_turn_func",
                "gc_collect_after_offload",
            ),
            *("num_ppo_epochs", "whiten_rewards", "kl_coef", "cliprange*", "vf_coef", "gamma"),
            *("lam", "num_mini_batches", "local_rollout_forward_batch_size", "log_completions"),
            *("num_sample_generations", "response_length", "missing_eos_penalty", "epsilon*"),
            *("dynamic_sample", "max_resample_times", "overlong_filter", "soft_*", "cosine_*"),
            *("scale_rewards", "importance_sampling_level", "advantage_estimator", "kl_in_reward"),
            *("move_model_batches", "repetition_*", "log_entropy", "top_entropy_quantile", "lmbda"),
            *("sync_ref_model", "ref_model_*", "completion_length_limit_scope", "max_turns"),
            *("tau_pos", "tau_neg", "delta", "gkd_logits_topk", "offload_teacher_model"),
            *(
                "sft_alpha",
                "rollout_*",
                "fipo_*",
                "real_tau",
                "rlsd_*",
                "sdar_*",
                "chord_*",
                "use_gym_env",
                "gym_env",
                "steps_before_*",
            ),
        ),
    ),
    (
        message("key_galore", "it belongs to an optimizer without a formula"),
        ("galore_*",),
    ),
    (
        message("key_other_tuner", "it belongs to a way of training without a formula"),
        (
            *("adalora_*", "fourier_*", "boft_*", "vera_*", "adapter_act", "adapter_length"),
            *("llamapro_*", "reft_*", "ia3_*", "lisa_step_interval", "hqq_*", "mrl_dims"),
        ),
    ),
)
