"""Keys of a DeepSpeed configuration that no job key is made of, by the reason why.

Source: DeepSpeed 0.19.6 ``runtime/constants.py`` and ``runtime/zero/config.py`` at edaa7221.
"""

from __future__ import annotations

from typing import Final

from tuneplan.formats.tables import Reasons
from tuneplan.language import message

# What stands under ``stage3_`` names and, since their models accept field names, without as well.
ZERO: Final = (
    *("max_live_parameters", "param_persistence_threshold", "max_reuse_distance"),
    *("prefetch_bucket_size", "gather_16bit_weights_on_model_save", "module_granularity_threshold"),
    *("model_persistence_threshold", "use_all_reduce_for_fetch_params"),
    *("gather_fp16_weights_on_model_save",),
)
_Z: Final = "zero_optimization."

IRRELEVANT: Final = Reasons(
    (
        message("ds_learning", "what is learnt, not what it takes"),
        (
            *("scheduler.type", "scheduler.params", "optimizer.params", "optimizer.legacy_fusion"),
            *("curriculum_learning", "data_efficiency", "progressive_layer_drop", "eigenvalue"),
        ),
    ),
    (
        message("ds_scaling", "how fp16 losses are scaled"),
        (
            *("fp16.auto_cast", "fp16.loss_scale", "fp16.loss_scale_window", "fp16.hysteresis"),
            *("fp16.initial_scale_power", "fp16.min_loss_scale", "fp16.consecutive_hysteresis"),
            *("bf16.loss_scale", "bf16.initial_scale_power", "bf16.check_grad_overflow"),
        ),
    ),
    (
        message("ds_reports", "what is printed, logged or profiled"),
        (
            *("steps_per_print", "wall_clock_breakdown", "dump_state", "memory_breakdown"),
            *("monitor_config", "tensorboard", "wandb", "csv_monitor", "comet", "comms_logger"),
            *("comms_config", "flops_profiler", "nebula", "disable_allgather", "timers"),
            *("logging", "_comment", "comment", "//"),
        ),
    ),
    (
        message("ds_checks", "a check, or the way files are written and read"),
        (
            *("zero_allow_untested_optimizer", "zero_force_ds_cpu_optimizer", "checkpoint", "aio"),
            *("graph_harvesting", "use_data_before_expert_parallel_", "dataloader_drop_last"),
            *("load_universal_checkpoint", "use_node_local_storage", "compression_training"),
            *("_autotuning_enabled", "data_sampling", "vocabulary_size", "seq_parallel_comm"),
        ),
    ),
    (
        message("ds_layout", "how gradients and weights are laid out and sent, not how many"),
        (
            *(f"{_Z}contiguous_gradients", f"{_Z}reduce_scatter", f"{_Z}allgather_partitions"),
            *(f"{_Z}round_robin_gradients", f"{_Z}ignore_unused_parameters"),
            *(
                f"{_Z}elastic_checkpoint",
                f"{_Z}load_from_fp32_weights",
                f"{_Z}log_trace_cache_warnings",
            ),
            *(f"{_Z}use_multi_rank_bucket_allreduce", f"{_Z}legacy_stage1", f"{_Z}leaf_module"),
            *(f"{_Z}override_module_apply", f"{_Z}memory_efficient_linear"),
            *(f"{_Z}cpu_offload_use_pin_memory", f"{_Z}save_muon_momentum_buffer_in_memory"),
            *("prescale_gradients", "gradient_predivide_factor", "sparse_gradients"),
            *("disable_allgather", "communication_data_type_for_zero"),
        ),
    ),
    (
        message("ds_not_used", "Hugging Face's models checkpoint by themselves, not by DeepSpeed"),
        ("activation_checkpointing",),
    ),
)

NOT_CARRIED: Final = Reasons(
    (
        message("ds_other_buffers", "this buffer of ZeRO is not modelled one by one"),
        (
            *(f"{_Z}stage3_prefetch_bucket_size", f"{_Z}prefetch_bucket_size"),
            *(f"{_Z}stage3_max_reuse_distance", f"{_Z}max_reuse_distance", f"{_Z}sub_group_size"),
            *(f"{_Z}stage3_model_persistence_threshold", f"{_Z}model_persistence_threshold"),
            *(f"{_Z}stage3_module_granularity_threshold", f"{_Z}allgather_sequential"),
            *(f"{_Z}module_granularity_threshold", f"{_Z}stage3_use_all_reduce_for_fetch_params"),
            f"{_Z}use_all_reduce_for_fetch_params",
        ),
    ),
    (
        message("ds_gathers_to_save", "gathering the weights for a checkpoint is not counted"),
        (
            *(f"{_Z}stage3_gather_16bit_weights_on_model_save",),
            *(f"{_Z}stage3_gather_fp16_weights_on_model_save",),
            *(f"{_Z}gather_16bit_weights_on_model_save", f"{_Z}gather_fp16_weights_on_model_save"),
        ),
    ),
    (
        message("ds_plus_plus", "ZeRO++ and other compressed communication have no formula yet"),
        (
            *(f"{_Z}zero_hpz_partition_size", f"{_Z}zero_quantized_weights"),
            *(f"{_Z}zero_quantized_gradients", f"{_Z}zero_quantized_nontrainable_weights"),
            *(f"{_Z}mics_shard_size", f"{_Z}mics_hierarchical_params_gather"),
            *("communication_data_type", "data_types", "seq_parallel_communication_data_type"),
            *("torch_autocast", "amp", "zenflow", f"{_Z}zenflow"),
            f"{_Z}pipeline_loading_checkpoint",
        ),
    ),
    (
        message("ds_masters", "how the engine holds masters and gradients has no job key"),
        (
            *("bf16.immediate_grad_update", "bf16.bf16_master_weights_and_grads"),
            *("bf16.bf16_optimizer_states", "fp16.fp16_master_weights_and_grads"),
            *("fp16.fp16_optimizer_states",),
        ),
    ),
    (
        message("ds_compile", "DeepSpeed compiles only where the program asks its engine to"),
        ("compile",),
    ),
    (
        message("ds_other", "this part of DeepSpeed has no formula yet"),
        (
            *("pipeline", "moe", "elasticity", "autotuning", "sparse_attention", "hybrid_engine"),
            *("sequence_parallel", "tensor_parallel", "domino", "random_ltd", "quantize_training"),
        ),
    ),
)  # fmt: skip

KNOWN: Final = (
    *("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps"),
    *("gradient_clipping", "zero_optimization", "optimizer", "scheduler", "fp16", "bf16"),
    *(f"{_Z}stage", f"{_Z}offload_optimizer", f"{_Z}offload_param", f"{_Z}overlap_comm"),
    *(f"{_Z}reduce_bucket_size", f"{_Z}allgather_bucket_size"),
    *(f"{_Z}stage3_max_live_parameters", f"{_Z}stage3_param_persistence_threshold"),
    *IRRELEVANT.names,
    *NOT_CARRIED.names,
)
