"""One rank of a sharded job: PyTorch's own FSDP over a process group that sends nothing.

The group has as many ranks as the job and answers every collective at once, so that what a rank
holds, gathers and reduces is made by the real code. Around it is what accelerate does: layers are
units of their own, adapters' leaves too (FSDP1), and trained shards turn into ``float32`` where
mixed precision is on.
"""

from __future__ import annotations

import functools
from typing import Any, Final

import torch
from torch.distributed.tensor import DTensor

from tuneplan.errors import NotSupported
from tuneplan.language import message
from tuneplan.spec.architecture import ModelArchitecture
from tuneplan.spec.parallelism import Offload, Parallelism, Strategy
from tuneplan.spec.recipe import TrainingRecipe
from tuneplan.tracing.adapters import torch_dtype
from tuneplan.tracing.device import DEVICE, fake_device, give_addresses
from tuneplan.tracing.gptq import GptqLinear
from tuneplan.tracing.kbit import QuantizedLinear
from tuneplan.tracing.litgpt_code import is_litgpt, shard_litgpt
from tuneplan.tracing.recorder import Recorder

SHARDED: Final = frozenset({Strategy.FSDP, Strategy.FSDP2})


def join_group(parallelism: Parallelism) -> Any:
    """Rank 0 of a group of fake ranks; its mesh. Once a process, outside of every mode.

    Raises:
        NotSupported: For what shards in another way.
    """
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from torch.testing._internal.distributed.fake_pg import FakeStore

    odd = max(parallelism.tensor, parallelism.pipeline, parallelism.context, parallelism.expert)
    if parallelism.offload is not Offload.NONE or odd > 1:
        raise NotSupported(
            message(
                "trace_layout",
                "the trace shards over data ranks alone, without offload: {strategy} with offload "
                "{offload} and a degree of {degree} in another direction is not traced",
                strategy=str(parallelism.strategy),
                offload=str(parallelism.offload),
                degree=odd,
            )
        )
    if dist.is_initialized():
        dist.destroy_process_group()
    capable = dist.Backend.backend_capability.setdefault("fake", [])
    if DEVICE not in capable:
        capable.append(DEVICE)
    dist.Backend.default_device_backend_map[DEVICE] = "fake"
    ranks = parallelism.world_size
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=ranks)
    _patch_fsdp()
    return init_device_mesh(DEVICE, (ranks,))


def _patch_fsdp() -> None:
    """Addresses tell storages apart.

    Blocks used on another stream are held back until it is done: that is not modelled.
    """
    import torch.distributed.fsdp._flat_param as flat
    import torch.distributed.fsdp._runtime_utils as runtime
    import torch.distributed.utils as utils

    give_addresses()
    for module in (flat, runtime, utils):
        if hasattr(module, "_no_dispatch_record_stream"):
            module._no_dispatch_record_stream = lambda tensor, stream: None  # noqa: ARG005, SLF001


def shard(
    model: torch.nn.Module,
    architecture: ModelArchitecture,
    recipe: TrainingRecipe,
    parallelism: Parallelism,
    mesh: Any,
    recorder: Recorder,
) -> torch.nn.Module:
    """The model on one rank, its weights moved to the device unit by unit.

    Up to here the model is on the host: its tensors are not watched.
    """
    _patch_moves(recorder)
    _keep_constants(model, recipe, recorder)
    names = {group.layer.class_name for group in architecture.groups}
    if is_litgpt(model):
        sharded = shard_litgpt(model, recipe, fake_device())
    elif parallelism.strategy is Strategy.FSDP2:
        sharded = _fully_shard(model, names, recipe, mesh, recorder)
    else:
        sharded = _fully_sharded(model, names, recipe, recorder)
    for name, parameter in sharded.named_parameters():
        kind = "trained_weight" if parameter.requires_grad else "frozen_weight"
        recorder.name(getattr(parameter, "_local_tensor", parameter), kind, name)
    return sharded


def _keep_constants(model: torch.nn.Module, recipe: TrainingRecipe, recorder: Recorder) -> None:
    """What stands beside packed weights is no parameter, so each rank holds all of it.

    Packed integers of GPTQ and their zero points are made parameters, seen as half values
    (fms-acceleration ``accelerated-peft autogptq_utils.py PATCH_FOR_FSDP_TRITON_V2``).
    """
    half = torch_dtype(recipe.frozen_dtype)
    for name, module in model.named_modules():
        if not isinstance(module, QuantizedLinear):
            continue
        if isinstance(module, GptqLinear):
            for part in ("weight", "zeros"):
                seen = getattr(module, part).data.view(half)
                delattr(module, part)
                setattr(module, part, torch.nn.Parameter(seen, requires_grad=False))
        for constant in module.constants():
            if not isinstance(constant, torch.nn.Parameter):
                recorder.track(constant, "_to_copy")
                recorder.name(constant, "quantization_constant", name)


def _patch_moves(recorder: Recorder) -> None:
    """A tensor that moves from the host to the device is watched from then on."""
    import torch.distributed.fsdp._fully_shard._fsdp_init as init2
    import torch.distributed.fsdp._fully_shard._fully_shard as fully
    import torch.distributed.fsdp._init_utils as init1

    def move(params: Any, buffers: Any, device: Any) -> None:
        del device
        for tensor in (*params, *buffers):
            if not isinstance(tensor, DTensor):
                recorder.track(tensor, "_to_copy")

    def move_module(module: Any, ignored_params: Any, ignored_buffers: Any, device: Any) -> None:
        ignored = {id(one) for one in (*ignored_params, *ignored_buffers)}
        tensors = [
            one for one in (*module.parameters(), *module.buffers()) if id(one) not in ignored
        ]
        move(tensors, (), device)

    for module in (init1, init2, fully):
        for name, patch in (
            ("_move_states_to_device", move),
            ("_move_module_to_device", move_module),
        ):
            if hasattr(module, name):
                setattr(module, name, patch)


def _mixed(recipe: TrainingRecipe) -> Any:
    """The dtype that units are gathered in, where it is not their own."""
    compute = getattr(torch, str(recipe.compute_dtype))
    return compute if recipe.upcast_under_fsdp or recipe.autocast else None


def _fully_sharded(
    model: Any, names: set[str], recipe: TrainingRecipe, recorder: Recorder
) -> torch.nn.Module:
    """FSDP1 as accelerate sets it up (``accelerator.py prepare_model``, 0.26 to 1.15)."""
    from torch.distributed.fsdp import FullyShardedDataParallel, MixedPrecision
    from torch.distributed.fsdp.wrap import (
        _or_policy,
        lambda_auto_wrap_policy,
        transformer_auto_wrap_policy,
    )

    classes = {type(one) for one in model.modules() if type(one).__name__ in names}
    policy = functools.partial(transformer_auto_wrap_policy, transformer_layer_cls=classes)
    if recipe.method.uses_adapter:  # peft ``utils/other.py fsdp_auto_wrap_policy``
        leaves = functools.partial(lambda_auto_wrap_policy, lambda_fn=_is_trained_leaf)
        policy = functools.partial(_or_policy, policies=[leaves, policy])
    whole: list[torch.nn.Module] = []
    if recipe.adapter is not None and not recipe.adapter.sharded:
        whole = [one for one in model.modules() if _is_trained_leaf(one)]
        for leaf in whole:
            for parameter in leaf.parameters():
                recorder.track(parameter, "_to_copy")
    dtype = _mixed(recipe)
    wrapped = FullyShardedDataParallel(
        model,
        auto_wrap_policy=policy,
        ignored_modules=whole,
        device_id=fake_device(),
        use_orig_params=True,
        backward_prefetch=None,
        mixed_precision=dtype
        and MixedPrecision(param_dtype=dtype, reduce_dtype=dtype, buffer_dtype=dtype),
    )
    if recipe.upcast_under_fsdp:
        _upcast(wrapped)
    return wrapped


def _is_trained_leaf(module: torch.nn.Module) -> bool:
    weight = getattr(module, "weight", None)
    return not any(module.children()) and weight is not None and bool(weight.requires_grad)


def _upcast(wrapped: Any) -> None:
    """Trained shards in ``float32`` (accelerate ``accelerator.py prepare_model``)."""
    from torch.distributed.fsdp import FullyShardedDataParallel

    for module in FullyShardedDataParallel.fsdp_modules(wrapped):
        handle = module._handle  # noqa: SLF001
        if handle is None or not handle.flat_param.requires_grad:
            continue
        parameter = handle.flat_param
        if parameter.dtype is not torch.float32:
            parameter.data = parameter.data.to(torch.float32)
            handle._orig_param_dtype = torch.float32  # noqa: SLF001
            handle._use_sharded_views()  # noqa: SLF001


def _fully_shard(
    model: torch.nn.Module, names: set[str], recipe: TrainingRecipe, mesh: Any, recorder: Recorder
) -> torch.nn.Module:
    """FSDP2 as accelerate sets it up (``utils/fsdp_utils.py fsdp2_prepare_model``)."""
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    _silence_propagation(recorder)
    dtype = _mixed(recipe)
    settings: dict[str, Any] = {"mesh": mesh}
    if dtype is not None:
        settings["mp_policy"] = MixedPrecisionPolicy(param_dtype=dtype, reduce_dtype=dtype)
    if recipe.upcast_under_fsdp:
        with recorder.unwatched():  # still on the host
            for parameter in model.parameters():
                if parameter.requires_grad:
                    parameter.data = parameter.data.to(torch.float32)
    for module in model.modules():
        if type(module).__name__ in names:
            fully_shard(module, **settings)
    fully_shard(model, **settings)
    return model


def _silence_propagation(recorder: Recorder) -> None:
    """Shapes of sharded tensors are worked out with whole ones, which no rank holds."""
    from torch.distributed.tensor._sharding_prop import ShardingPropagator

    real = ShardingPropagator._propagate_tensor_meta_non_cached  # noqa: SLF001
    real = getattr(real, "unwatched", real)

    def propagate(self: Any, *args: Any, **kwargs: Any) -> Any:
        with recorder.unwatched():
            return real(self, *args, **kwargs)

    propagate.unwatched = real  # type: ignore[attr-defined]
    ShardingPropagator._propagate_tensor_meta_non_cached = propagate  # noqa: SLF001
