"""LLaMA-Factory's own keys that no job key is made of, by the reason why.

Source: LLaMA-Factory ``hparams/*_args.py`` at ff6d4d12.
"""

from __future__ import annotations

from typing import Final

from tuneplan.formats.tables import Reasons
from tuneplan.language import message

_KT: Final = message("lf_kt", "experts on the processor (KTransformers) have no formula yet")

# Keys that ask for something without a formula, where they are on.
REFUSED: Final = (
    ("use_galore", message("lf_galore", "GaLore has no formula yet")),
    ("use_apollo", message("lf_apollo", "APOLLO has no formula yet")),
    ("use_badam", message("lf_badam", "BAdam has no formula yet")),
    ("use_adam_mini", message("lf_adam_mini", "Adam-mini has no formula yet")),
    ("use_kt", _KT),
    ("use_hyper_parallel", message("lf_hyper", "HyperParallel has no formula yet")),
    ("use_llama_pro", message("lf_llama_pro", "blocks added to the model have no formula yet")),
    ("mixture_of_depths", message("lf_mod", "mixture of depths has no formula yet")),
    (
        "use_asft_loss",
        message("lf_asft", "a loss with a second, frozen model beside it has no formula yet"),
    ),
)

IRRELEVANT: Final = Reasons(
    (
        message("lf_learning", "what is learnt, not what it takes"),
        (
            *("pref_beta", "pref_ftx", "pref_bco_weight", "dpo_label_smoothing", "ld_alpha"),
            *("kto_chosen_weight", "kto_rejected_weight", "simpo_gamma", "kto_ftx", "dpo_*"),
            *("train_on_prompt", "mask_history", "mix_strategy", "interleave_probs", "ppo_*"),
            *("disable_shuffling", "early_stopping_steps", "moe_aux_loss_coef", "asft_alpha"),
            *("eaft_alpha", "ref_model_adapters", "reward_model_adapters", "reward_model_type"),
            *("orpo_beta", "ignore_pad_token_for_loss", "neft_alpha", "noise_alpha"),
        ),
    ),
    (
        message("lf_template", "how samples become text"),
        (
            *("template", "tool_format", "default_system", "enable_thinking", "preserve_thinking"),
            *("split_special_tokens", "use_fast_tokenizer", "efficient_eos", "reserved_label_len"),
            *("add_special_tokens", "init_special_tokens", "new_special_tokens_config"),
        ),
    ),
    (
        message("lf_preparing", "how samples are prepared and read, on the host"),
        (
            *("streaming", "buffer_size", "overwrite_cache", "preprocessing_batch_size"),
            *("preprocessing_num_workers", "data_shared_file_system", "sampling_rate"),
            *("eval_on_each_dataset", "eval_num_beams", "cache_path"),
        ),
    ),
    (
        message("lf_loading", "where weights come from, how they are loaded and saved"),
        (
            *("model_revision", "cache_dir", "low_cpu_mem_usage", "hf_hub_token", "ms_hub_token"),
            *("om_hub_token", "print_param_status", "train_from_scratch", "device_map"),
            *("offload_folder", "export_*", "infer_dtype", "infer_backend", "use_kv_cache"),
            *("vllm_*", "sglang_*", "quantization_device_map", "rope_scaling", "use_cache"),
            *("model_max_length", "checkpoint_dir", "resume_lora_training"),
        ),
    ),
    (
        message("lf_generating", "only for generation"),
        (
            *("do_sample", "temperature", "top_p", "top_k", "num_beams", "max_length"),
            *("max_new_tokens", "repetition_penalty", "length_penalty", "skip_special_tokens"),
        ),
    ),
    (
        message("lf_reports", "what is logged, plotted or profiled"),
        (
            *("plot_loss", "use_swanlab", "swanlab_*", "include_effective_tokens_per_second"),
            *("enable_torch_profiler", "profiler_*", "profile_modules", "trackio_*"),
        ),
    ),
    (
        message("lf_starting", "how processes are started"),
        ("ray_init_kwargs", "master_addr", "master_port", "ray_*", "resources_per_worker",
         "placement_strategy"),
    ),
    (
        message("lf_of_refused", "it belongs to something that is refused by name, or is off"),
        (
            *("galore_*", "apollo_*", "badam_*", "kt_*", "use_galore", "use_apollo", "use_badam"),
            *("use_adam_mini", "use_kt", "use_mca", "use_megatron_bridge", "megatron_bridge_args"),
            *("use_hyper_parallel", "hyper_parallel_*", "tensor_model_parallel_size", "use_muon"),
            *("pipeline_model_parallel_size", "expert_model_parallel_size"),
            "recompute_granularity",
            *("use_distributed_optimizer", "overlap_grad_reduce", "overlap_param_gather"),
            *("moe_grouped_gemm", "moe_token_dispatcher_type", "sequence_parallel"),
            *("bias_activation_fusion", "apply_rope_fusion", "use_packed_sequences"),
            *("context_parallel_size", "mixed_precision", "export_hf_on_finish", "use_llama_pro"),
            *("mixture_of_depths", "use_asft_loss", "virtual_pipeline_model_parallel_size"),
        ),
    ),
)  # fmt: skip

NOT_CARRIED: Final = Reasons(
    (
        message("lf_vision", "tokens of images and sounds: count them in data.mean_tokens"),
        (
            *("image_max_pixels", "image_min_pixels", "image_do_pan_and_scan", "crop_to_patches"),
            *("video_max_pixels", "video_min_pixels", "video_fps", "video_maxlen"),
            *("use_audio_in_video", "audio_sampling_rate"),
        ),
    ),
    (
        message("lf_vision_parts", "which parts of a vision model are trained has no job key"),
        ("freeze_vision_tower", "freeze_multi_modal_projector", "freeze_language_model",
         "train_mm_proj_only"),
    ),
    (
        message("lf_casts", "an extra cast of norms or logits has no job key"),
        ("upcast_layernorm", "upcast_lmhead_output", "lora_bf16_mode", "layernorm_dtype"),
    ),
    (
        message("lf_losses", "a loss over whole logits; the framework's usual one is counted"),
        ("use_dft_loss", "use_eaft_loss", "compute_accuracy"),
    ),
    (
        message("lf_models", "the further models of this stage have no job key"),
        ("ref_model", "ref_model_quantization_bit", "reward_model",
         "reward_model_quantization_bit"),
    ),
    (
        message("lf_vocabulary", "a longer vocabulary has no job key"),
        ("resize_vocab", "add_tokens"),
    ),
    (
        message("lf_attention", "this change of attention has no job key"),
        ("shift_attn",),
    ),
    (
        message("lf_kernels", "which kernels it picks by itself is not known here"),
        ("use_v1_kernels",),
    ),
)  # fmt: skip

KNOWN: Final = (
    *("model_name_or_path", "stage", "finetuning_type", "lora_rank", "lora_alpha", "lora_target"),
    *("lora_dropout", "additional_target", "quantization_bit", "quantization_method"),
    *("double_quantization", "quantization_type", "cutoff_len", "packing", "neat_packing"),
    *("val_size", "dataset", "dataset_dir", "max_samples", "flash_attn", "use_unsloth_gc"),
    *("disable_gradient_checkpointing", "use_reentrant_gc", "enable_liger_kernel", "pure_bf16"),
    *("freeze_trainable_layers", "freeze_trainable_modules", "pref_loss", "trust_remote_code"),
    *IRRELEVANT.names,
    *NOT_CARRIED.names,
)
