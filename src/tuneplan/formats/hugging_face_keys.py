"""Keys of TRL and of scripts on the Trainer that no job key is made of, by the reason why.

Sources: trl 1.10.0.dev0 ``trainer/*_config.py``, ``scripts/utils.py`` at f2cd5771 and their forms
of 0.9 to 0.19; alignment-handbook ``src/alignment/configs.py`` at 925acdfe.
"""

from __future__ import annotations

from typing import Final

from tuneplan.formats.tables import Reasons
from tuneplan.language import message

IRRELEVANT: Final = Reasons(
    (
        message("trl_learning", "what is learnt, not what it takes"),
        (
            *("max_new_tokens", "do_sample", "do_mmlu_eval", "mmlu_*", "actor_*", "critic_*"),
            *("beta", "loss_weights", "ld_alpha", "f_divergence_type", "f_alpha_divergence_coef"),
            *("label_smoothing", "use_weighting", "discopop_tau", "rpo_alpha", "reference_free"),
            *("desirable_weight", "undesirable_weight", "cpo_alpha", "simpo_gamma", "alpha"),
            *("max_density_ratio", "min_density_ratio", "router_aux_loss_coef", "loss_type"),
            *("center_rewards_coefficient", "disable_dropout", "shuffle_dataset", "dropout"),
            *("train_on_inputs", "completion_only_loss", "assistant_only_loss", "lr", "gamma"),
            *("ref_model_mixup_alpha", "ref_model_sync_steps", "temperature", "epsilon*"),
            *("train_on_source", "add_eos_token", "prompt_template_name", "weight_decay_rate"),
        ),
    ),
    (
        message("trl_texts", "how samples become text"),
        (
            *("chat_template", "chat_template_path", "chat_template_kwargs", "eos_token"),
            *("pad_token", "padding_value", "label_pad_token_id", "truncation_mode", "tools"),
            *("auto_insert_empty_system_msg", "dataset_kwargs", "chat_template_format"),
            *("model_code_revision", "tokenizer_name_or_path", "tokenizer_name", "special_tokens"),
            *(
                "version",
                "image_folder",
                "image_token_len",
                "padding_side",
                "add_special_tokens",
                "append_concat_token",
                "system_prompt",
            ),
            *("config_name", "use_fast_tokenizer", "keep_linebreaks", "template_name"),
        ),
    ),
    (
        message("trl_preparing", "how samples are prepared and read, on the host"),
        (
            *("dataset_num_proc", "dataset_batch_size", "num_proc", "chars_per_token", "mlm*"),
            *("num_of_sequences", "preprocessing_only", "lazy_preprocess", "cache_path"),
            *("conversation_template", "is_encoder_decoder", "model_adapter_name"),
            *("ref_adapter_name", "force_use_ref_model", "generate_during_eval", "data_config"),
        ),
    ),
    (
        message("trl_loading", "where weights come from, how they are loaded"),
        (
            *("model_revision", "base_model_revision", "low_cpu_mem_usage", "model_type"),
            *("ignore_mismatched_sizes", "config_overrides", "use_slow_tokenizer", "revision"),
            *("use_cache", "ignore_bias_buffers", "ref_model_init_kwargs"),
            *(
                "group_by_modality_length",
                "device_map",
                "max_memory_MB",
                "max_memory",
                "base_model_attribute_name",
            ),
        ),
    ),
)

NOT_CARRIED: Final = Reasons(
    (
        message("trl_prompt_cut", "the cut of prompts or answers alone has no job key"),
        ("max_prompt_length", "max_completion_length", "max_target_length"),
    ),
    (
        message("trl_reference", "how the reference model is held has no job key"),
        (
            *("precompute_ref_log_probs", "precompute_ref_batch_size", "sync_ref_model"),
            *("ref_model", "ref_model_name_or_path", "sft_model_path", "reward_model_path"),
        ),
    ),
    (
        message("trl_rounding", "rounding lengths up has no job key"),
        ("pad_to_multiple_of", "pad_to_max_length", "group_texts"),
    ),
    (
        message("trl_generation", "generating samples while training has no formula yet"),
        (
            *("num_generations", "num_generations_eval", "generation_batch_size", "use_vllm"),
            *("vllm_*", "steps_per_generation", "num_iterations", "generation_kwargs", "rollout_*"),
            *("response_length", "num_mini_batches", "total_episodes", "num_ppo_epochs"),
            *("scale_rewards", "reward_weights", "mask_truncated_completions", "top_p", "top_k"),
            *("min_p", "repetition_penalty", "delta", "reward_funcs", "log_completions"),
        ),
    ),
    (
        message("trl_other", "this switch has no job key"),
        (
            *(
                "use_reentrant",
                "eval_dataset_size",
                "eval_packing",
                "use_logits_to_keep",
                "use_num_logits_to_keep",
                "embedding_*",
            ),
            *("cast_lm_head_to_fp32", "activation_offloading", "use_unsloth", "llm_int8_*"),
            *("tune_mm_mlp_adapter", "freeze_backbone", "vision_tower", "mm_*", "rope_scaling"),
        ),
    ),
)

KNOWN: Final = (
    *("model_name_or_path", "torch_dtype", "dtype", "attn_implementation", "use_peft", "lora_r"),
    *("lora_alpha", "lora_dropout", "lora_target_modules", "lora_modules_to_save", "use_dora"),
    *("use_rslora", "load_in_4bit", "load_in_8bit", "bnb_4bit_quant_type", "max_length"),
    *("use_bnb_nested_quant", "max_seq_length", "packing", "packing_strategy", "padding_free"),
    *("dataset_name", "dataset_mixer", "dataset_mixture", "trust_remote_code", "loss_type"),
    *IRRELEVANT.names,
    *NOT_CARRIED.names,
)
