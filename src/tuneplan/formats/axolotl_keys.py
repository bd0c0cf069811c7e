"""Axolotl's keys that no job key is made of, by the reason why.

Source: axolotl 0.18.0 ``utils/schemas/*.py`` and ``integrations/*/args.py`` at 067b021c8; keys of
older releases from ``docs/config.rst`` 0.4.0 to 0.8.0. A name ending in ``*`` stands for all keys
that start so.
"""

from __future__ import annotations

from typing import Final

from tuneplan.formats.tables import Reasons
from tuneplan.language import message

UNTIL_REFUSED: Final = message(
    "key_of_refused_objective", "it belongs to an objective that has no formula yet"
)

IRRELEVANT: Final = Reasons(
    (
        message("key_learns", "it changes what is learnt, not memory, time or cost"),
        (
            *("learning_rate", "lr_scheduler", "lr_scheduler_kwargs", "lr_quadratic_warmup"),
            *("lr_div_factor", "log_sweep_min_lr", "log_sweep_max_lr", "eta_min", "lr_groups"),
            *("cosine_min_lr_ratio", "cosine_constant_lr_ratio", "warmup_steps", "warmup_ratio"),
            *("weight_decay", "adam_beta1", "adam_beta2", "adam_beta3", "adam_epsilon"),
            *("adam_epsilon2", "adam_eps", "optim_args", "dion_lr", "dion_momentum"),
            *("embedding_lr", "embedding_lr_scale", "loraplus_lr_ratio", "loraplus_lr_embedding"),
            *("seed", "train_on_inputs", "neftune_noise_alpha", "noisy_embedding_alpha"),
            *("lora_alpha_pattern", "lora_fan_in_fan_out", "peft_init_lora_weights"),
            *("early_stopping_patience", "loss_watchdog_threshold", "loss_watchdog_patience"),
            *("shuffle_merged_datasets", "shuffle_before_merging_datasets", "curriculum_sampling"),
            *("rl_beta", "dpo_beta", "orpo_alpha", "cpo_alpha", "simpo_gamma", "rpo_alpha"),
            *("kto_desirable_weight", "kto_undesirable_weight", "dpo_label_smoothing"),
            *("dpo_loss_type", "dpo_loss_weights", "dpo_norm_loss", "dpo_use_weighting"),
            *("center_rewards_coefficient", "use_eaft", "eaft_alpha", "eaft_k"),
            *("jagged_restart_*", "relora_prune_ratio", "relora_prune_method", "relora_steps"),
            *("relora_warmup_steps", "relora_anneal_steps", "gptq_lora_r", "gptq_lora_alpha"),
            *("scaling_softmax", "scaling_softmax_factor", "scaling_softmax_bias"),
            *("reinit_weights", "grokfast_alpha", "grokfast_lamb", "greater_is_better"),
            *("metric_for_best_model", "mean_resizing_embeddings", "fix_untrained_tokens"),
            *("liger_use_token_scaling", "kd_*"),
        ),
    ),
    (
        message("key_logs", "it only logs, watches or publishes"),
        (
            *("wandb*", "use_wandb", "mlflow*", "use_mlflow", "hf_mlflow_log_artifacts"),
            *("comet_*", "use_comet", "trackio_*", "use_trackio", "swanlab_*", "use_swanlab"),
            *("otel_*", "use_otel_metrics", "use_tensorboard", "gradio_*", "logging_steps"),
            *("include_tokens_per_second", "include_tkps", "debug", "strict", "profiler_steps"),
            *("profiler_steps_start", "ray_run_name", "hub_model_id", "hub_strategy"),
            *("hub_revision", "push_dataset_to_hub", "hf_use_auth_token", "output_dir"),
            *("axolotl_config_path", "lm_eval_*", "bench_dataset", "bench_split"),
        ),
    ),
    (
        message("key_prepares", "it prepares or renders the samples before training"),
        (
            *("dataset_prepared_path", "skip_prepare_dataset", "dataset_processes"),
            *("dataset_num_proc", "dataset_keep_in_memory", "dataset_shard_num"),
            *("dataset_shard_idx", "num_dataset_shards_to_save", "is_preprocess"),
            *("preprocess_iterable", "chat_template", "chat_template_jinja"),
            *("chat_template_kwargs", "default_system_message", "eot_tokens"),
            *("special_tokens", "added_tokens_overrides", "tokenizer_type"),
            *("tokenizer_use_fast", "tokenizer_legacy", "tokenizer_use_mistral_common"),
            *("tokenizer_save_jinja_files", "processor_type", "processor_kwargs"),
            *("sample_packing_group_size", "sample_packing_bin_size", "role_boundaries"),
            *("sample_packing_sequentially", "sample_packing_mp_start_method"),
            *("sample_packing_eff_est", "total_num_tokens", "total_supervised_tokens"),
            *("pretrain_multipack_buffer_size", "streaming_multipack_buffer_size"),
            *("multipack_real_batches", "image_resize_algorithm", "remove_unused_columns"),
            *("streaming", "field_messages", "pose_split_on_token_ids"),
        ),
    ),
    (
        message("key_loads", "it tells how things are loaded, kept on disk or started"),
        (
            *("model_type", "tokenizer_config", "cls_model_config", "revision_of_model"),
            *("model_revision", "type_of_model", "base_model_ignore_patterns"),
            *("is_falcon_derived_model", "is_llama_derived_model", "is_mistral_derived_model"),
            *("is_qwen_derived_model", "resume_from_checkpoint", "auto_resume_from_checkpoints"),
            *("lora_model_dir", "save_safetensors", "low_cpu_mem_usage", "lora_on_cpu"),
            *("experimental_skip_move_to_device", "qlora_sharded_model_loading"),
            *("merge_lora", "merge_method", "local_rank", "world_size", "device", "ddp"),
            *("ddp_timeout", "ddp_broadcast_buffers", "ddp_find_unused_parameters"),
            *("dataloader_pin_memory", "dataloader_num_workers", "dataloader_prefetch_factor"),
            *("dataloader_drop_last", "accelerator_config", "resources_per_worker"),
            *("torchdistx_path", "gptq_groupsize", "gptq_model_v1", "gptq_disable_exllama"),
            *("dynamic_checkpoint", "load_best_model_at_end", "num_labels", "use_kernels"),
            *("fsdp_final_state_dict_type", "generate_samples", "num_generation_samples"),
            *("generation_*", "eval_table_size", "eval_max_new_tokens", "heads_k_stride"),
            *("ring_attn_func", "tokenizer_revision", "nvfp4_merge_aware*", "flash_optimum"),
            *("torch_compile_mode", "torch_compile_backend", "torch_compile_options"),
            *("flex_attn_compile_kwargs", "expert_parallel_backend", "expert_parallel_num_*"),
            *("expert_parallel_fallback_on_unsupported", "chunked_cross_entropy_num_chunks"),
            *("tiled_mlp_num_shards", "tiled_mlp_use_original_mlp", "auto_find_batch_size"),
        ),
    ),
)

NOT_CARRIED: Final = Reasons(
    (
        message("key_data", "a job counts samples and tokens of files, not this treatment of them"),
        (
            *("excess_length_strategy", "min_sample_len", "max_prompt_len", "eval_sequence_len"),
            *("dataset_exact_deduplication", "use_pose", "pose_max_context_len"),
            *("pose_num_chunks", "pad_to_multiple_of", "pretrain_multipack_attn"),
            *("pretraining_sample_concatenation", "test_datasets", "image_size", "debug_samples"),
        ),
    ),
    (
        message("key_evaluation", "an evaluation is counted as forward passes over held-out rows"),
        (
            *("eval_sample_packing", "do_causal_lm_eval", "eval_causal_lm_metrics"),
            *("do_bench_eval", "dpo_generate_during_eval"),
        ),
    ),
    (
        message("key_checkpoint_files", "a checkpoint is counted with the optimizer's states"),
        ("save_only_model", "save_first_step"),
    ),
    (
        message("key_experts", "how routed experts are run or held has no job key"),
        (
            *("use_scattermoe", "use_sonicmoe", "experts_implementation", "expert_backend"),
            *("moe_*", "llama4_linearized_experts", "dense_mixer"),
            *("nonexpert_quantization", "use_dsv4_kernels", "use_glm_dsa_kernels", "dsv4_*"),
            *("gemma4_fp8_nonexpert", "gemma4_nf4_nonexpert", "expert_parallel_token_capacity"),
        ),
    ),
    (
        message("key_some_kernels", "a job has no key for this kernel alone"),
        (
            *("liger_cross_entropy", "flash_attn_cross_entropy", "flash_attn_rms_norm"),
            *("flash_attn_fuse_mlp", "fused_attn_kernel"),
            *("gemma4_hybrid_attn_impl", "large_head_attention", "flash_attn_d512"),
            *("sdpa_varlen", "lora_embedding_kernel", "liger_rms_norm_gated", "s2_attention"),
            *("dpo_use_liger_kernel", "dpo_padding_free", "dpo_use_logits_to_keep"),
            *("flash_attention_v2", "xpos_rope", "landmark_attention", "flash_attn_fuse_qkv"),
            *("unsloth_*", "shifted_sparse_attention", "noisy_dropout", "sdp_attn_*"),
        ),
    ),
    (
        message("key_tiles", "computing the MLP in tiles has no formula: it takes less memory"),
        ("tiled_mlp",),
    ),
    (
        message("key_adapter_parts", "all adapters of a job have one rank, in every layer"),
        (
            *("lora_rank_pattern", "peft_layers_to_transform", "peft_layers_pattern"),
            *("peft_layer_replication", "peft_trainable_token_indices", "peft", "loftq_config"),
            *("peft_ensure_weight_tying", "optim_target_modules", "dion_rank_*", "qgalore_*"),
        ),
    ),
    (
        message("key_adapter_dtype", "the framework decides the type of adapters and outer layers"),
        (
            *("peft_autocast_adapter_dtype", "embeddings_skip_upcast", "fp32_norms"),
            *("fp32_norm_classes", "float32", "relora_cpu_offload"),
        ),
    ),
    (
        message("key_vocabulary", "the vocabulary is that of the published model"),
        ("resize_token_embeddings_to_32x", "shrink_embeddings", "tokens"),
    ),
    (
        message("key_model_overrides", "the model is taken as it is published"),
        ("model_config", "overrides_of_model_config", "model_kwargs", "overrides_of_model_kwargs"),
    ),
    (
        message("key_placement", "where one process puts the layers is not part of a launched job"),
        ("device_map", "max_memory", "gpu_memory_limit"),
    ),
    (
        message("key_reference_model", "a reference model is counted where the objective has one"),
        ("precompute_ref_log_probs",),
    ),
    (
        message("key_allocator", "emptying the allocator's cache at fixed steps has no job key"),
        ("gc_steps", "torch_empty_cache_steps", "gc_collect_steps"),
    ),
    (
        message("key_quantised_training", "simulated quantisation and pruning are not counted"),
        ("qat", "quantization", "llmcompressor", "use_onebitllms", "ddp_bucket_cap_mb"),
    ),
    (
        message("key_custom_code", "code of its own is not read"),
        ("trainer_cls", "diffusion", "nemo_gym_*", "deepcompile", "loss_fn"),
    ),
    (
        message("key_generation", "generating samples while training has no formula yet"),
        ("trl", "vllm", "ebft"),
    ),
    (message("key_relora", "restarts that merge the adapters are not counted"), ("relora",)),
)
