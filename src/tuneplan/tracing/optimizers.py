"""Optimizers: PyTorch's and transformers' own code; stand-ins for kernels that need a GPU.

A stand-in holds the states that the library holds and updates weights in place, as the library's
one kernel a tensor does: nothing else is allocated.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

import torch

from tuneplan.errors import NotSupported
from tuneplan.language import message
from tuneplan.spec.recipe import Optimizer, OptimizerFamily, OptimizerImplementation
from tuneplan.tracing.low_rank import LowRankAdamW
from tuneplan.tracing.recording import Recording

Named = list[tuple[str, torch.nn.Parameter]]

_LEARNING_RATE: Final = 1e-4
_BITSANDBYTES: Final = "bitsandbytes 0.50.2 optim/optimizer.py init_state, get_state_buffer"
_TORCHAO: Final = "torchao 0.11 optim/adam.py, optim/subclass_8bit.py"
_MASTERS: Final = "DeepSpeed 0.18 runtime/fp16/fused_optimizer.py step"
_BLOCK: Final = 256  # elements that share a scale
_SMALLEST_8BIT: Final = 4096  # bitsandbytes min_8bit_size
_PAGED_FROM: Final = 100_000  # bitsandbytes optim/optimizer.py get_state_buffer
_ONE_MOMENT: Final = (OptimizerFamily.LION, OptimizerFamily.LION_8BIT)
_EIGHT_BIT: Final = (OptimizerFamily.ADAMW_8BIT, OptimizerFamily.LION_8BIT)
_ON_HOST: Final = "deepspeed_cpu_adam"


def make_optimizer(
    trained: Named, optimizer: Optimizer, recording: Recording
) -> torch.optim.Optimizer:
    """The optimizer of what is trained.

    Args:
        trained: Parameters with their names in the model.
        optimizer: As the recipe says that it runs.
        recording: Told which stand-ins run.

    Raises:
        NotSupported: for one that is not traced.
    """
    if optimizer.name == _ON_HOST:
        raise _refusal(optimizer)
    if optimizer.name.startswith(("galore_adamw", "apollo_adamw")) and "8bit" not in optimizer.name:
        return _low_rank(trained, optimizer, recording)
    if optimizer.master_weights:
        recording.stand_ins["fp32 master weights"] = _MASTERS
        return MasterWeights(trained, optimizer, recording)
    return _make(trained, optimizer, recording)


def _refusal(optimizer: Optimizer) -> NotSupported:
    return NotSupported(
        message("trace_optimizer", "the optimizer {name} is not traced", name=optimizer.name)
    )


def _make(trained: Named, optimizer: Optimizer, recording: Recording) -> torch.optim.Optimizer:
    family = optimizer.family
    parameters = [parameter for _, parameter in trained]
    if family in _EIGHT_BIT or family is OptimizerFamily.LION or _in_one_kernel(optimizer):
        return _blockwise(parameters, optimizer, recording)
    how = _implementation(optimizer)
    if family is OptimizerFamily.ADAMW:
        return torch.optim.AdamW(parameters, lr=_LEARNING_RATE, **how)
    if family in (OptimizerFamily.SGD, OptimizerFamily.SGD_MOMENTUM):
        momentum = 0.9 if family is OptimizerFamily.SGD_MOMENTUM else 0.0
        return torch.optim.SGD(parameters, lr=_LEARNING_RATE, momentum=momentum, **how)
    if family is OptimizerFamily.ADAFACTOR:
        from transformers.optimization import Adafactor

        made: torch.optim.Optimizer = Adafactor(
            parameters, lr=_LEARNING_RATE, scale_parameter=False, relative_step=False
        )
        return made
    if family is OptimizerFamily.MUON:
        return _muon(trained)
    raise _refusal(optimizer)


def _implementation(optimizer: Optimizer) -> dict[str, Any]:
    """PyTorch's arguments; a loop says no to both, since PyTorch would choose foreach."""
    return {
        "foreach": optimizer.implementation is OptimizerImplementation.FOREACH,
        "fused": optimizer.implementation is OptimizerImplementation.FUSED,
    }


def _in_one_kernel(optimizer: Optimizer) -> bool:
    """AdamW of other libraries: states fp32 whatever the weights are, one kernel a tensor."""
    return optimizer.family is OptimizerFamily.ADAMW and (
        optimizer.paged or optimizer.name == "adamw_apex_fused"
    )


def _blockwise(
    parameters: list[torch.nn.Parameter], optimizer: Optimizer, recording: Recording
) -> torch.optim.Optimizer:
    torchao = optimizer.name == "adamw_torch_8bit"
    source = _TORCHAO if torchao else _BITSANDBYTES
    if optimizer.name == "adamw_apex_fused":
        source = "apex optimizers/fused_adam.py: fp32 states"
    recording.stand_ins[f"optimizer {optimizer.name}"] = source
    return BlockwiseOptimizer(
        parameters,
        moments=1 if optimizer.family in _ONE_MOMENT else 2,
        eight_bit=optimizer.family in _EIGHT_BIT,
        paged=optimizer.paged,
        own_maps=torchao,
        recording=recording,
    )


def _muon(trained: Named) -> torch.optim.Optimizer:
    """Muon for matrices between embedding and head, AdamW for the rest.

    Source: ``torch/optim/_muon.py`` (2.9 and later, matrices alone); the split is that of
    LLaMA-Factory 0.9 ``train/trainer_utils.py _create_muon_optimizer``.
    """
    matrices: list[torch.nn.Parameter] = []
    rest: list[torch.nn.Parameter] = []
    for name, parameter in trained:
        outer = "embed" in name or "lm_head" in name
        (rest if outer or parameter.dim() != 2 else matrices).append(parameter)
    parts: list[torch.optim.Optimizer] = []
    if matrices:
        parts.append(torch.optim.Muon(matrices, lr=_LEARNING_RATE))
    if rest:
        parts.append(torch.optim.AdamW(rest, lr=_LEARNING_RATE, foreach=False))
    return Several(parts)


def _low_rank(trained: Named, optimizer: Optimizer, recording: Recording) -> torch.optim.Optimizer:
    apollo = optimizer.name.startswith("apollo")
    source = "apollo-torch 1.0.3 apollo.py" if apollo else "galore-torch 1.0 adamw.py"
    recording.stand_ins[f"optimizer {optimizer.name}"] = f"{source}; rank 128 on all linears"
    return LowRankAdamW(trained, apollo=apollo, learning_rate=_LEARNING_RATE)


class Several(torch.optim.Optimizer):
    """Several optimizers that step one after the other."""

    def __init__(self, parts: list[torch.optim.Optimizer]) -> None:
        self.parts = parts
        super().__init__([p for part in parts for g in part.param_groups for p in g["params"]], {})

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Each steps."""
        del closure
        for part in self.parts:
            part.step()


class MasterWeights(torch.optim.Optimizer):
    """An optimizer of fp32 copies: gradients are cast, the copies updated, weights written."""

    def __init__(self, trained: Named, optimizer: Optimizer, recording: Recording) -> None:
        self.weights = [parameter for _, parameter in trained]
        with torch.no_grad():
            copies = [
                (name, torch.nn.Parameter(weight.detach().float().clone()))
                for name, weight in trained
            ]
        self.masters = [copy for _, copy in copies]
        self.parts = [_make(copies, optimizer, recording)]
        super().__init__(self.weights, {})

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Gradients cast to fp32, laid flat and dropped; the copies updated; weights written."""
        del closure
        with torch.no_grad():
            flat = torch.cat([_gradient(weight).float().flatten() for weight in self.weights])
            parts = flat.split([weight.numel() for weight in self.weights])
            for weight, master, part in zip(self.weights, self.masters, parts, strict=True):
                weight.grad = None
                master.grad = part.view(master.shape)
            del flat, parts
            self.parts[0].step()
            for weight, master in zip(self.weights, self.masters, strict=True):
                master.grad = None
                weight.copy_(master)


def _gradient(weight: torch.Tensor) -> torch.Tensor:
    return torch.zeros_like(weight) if weight.grad is None else weight.grad


class BlockwiseOptimizer(torch.optim.Optimizer):
    """bitsandbytes' states: fp32, or a byte an element and an fp32 scale for 256 of them.

    Tensors under 4,096 elements keep fp32; paged states of 100,000 elements or more are unified
    memory, which the allocator does not know (they are put on the host here).
    """

    def __init__(
        self,
        parameters: list[torch.nn.Parameter],
        *,
        moments: int,
        eight_bit: bool,
        paged: bool,
        own_maps: bool,
        recording: Recording,
    ) -> None:
        super().__init__(parameters, {})
        self.moments, self.eight_bit, self.paged = moments, eight_bit, paged
        self.own_maps, self.recording = own_maps, recording
        self.maps: list[torch.Tensor] = []

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Make states on the first step, then update in place."""
        del closure
        with torch.no_grad():
            for parameter in self.param_groups[0]["params"]:
                if parameter.grad is None:
                    continue
                state = self.state[parameter]
                if not state:
                    self._fill(state, parameter)
                parameter.data = parameter.data.contiguous()
                parameter.grad = parameter.grad.contiguous()

    def _fill(self, state: dict[str, Any], parameter: torch.nn.Parameter) -> None:
        eight_bit = self.eight_bit and parameter.numel() >= _SMALLEST_8BIT
        device: Any = parameter.device
        if self.paged and parameter.numel() >= _PAGED_FROM:
            notes = self.recording.notes
            notes["paged_states"] = notes.get("paged_states", 0) + self.moments
            device = "cpu"
        dtype = torch.uint8 if eight_bit else torch.float32
        if eight_bit and not self.maps:
            self.maps = self._new_maps(parameter)
        for number in range(self.moments):
            state[f"state{number + 1}"] = torch.zeros_like(parameter, dtype=dtype, device=device)
            if eight_bit:
                blocks = -(-parameter.numel() // _BLOCK)
                scales = torch.zeros(blocks, dtype=torch.float32, device=parameter.device)
                state[f"absmax{number + 1}"] = scales
        if eight_bit and self.own_maps:
            state.update(
                {f"map{n}": one for n, one in enumerate(self._new_maps(parameter), start=1)}
            )

    def _new_maps(self, parameter: torch.nn.Parameter) -> list[torch.Tensor]:
        return [torch.empty(_BLOCK, device=parameter.device) for _ in range(self.moments)]


def states_of(optimizer: torch.optim.Optimizer) -> Iterator[tuple[str, str, torch.Tensor]]:
    """``(kind, name, tensor)`` of everything that an optimizer keeps."""
    for part in getattr(optimizer, "parts", ()):
        yield from states_of(part)
    for master in getattr(optimizer, "masters", ()):
        yield "master_weight", "master_weight", master
    for state in optimizer.state.values():
        yield from _tensors(state.items())
    yield from _tensors(("map", one) for one in getattr(optimizer, "maps", ()))


def _tensors(named: Iterable[tuple[str, Any]]) -> Iterator[tuple[str, str, torch.Tensor]]:
    for name, value in named:
        if isinstance(value, torch.Tensor):
            yield "optimizer_state", name, value
