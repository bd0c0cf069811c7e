"""LitGPT's own model and training step, where the package is installed beside PyTorch.

Layers, adapters, loss and configurations are those of the installed ``litgpt``; what Lightning
Fabric does around them is written here after its sources, since Fabric itself asks for a card.
Other models than LitGPT knows, and environments without the package, are traced with
transformers' model in its place.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import importlib.util
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final

import torch

from tuneplan.spec.architecture import ModelArchitecture
from tuneplan.spec.blocks import Attention
from tuneplan.spec.recipe import Checkpointing, Method, TrainingRecipe
from tuneplan.tracing.adapters import torch_dtype
from tuneplan.tracing.preferences import is_preference
from tuneplan.tracing.recording import Recording

LITGPT: Final = "litgpt"
CHUNK_TOKENS: Final = 128  # finetune/lora.py and full.py: lm_head_chunk_size
_OUTPUTS: Final = frozenset(("o_proj", "dense", "c_proj", "out_proj"))
_SOURCE: Final = "lightning fabric/plugins/precision/half.py, bitsandbytes.py, wrappers.py"


@cache
def version() -> str | None:
    """The installed version of LitGPT; its import takes seconds, and happens outside fake mode."""
    if importlib.util.find_spec(LITGPT) is None:
        return None
    try:
        import litgpt.lora  # noqa: F401 - imported ahead
    except ImportError:  # one of its own libraries is missing
        return None
    return importlib.metadata.version(LITGPT)


def build_litgpt(
    architecture: ModelArchitecture, recipe: TrainingRecipe, *, sharded: bool = False
) -> Any:
    """LitGPT's model of a recipe for LitGPT, on the host; None where it has none.

    Its scripts checkpoint where FSDP shards, and only there.
    """
    if recipe.kernels.model_code != LITGPT or version() is None:
        return None
    if recipe.method not in (Method.FULL, Method.LORA, Method.QLORA):
        return None
    usual = Checkpointing.FULL if sharded else Checkpointing.NONE
    if recipe.gradient_checkpointing is not usual or is_preference(recipe):
        return None
    fields = _config_of(architecture)
    if fields is None:
        return None
    full = recipe.method is Method.FULL
    from litgpt import lora, model

    with _default_dtype(recipe):
        if full:
            return model.GPT(model.Config(**fields))
        return lora.GPT(lora.Config(**fields, **_adapted(architecture, recipe)))


def is_litgpt(model: torch.nn.Module) -> bool:
    """Whether a model is LitGPT's, sharded or whole."""
    return type(_inside(model)).__module__.split(".")[0] == LITGPT


def _inside(model: Any) -> Any:
    """The model in FSDP's wrapper."""
    return getattr(model, "_fsdp_wrapped_module", model)


def shard_litgpt(model: Any, recipe: TrainingRecipe, device: torch.device) -> torch.nn.Module:
    """FSDP1 as Fabric sets it up for the scripts: Blocks are units, checkpointed inside.

    Source: litgpt ``finetune/lora.py setup`` (``auto_wrap_policy={Block}``,
    ``activation_checkpointing_policy={Block}``), Fabric ``strategies/fsdp.py setup_module``,
    ``plugins/precision/fsdp.py mixed_precision_config``.
    """
    from torch.distributed.algorithms._checkpoint import checkpoint_wrapper as wrapping
    from torch.distributed.fsdp import FullyShardedDataParallel, MixedPrecision
    from torch.distributed.fsdp.wrap import ModuleWrapPolicy

    block = type(model.transformer.h[0])
    dtype = torch_dtype(recipe.compute_dtype)
    sharded = FullyShardedDataParallel(
        model,
        auto_wrap_policy=ModuleWrapPolicy({block}),
        device_id=device,
        use_orig_params=True,
        mixed_precision=MixedPrecision(param_dtype=dtype, reduce_dtype=dtype, buffer_dtype=dtype),
    )
    wrapping.apply_activation_checkpointing(
        sharded,
        checkpoint_wrapper_fn=wrapping.checkpoint_wrapper,
        check_fn=lambda module: isinstance(module, block),
    )
    return sharded


def note_litgpt(model: torch.nn.Module, recipe: TrainingRecipe, recording: Recording) -> bool:
    """Say whose code is traced; whether it is LitGPT's."""
    if is_litgpt(model):
        recording.stand_ins["Lightning Fabric"] = f"{_SOURCE}, around litgpt {version()}"
        return True
    if recipe.kernels.model_code == LITGPT:
        why = f"{version()} is not traced with such a model, method or number of cards"
        why = "is not installed" if version() is None else why
        recording.stand_ins["model code"] = f"transformers' in place of litgpt's: litgpt {why}"
    return False


def prepare_litgpt(model: torch.nn.Module, recipe: TrainingRecipe) -> None:
    """What the scripts do once the model is on the device: a dtype for all, adapters trained.

    Source: Fabric ``half.py convert_module`` (a quantised model keeps its buffers in fp32).
    """
    if recipe.quantization is None and not recipe.autocast:
        model.to(dtype=torch_dtype(recipe.compute_dtype))
    if recipe.method is Method.FULL:
        return
    from litgpt.lora import mark_only_lora_as_trainable

    mark_only_lora_as_trainable(model)
    if recipe.quantization is not None and "StableEmbedding" in _script(recipe):
        _stable_embedding(model)


def set_length(model: Any, length: int) -> None:
    """``finetune/lora.py fit``: tables of rotary positions as long as the longest sample."""
    _inside(model).max_seq_length = length


def run_litgpt(model: Any, tokens: torch.Tensor, recipe: TrainingRecipe) -> dict[str, Any]:
    """Logits as Fabric's wrapper returns them: in the default dtype; whole in an evaluation.

    Source: Fabric ``wrappers.py _FabricModule.forward``, ``half.py convert_output``.
    """
    chunked = model.training and "lm_head_chunk_size=" in _script(recipe)
    given = {"lm_head_chunk_size": CHUNK_TOKENS} if chunked else {}
    with _default_dtype(recipe):
        logits = model(tokens, **given)
    wide = torch.get_default_dtype()
    if isinstance(logits, list):
        return {"logits": [part.to(wide) for part in logits]}
    return {"logits": logits.to(wide)}


def loss_of_litgpt(model: Any, outputs: Mapping[str, Any], labels: torch.Tensor) -> torch.Tensor:
    """``finetune/lora.py fit``: the last chunk loses its last token in the list that is kept.

    An evaluation has its loss in one piece (``validate``).
    """
    from litgpt import utils

    # Of April 2024: ``max(1, number of tokens)``, which reads the number on the host.
    utils.max = lambda _least, number: number
    logits = outputs["logits"]
    if isinstance(logits, list):
        logits[-1] = logits[-1][..., :-1, :]
    else:
        logits = logits[..., :-1, :]
    whole = {} if model.training else {"chunk_size": 0}
    loss = utils.chunked_cross_entropy(logits, labels[..., 1:], **whole)
    assert isinstance(loss, torch.Tensor)  # noqa: S101 - what LitGPT returns
    return loss


@contextlib.contextmanager
def _default_dtype(recipe: TrainingRecipe) -> Iterator[None]:
    """Fabric's ``forward_context`` and ``module_init_context`` without autocast."""
    usual = torch.get_default_dtype()
    if not recipe.autocast:
        torch.set_default_dtype(torch_dtype(recipe.compute_dtype))
    try:
        yield
    finally:
        torch.set_default_dtype(usual)


@cache
def _script_text(name: str) -> str:
    import litgpt

    return (Path(litgpt.__file__).parent / "finetune" / name).read_text()


def _script(recipe: TrainingRecipe) -> str:
    return _script_text("full.py" if recipe.method is Method.FULL else "lora.py")


def _config_of(architecture: ModelArchitecture) -> dict[str, Any] | None:
    """LitGPT's configuration of a model: that of its name, else one with the same sizes."""
    from litgpt.config import configs

    attention = architecture.groups[0].layer.mixer
    if not isinstance(attention, Attention):
        return None
    fitting = [fields for fields in configs if _same_sizes(fields, architecture, attention)]
    named = [one for one in fitting if _name(one) == architecture.hf_id]
    return dict((named or fitting)[0]) if fitting else None


def _name(fields: Mapping[str, Any]) -> str:
    published = fields.get("hf_config") or {}
    return f"{published.get('org')}/{published.get('name')}"


def _same_sizes(
    fields: Mapping[str, Any], architecture: ModelArchitecture, attention: Attention
) -> bool:
    from litgpt.config import Config

    config = Config(**fields)
    inner = architecture.hf_config.get("intermediate_size", 4 * config.n_embd)
    return (
        architecture.vocab_size in (config.vocab_size, config.padded_vocab_size)
        and config.n_layer == architecture.num_layers
        and config.n_embd == architecture.hidden_size
        and config.n_head == attention.num_attention_heads
        and config.n_query_groups == attention.num_key_value_heads
        and config.head_size == attention.head_dim
        and config.intermediate_size == inner
        and config.n_expert == int(architecture.hf_config.get("num_local_experts", 0))
    )


def _adapted(architecture: ModelArchitecture, recipe: TrainingRecipe) -> dict[str, Any]:
    """The adapter in LitGPT's words, from the leaf names of the published model."""
    adapter, layer = recipe.adapter, architecture.groups[0].layer
    assert adapter is not None  # noqa: S101 - the method has one
    targets = set(adapter.target_modules)
    mixer = [weight.leaf for weight in layer.mixer.weights] if layer.mixer else []
    mlp = [weight.leaf for weight in layer.feed_forward.weights] if layer.feed_forward else []
    return {
        "lora_r": adapter.r,
        "lora_alpha": int(adapter.lora_alpha),
        "lora_dropout": adapter.lora_dropout,
        **{f"lora_{part}": part in adapter.query_key_value for part in ("query", "key", "value")},
        "lora_projection": not targets.isdisjoint(_OUTPUTS.intersection(mixer)),
        "lora_mlp": not targets.isdisjoint(mlp),
        "lora_head": architecture.head_weight.leaf in targets,
    }


def _stable_embedding(model: Any) -> None:
    """Bnb's embedding with a norm, whose gradients stay: no optimizer knows its weights.

    Source: litgpt 0.5 ``finetune/lora.py main``, bitsandbytes ``nn/modules.py StableEmbedding``.
    """
    old = model.transformer.wte
    new = _StableEmbedding(old)
    for parameter in new.parameters():
        parameter.outside_optimizer = True  # type: ignore[attr-defined]
    model.transformer.wte = new


class _StableEmbedding(torch.nn.Module):
    """In place of the model's embedding, whose weight ``main`` and the optimizer still name."""

    def __init__(self, old: torch.nn.Embedding) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.empty_like(old.weight))
        width, weight = old.embedding_dim, old.weight
        self.replaced = (weight,)
        self.norm = torch.nn.LayerNorm(width, device=weight.device, dtype=weight.dtype)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        rows = torch.nn.functional.embedding(tokens, self.weight).to(torch.get_default_dtype())
        out: torch.Tensor = self.norm(rows).to(self.weight.dtype)
        return out
