"""A counted memory as terms that add up to the peak, each with formula, inputs and source."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from tuneplan.estimation.memory import MemoryCount, Phase
from tuneplan.estimation.persistent import Persistent, shards_of
from tuneplan.language import sentence
from tuneplan.spec.answer import Term
from tuneplan.spec.architecture import ModelArchitecture
from tuneplan.spec.parallelism import Parallelism
from tuneplan.spec.recipe import TrainingRecipe

_WALK: Final = sentence(
    "walk of the layer's code with shadow tensors (estimation/shadow.py): what PyTorch "
    "autograd keeps (derivatives.yaml) and what each operation allocates"
)
_FORMULAS: Final[Mapping[str, tuple[str, str]]] = {
    "frozen_weights": (
        sentence("frozen parameters x bytes each / shards"),
        sentence("dtype as loaded"),
    ),
    "quantized_weights": (
        sentence("quantised parameters x bits / 8 / shards"),
        "bitsandbytes functional.py quantize_4bit",
    ),
    "quantization_constants": (
        sentence("quantised parameters / block_size x bytes per scale"),
        "QLoRA (arXiv 2305.14314), section 3; bitsandbytes functional.py",
    ),
    "trained_weights": (
        sentence("trained parameters x bytes each / shards"),
        sentence("dtype as held"),
    ),
    "adapters": (
        sentence("sum of r x (in + out) x bytes each / shards"),
        "LoRA (arXiv 2106.09685)",
    ),
    "optimizer_states": (
        sentence("trained parameters x state bytes each / shards"),
        sentence("the optimizer's code"),
    ),
    "master_weights": (sentence("trained parameters x 4 / shards"), "DeepSpeed bf16_optimizer.py"),
    "gradients": (sentence("gradients that exist by then x bytes each / shards"), "autograd"),
    "gradient_buckets": (
        sentence("gradient bytes once more"),
        "PyTorch DDP reducer (gradient_as_bucket_view=False)",
    ),
    "in_flight_activations": (
        sentence("(micro-batches in flight - 1) x what the layers keep of one"),
        "Narayanan et al. 2021 (arXiv 2104.04473), section 2.2",
    ),
    "sequence_buffer": (
        sentence("tokens x hidden_size x bytes each"),
        "Megatron-LM core/utils.py GlobalMemoryBuffer",
    ),
    "context_buffer": (
        sentence("2 x tokens x (key size + value size) x bytes each"),
        "Transformer Engine attention.py, ring of keys and values",
    ),
    "stage_buffer": (
        sentence("2 x tokens x hidden_size x bytes each / tensor ranks that share the positions"),
        "Megatron-LM core/pipeline_parallel/p2p_communication.py",
    ),
    "gathered_units": (
        sentence(
            "embeddings, final norm and head, gathered from the first forward to the end of "
            "backward"
        ),
        "PyTorch FSDP root unit",
    ),
    "layer_unit": (sentence("gathered layer, twice while the next is prefetched"), "PyTorch FSDP"),
    "communication_buffers": (
        sentence("reduce bucket x bytes each x (2 when overlapping)"),
        "DeepSpeed stage_1_and_2.py",
    ),
    "cublas_workspace": (sentence("2 threads x workspace"), "PyTorch CUDABlas.cpp"),
    "reference_model": (
        sentence("parameters x bytes each / shards"),
        sentence("frozen copy of the policy"),
    ),
    "attention_mask": (
        sentence("sequences x length^2 x bytes each"),
        "transformers masking_utils.py",
    ),
    "mask_buffer": (sentence("positions^2 bytes"), "transformers modeling_gpt_bigcode.py"),
    "token_ids": (sentence("3 x 8 x tokens"), "input_ids, attention_mask, labels as int64"),
    "embeddings": (
        sentence("tokens x hidden size x bytes"),
        "the scaled embeddings of a model whose inputs require gradients",
    ),
    "kept_activations": (sentence("what the layers keep until their backward"), _WALK),
    "autocast_weights": (
        sentence("half copies of trained fp32 weights that autocast caches until the forward ends"),
        "PyTorch autocast_mode.cpp cached_cast",
    ),
    "held_inputs": (
        sentence("inputs of 4-bit linears that the graph of the step before holds as attributes"),
        "bitsandbytes autograd/_functions.py MatMul4Bit up to 0.43.1 (ctx.tensors)",
    ),
    "key_values": (
        sentence("keys and values of every layer, collected by the model's forward"),
        "transformers models/gpt_bigcode GPTBigCodeModel.forward (presents)",
    ),
    "held_logits": (
        sentence("logits that the training loop still names"),
        sentence("the framework's training loop"),
    ),
    "layer_working_set": (sentence("largest sum of live tensors inside one layer"), _WALK),
    "loss_working_set": (
        sentence("largest sum of live tensors in final norm, head and loss"),
        _WALK,
    ),
    "embedding_gradient": (
        sentence("vocabulary x hidden_size x bytes each"),
        sentence("dense embedding gradient"),
    ),
    "step_temporary": (
        sentence("trained parameters x state bytes each (foreach), 0 (fused)"),
        "torch/optim/adamw.py _multi_tensor_adamw",
    ),
}


def peak_phase(count: MemoryCount) -> Phase:
    """The phase that holds the most."""
    return max(count.by_phase, key=lambda phase: float(count.by_phase[phase]))


def memory_terms(
    count: MemoryCount,
    model: ModelArchitecture,
    recipe: TrainingRecipe,
    parallelism: Parallelism,
    *,
    tokens: float,
) -> tuple[Term, ...]:
    """Terms of the peak phase, largest first; they sum to the peak to the byte."""
    phase = peak_phase(count)
    sizes = {**count.base, **count.at_phase[phase]}
    inputs = _inputs(count.held, model, recipe, parallelism, tokens)
    terms = []
    for kind, size in sizes.items():
        formula, source = _FORMULAS[kind]
        parts: tuple[Term, ...] = ()
        if kind in ("layer_working_set", "loss_working_set"):
            parts = tuple(
                Term(
                    kind=name, value=value, formula=sentence("elements x bytes each"), source=_WALK
                )
                for name, value in count.working.get(phase, ())
            )
        terms.append(
            Term(
                kind=kind,
                value=float(size),
                formula=formula,
                inputs=inputs(kind),
                source=source,
                parts=parts,
            )
        )
    return tuple(sorted(terms, key=lambda term: -term.value))


def _inputs(
    held: Persistent,
    model: ModelArchitecture,
    recipe: TrainingRecipe,
    parallelism: Parallelism,
    tokens: float,
) -> Callable[[str], Mapping[str, Any]]:
    weights, gradients, states = shards_of(parallelism)
    trained = max(held.num_trained, 1)
    known: dict[str, dict[str, Any]] = {
        "frozen_weights": {
            "bytes": held.frozen_bytes,
            "dtype": str(recipe.frozen_dtype),
            "shards": weights,
        },
        "quantized_weights": {"bytes": held.quantized_bytes, "shards": weights},
        "quantization_constants": {"bytes": held.constants_bytes},
        "trained_weights": {
            "bytes": held.trained_bytes,
            "dtype": str(recipe.trainable_dtype),
            "shards": weights,
        },
        "optimizer_states": {
            "trained_parameters": held.num_trained,
            "optimizer": recipe.optimizer.name,
            "bytes_each": held.state_bytes / trained,
            "shards": states,
        },
        "master_weights": {"trained_parameters": held.num_trained, "shards": states},
        "gradients": {
            "trained_parameters": held.num_trained,
            "bytes_each": held.gradient_bytes / trained,
            "shards": gradients,
        },
        "step_temporary": {
            "trained_parameters": held.num_trained,
            "implementation": str(recipe.optimizer.implementation),
            "shards": states,
        },
        "loss_working_set": {
            "tokens": tokens,
            "vocab_size": model.vocab_size,
            "loss": str(recipe.loss.path),
            "logits_in_float32": recipe.loss.upcast_logits,
        },
        "embedding_gradient": {"vocab_size": model.vocab_size, "hidden_size": model.hidden_size},
    }
    if recipe.adapter is not None:
        known["adapters"] = {
            "r": recipe.adapter.r,
            "target_modules": list(recipe.adapter.target_modules),
            "dtype": str(recipe.adapter.dtype),
            "bytes": held.adapter_bytes,
            "shards": weights,
        }
    layers = {
        "tokens": tokens,
        "num_hidden_layers": model.num_layers,
        "hidden_size": model.hidden_size,
        "gradient_checkpointing": str(recipe.gradient_checkpointing),
        "attention": str(recipe.attention),
        "hidden_dtype": str(recipe.hidden_dtype),
    }
    known["kept_activations"] = known["layer_working_set"] = layers
    return lambda kind: known.get(kind, {})
