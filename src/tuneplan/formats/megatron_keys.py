"""Megatron's arguments that no job key is made of, by the reason why.

Source: Megatron-LM ``megatron/training/arguments.py`` core_v0.15.0; ms-swift 4.6.0.dev0
``swift/megatron/arguments/megatron_args.py`` at 3602360a.
"""

from __future__ import annotations

from typing import Final

from tuneplan.formats.tables import Reasons
from tuneplan.language import message

IRRELEVANT: Final = Reasons(
    (
        message("key_learns", "it changes what is learnt, not memory, time or cost"),
        (
            *("lr", "lr_*", "min_lr", "adam_*", "weight_decay*", "start_weight_decay", "seed"),
            *("end_weight_decay", "init_method_*", "sgd_momentum", "muon_*", "loss_scale*"),
            *("initial_loss_scale", "min_loss_scale", "hysteresis", "beta", "loss_type"),
            *("override_opt_param_scheduler", "use_checkpoint_opt_param_scheduler", "rpo_alpha"),
            *("moe_aux_loss_coeff", "moe_z_loss_coeff", "moe_router_*", "attention_dropout"),
            *("hidden_dropout", "xavier_uniform_*", "desirable_weight", "undesirable_weight"),
            *("calculate_per_token_loss", "vit_lr", "aligner_lr", "label_smoothing"),
        ),
    ),
    (
        message("key_logs", "it only logs, watches or publishes"),
        (
            *("log_*", "tensorboard_*", "wandb_*", "logging_*", "timing_log_*", "profile*"),
            *("no_log_*", "one_logger_*", "swanlab_*", "report_to", "exit_*", "run_name"),
            *("use_pytorch_profiler", "add_version", "output_dir", "logging_level"),
        ),
    ),
    (
        message("key_prepares", "it prepares or renders the samples before training"),
        (
            *("tokenizer_*", "vocab_*", "merge_file", "make_vocab_size_divisible_by", "split"),
            *("data_cache_path", "num_workers", "dataloader_*", "reset_*", "eod_mask_loss"),
            *("num_dataset_builder_threads", "no_create_attention_mask_in_dataloader", "template"),
            *("dataset_num_proc", "load_from_cache_file", "lazy_tokenize", "system", "columns"),
            *(
                "train_dataloader_shuffle",
                "remove_unused_columns",
                "group_by_length",
                "mmap_*",
                "no_mmap_*",
                "loss_scale",
                "streaming",
            ),
            *("packing_num_proc", "truncation_strategy", "dataset_shuffle", "strict"),
        ),
    ),
    (
        message("key_loads", "it tells how things are loaded, kept on disk or started"),
        (
            *("save", "load", "no_save_*", "no_load_*", "ckpt_*", "auto_detect_ckpt_format"),
            *("use_dist_ckpt*", "dist_ckpt_*", "async_save", "finetune", "pretrained_checkpoint"),
            *("use_cpu_initialization", "distributed_*", "local_rank", "ddp_*", "manual_gc*"),
            *("use_mcore_models", "use_legacy_models", "transformer_impl", "save_safetensors"),
            *("no_initialization", "perform_initialization", "rank", "lazy_mpu_init", "use_hf"),
            *("model_revision", "ignore_args_error", "mcore_model", "mcore_adapter", "check_model"),
            *("merge_lora", "max_shard_size", "model_type", "use_persistent_ckpt_worker"),
            *("empty_unused_memory_level", "bridge_backend", "load_args", "export_*", "y"),
        ),
    ),
    (
        message("key_shape", "the shape of the published model says it"),
        (
            *("num_layers", "hidden_size", "ffn_hidden_size", "num_attention_heads", "kv_channels"),
            *("num_query_groups", "group_query_attention", "max_position_embeddings", "swiglu"),
            *(
                "position_embedding_type",
                "rotary_*",
                "use_rotary_*",
                "normalization",
                "norm_*",
                "linear_decoupled_in_proj",
            ),
            *("disable_bias_linear", "add_qkv_bias", "qk_layernorm", "num_experts"),
            *("untie_embeddings_and_output_weights", "layernorm_*", "squared_relu", "moe_ffn_*"),
            *("multi_latent_attention", "q_lora_rank", "kv_lora_rank", "qk_head_dim", "v_head_dim"),
            *("qk_pos_emb_head_dim", "moe_shared_expert_intermediate_size", "moe_layer_freq"),
            *("use_rope_scaling", "apply_layernorm_1p", "openai_gelu", "no_position_embedding"),
            *("original_max_position_embeddings", "mtp_*", "rope_scaling", "no_rope_fusion"),
        ),
    ),
)
NOT_CARRIED: Final = Reasons(
    (
        message("key_megatron_kernels", "kernels and overlaps are the framework's own by version"),
        (
            *("overlap_*", "tp_comm_*", "no_overlap_*", "*_fusion", "no_*_fusion", "apply_*"),
            *("masked_softmax_fusion", "bias_*", "gradient_accumulation_fusion", "no_bias_*"),
            *("cross_entropy_*", "attention_softmax_in_fp32", "sequence_parallel", "no_gradient_*"),
            *("accumulate_allreduce_grads_in_fp32", "moe_grouped_gemm", "moe_permute_fusion"),
            *("no_masked_softmax_fusion", "align_*", "batch_p2p_*", "cp_comm_type", "te_rng_*"),
            *("no_async_tensor_model_parallel_allreduce", "no_rope_fusion", "enable_cuda_graph"),
        ),
    ),
    (
        message("key_stages", "how stages and layers are cut beyond their number has no job key"),
        (
            *("num_layers_per_virtual_pipeline_stage", "virtual_pipeline_model_parallel_size"),
            *("num_virtual_stages_per_pipeline_rank", "pipeline_model_parallel_layout"),
            *("decoder_*", "account_for_*", "standalone_embedding_stage", "microbatch_group_*"),
            *("expert_tensor_parallel_size", "moe_token_dispatcher_type", "moe_*"),
        ),
    ),
    (
        message("key_optimizer_precision", "types of the optimizer's own state have no job key"),
        (
            *("use_precision_aware_optimizer", "main_grads_dtype", "main_params_dtype"),
            *("exp_avg_dtype", "exp_avg_sq_dtype", "grad_reduce_in_bf16", "optimizer_offload_*"),
        ),
    ),
    (
        message("key_evaluation", "an evaluation is counted as forward passes over held-out rows"),
        ("eval_iters",),
    ),
    (
        message("key_trained_parts", "which part of a model that sees is trained has no job key"),
        ("freeze_*", "trainable_parameters*", "vit_*", "language_model_only"),
    ),
    (
        message("key_adapter_dtype", "the framework decides the type of adapters and outer layers"),
        ("lora_dtype", "lora_bias"),
    ),
    (
        message("key_generation", "generating samples while training has no formula yet"),
        ("vllm_*", "num_generations", "reward_*", "max_completion_length", "use_vllm",
         "steps_per_generation", "generation_*", "sleep_level", "offload_model"),
    ),
)  # fmt: skip
