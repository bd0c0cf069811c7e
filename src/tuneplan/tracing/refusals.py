"""What is not traced, told before a process is started: refused by name, never approximated."""

from __future__ import annotations

from collections.abc import Iterator

from tuneplan.errors import InvalidRequest, Mistake
from tuneplan.estimation.target_mistakes import mistakes_of_targets
from tuneplan.language import message
from tuneplan.spec.parallelism import Offload, Strategy
from tuneplan.spec.recipe import TrainingRecipe
from tuneplan.tracing.images import FAMILIES, traced_with_images
from tuneplan.tracing.wire import TraceRequest

# One rank is traced: PyTorch's own sharding over a group of fake ranks, or a whole copy, to which
# a formula adds DDP's buckets.
RANKS: tuple[Strategy, ...] = (Strategy.SINGLE, Strategy.DDP, Strategy.FSDP, Strategy.FSDP2)


def check_traceable(request: TraceRequest) -> None:
    """Refuse what the trace does not know.

    Raises:
        InvalidRequest: With all of it.
    """
    mistakes = [
        *_model(request),
        *_layout(request),
        *_recipe(request.recipe),
        *_adapter(request),
        *_images(request),
    ]
    if mistakes:
        raise InvalidRequest(mistakes)


def _model(request: TraceRequest) -> Iterator[Mistake]:
    config = request.architecture.hf_config
    if "auto_map" in config:
        yield Mistake(
            message=message(
                "trace_remote_code",
                "the configuration of {kind} asks for code from the model's own repository, which "
                "is never run",
                kind=request.architecture.model_type,
            ),
            path="model",
            how_to_fix=message(
                "trace_without_auto_map",
                "name a model whose code is part of transformers, or take auto_map out of "
                "config.json where transformers has code of its own for it",
            ),
        )
    elif not config:
        yield Mistake(
            message=message(
                "trace_without_config",
                "{name} has no configuration that transformers could build it from",
                name=request.architecture.name,
            ),
            path="model",
        )


def _layout(request: TraceRequest) -> Iterator[Mistake]:
    layout = request.parallelism
    if layout.strategy not in RANKS:
        yield _refused("parallelism.strategy", str(layout.strategy))
    for name in ("tensor", "pipeline", "context", "expert"):
        if getattr(layout, name) > 1 and layout.strategy is not Strategy.DEVICE_MAP:
            yield _refused(f"parallelism.{name}", f"{name} parallelism")
    if layout.offload is not Offload.NONE:
        yield _refused("parallelism.offload", str(layout.offload))


def _recipe(recipe: TrainingRecipe) -> Iterator[Mistake]:
    if recipe.kernels.model_code == "megatron":
        yield _refused("framework", recipe.framework)
    if recipe.kernels.compiled:
        yield _refused("training.torch_compile", "torch.compile")


def _adapter(request: TraceRequest) -> Iterator[Mistake]:
    """Modules on which PEFT's adapters fail, which no operator's failure has to tell."""
    adapter = request.recipe.adapter
    if adapter is not None:
        yield from mistakes_of_targets(request.architecture, adapter.target_modules)
        if adapter.use_dora and request.recipe.method.quantized:
            yield _refused("adapter.use_dora", "DoRA over a quantised base")


def _images(request: TraceRequest) -> Iterator[Mistake]:
    """Images for a model that sees none, or whose processor is not known."""
    if not request.images:
        return
    model = request.architecture
    kind = str(model.hf_config.get("model_type") or model.model_type)
    if model.vision is None:
        yield Mistake(
            message=message("trace_sees_none", "{name} sees no images", name=model.name),
            path="image",
            how_to_fix=message("trace_text_alone", "leave --image out"),
        )
    elif not traced_with_images(kind) or request.recipe.kernels.model_code == "litgpt":
        yield Mistake(
            message=message(
                "trace_images", "batches of {kind} with images are not traced", kind=kind
            ),
            path="image",
            how_to_fix=message(
                "trace_images_of",
                "leave --image out; images are traced for {families}",
                families=", ".join(FAMILIES),
            ),
        )


def _refused(path: str, what: str) -> Mistake:
    return Mistake(
        message=message("not_traced", "{what} is not traced yet", what=what),
        path=path,
        value=what,
        how_to_fix=message(
            "estimate_instead",
            "`tuneplan estimate` answers by formula; or change {path}",
            path=path,
        ),
    )
