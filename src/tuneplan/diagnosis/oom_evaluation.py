"""Memory of an evaluation: a batch without a graph, its whole logits, and those that are kept.

Evaluation runs under ``no_grad``, so no activation stays; but fused losses make whole logits there
(Liger skips them while training only: ``liger_kernel/transformers/model/llama.py lce_forward``,
``skip_logits = self.training``), and a Trainer that computes metrics keeps the logits of every
batch on the card until the end, or until ``eval_accumulation_steps`` moves them to main memory
(transformers ``trainer.py evaluation_loop``).
"""

from __future__ import annotations

from dataclasses import replace

from tuneplan.estimation.memory import Phase, count_memory
from tuneplan.frozen import dataclass
from tuneplan.spec.architecture import ModelArchitecture
from tuneplan.spec.parallelism import Parallelism
from tuneplan.spec.recipe import Checkpointing, Loss, LossPath, TrainingRecipe

# What only a graph, or a step before, keeps.
_ONLY_IN_TRAINING = ("kept_activations", "key_values", "held_logits", "held_inputs", "gradients",
                     "embeddings", "attention_mask")  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationMemory:
    """Memory of one rank in an evaluation.

    Attributes:
        peak_bytes: Allocated, with what training holds between two steps.
        batch_bytes: The part that grows with the evaluation batch.
        kept_bytes_per_sample: Logits that a Trainer with metrics keeps of each sample.
    """

    peak_bytes: float
    batch_bytes: float
    kept_bytes_per_sample: float


def evaluation_memory(
    model: ModelArchitecture,
    recipe: TrainingRecipe,
    parallelism: Parallelism,
    *,
    sequences: float,
    length: float,
    compute_capability: float | None = None,
) -> EvaluationMemory:
    """Memory of an evaluation batch of ``sequences x length`` tokens."""
    whole = replace(
        recipe,
        loss=Loss(path=LossPath.FULL, upcast_logits=recipe.loss.upcast_logits,
                  holds_model_logits=recipe.loss.holds_model_logits),
        gradient_checkpointing=Checkpointing.FULL,  # so that no layer counts what it would keep
        gradient_accumulation_steps=1,
        outputs_die_with_step=True,
    )  # fmt: skip
    count = count_memory(
        model,
        whole,
        parallelism,
        sequences=sequences,
        length=length,
        compute_capability=compute_capability,
    )
    parts = count.at_phase[Phase.LOSS]
    batch = sum(float(size) for kind, size in parts.items() if kind not in _ONLY_IN_TRAINING)
    base = sum(float(size) for size in count.base.values())
    vocabulary = model.head_weight.out_features
    return EvaluationMemory(
        peak_bytes=base + batch,
        batch_bytes=batch,
        kept_bytes_per_sample=length * vocabulary * recipe.compute_dtype.num_bytes,
    )
