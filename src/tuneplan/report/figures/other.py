"""How the figures of parameters, data, money, storage and energy come about."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from types import MappingProxyType
from typing import Final

from tuneplan.contract.answers import ExplainedInput, ExplainedNode
from tuneplan.economics.money import rate_between
from tuneplan.estimation.adapters import adapted_modules
from tuneplan.estimation.parameters import parameter_counts, saved_module_parameters
from tuneplan.estimation.persistent import persistent
from tuneplan.language import sentence
from tuneplan.planner.offering import compared_currency
from tuneplan.planner.storing import checkpoint_content
from tuneplan.report.figures.time import TIME_FIGURES
from tuneplan.report.figures.tree import Context, Explain, known
from tuneplan.spec.answer import Basis
from tuneplan.spec.recipe import Adapter, Method

_SUMS: Final = ("total", "active", "matmul_active")


def _total_parameters(context: Context) -> ExplainedNode:
    model = context.estimate.resolved.model
    counts = parameter_counts(model)
    parts = [
        _count(field.name, getattr(counts, field.name), sentence("sum over the layers"))
        for field in fields(counts)
        if field.name not in _SUMS and getattr(counts, field.name)
    ]
    return context.figure(
        "model.total_parameters",
        "sum of the parts",
        inputs=[
            known("num_hidden_layers", model.num_layers, source=model.source),
            known("hidden_size", model.hidden_size, source=model.source),
            known("vocab_size", model.vocab_size, source=model.source),
            *context.settings("model"),
        ],
        children=parts,
        source=model.source or None,
    )


def _count(name: str, count: int, formula: str) -> ExplainedNode:
    return ExplainedNode(
        name=name,
        value=count,
        unit="parameters",
        formula=formula,
        basis=Basis.ANALYTIC.value,
        inputs=[],
        children=[],
    )


def _active_parameters(context: Context) -> ExplainedNode:
    return context.figure(
        "model.active_parameters",
        "total less the routed experts that a token does not visit",
        children=[_total_parameters(context)],
    )


def _trainable_parameters(context: Context) -> ExplainedNode:
    recipe = context.estimate.resolved.recipe
    keys = ("method", "adapter.r", "adapter.target_modules", "adapter.modules_to_save")
    if recipe.adapter is None:
        last = recipe.method is Method.FREEZE
        formula = (
            sentence("parameters of the last trained_layers layers")
            if last
            else sentence("all parameters")
        )
        return context.figure(
            "model.trainable_parameters",
            formula,
            inputs=context.settings("method", "training.trained_layers"),
        )
    return context.figure(
        "model.trainable_parameters",
        "sum over the adapted modules of r x (in + out) x how often they stand in the model",
        inputs=context.settings(*keys),
        children=_adapted(context, recipe.adapter),
        source="LoRA (arXiv 2106.09685); PEFT tuners/lora/layer.py",
    )


def _adapted(context: Context, adapter: Adapter) -> list[ExplainedNode]:
    model, recipe = context.estimate.resolved.model, context.estimate.resolved.recipe
    dora = adapter.use_dora or recipe.method is Method.DORA
    nodes = []
    for module in adapted_modules(model, adapter, vision=recipe.trains_vision):
        node = _count(
            module.path,
            module.adapter_parameters(adapter.r, use_dora=dora),
            sentence("count x (r x (in + out) + out)")
            if dora
            else sentence("count x r x (in + out)"),
        )
        inputs = [
            known("count", module.count),
            known("r", adapter.r * module.rank_factor),
            known("in", module.weight.in_features),
            known("out", module.weight.out_features),
        ]
        nodes.append(node.model_copy(update={"inputs": inputs}))
    saved = saved_module_parameters(model, adapter.modules_to_save)
    if saved:
        nodes.append(_count("modules_to_save", saved, sentence("full copies of the named modules")))
    return nodes


def _data(figure: str, formula: str, *keys: str) -> Explain:
    def explain(context: Context) -> ExplainedNode | None:
        if context.value(figure) is None:
            return None
        resolved = context.estimate.resolved
        batch, recipe = resolved.batch, resolved.recipe
        inputs: list[ExplainedInput] = []
        if figure != "data.num_samples" and figure != "data.total_tokens":
            inputs = [
                known("rows", batch.sequences, "sequences"),
                known("mean length of a row", batch.mean_length, "tokens"),
                known("longest row to expect", batch.worst_length, "tokens"),
                known("tokens of samples in a micro-batch", batch.real_tokens, "tokens"),
                known("micro-batches of a step, over all ranks",
                      recipe.gradient_accumulation_steps * resolved.parallelism.data),
            ]  # fmt: skip
        statistics = resolved.dataset.statistics
        return context.figure(
            figure,
            formula,
            inputs=[*inputs, *context.settings(*keys)],
            source=statistics.source if statistics else None,
        )

    return explain


def _cost(context: Context) -> ExplainedNode | None:
    cost = context.estimate.cost
    if cost is None:
        return None
    offer = cost.offer
    place = f"{offer.provider}, {offer.name}, {offer.as_of.isoformat()}: {offer.source}"
    price = f"{offer.price.amount.normalize():f} {offer.price.currency}"
    inputs = [
        known("machines", cost.num_instances),
        known("accelerators paid for", cost.num_accelerators),
        known("price of a machine per hour", price, basis=Basis.MEASURED, source=place,
              how_to_set="prices: [my_prices.yaml]"),
        *context.settings("limits.regions", "limits.residency", "limits.providers"),
    ]  # fmt: skip
    if offer.term_hours:
        inputs.append(known("paid in whole terms of", offer.term_hours, "h"))
    inputs += _rate_used(context, offer.price.currency)
    total_s = TIME_FIGURES["time.total_s"](context)
    return context.figure(
        "cost.total",
        "machines x price per hour x hours of the whole run (whole terms where billed so)",
        inputs=inputs,
        children=[total_s],
        source="economics/billing.py",
        basis=total_s.basis if total_s else Basis.ANALYTIC.value,  # a cost is no surer than hours
    )


def _rate_used(context: Context, currency: str) -> list[ExplainedInput]:
    """The exchange rate with which an offer in another currency was compared."""
    if context.sources is None:
        return []
    catalog = context.sources.offers
    wanted = compared_currency(catalog.offers, context.estimate.resolved.job.limits)
    rate = rate_between(currency, wanted, catalog.rates) if currency != wanted else None
    if rate is None:
        return []
    return [
        known(
            f"rate for comparing with {wanted}",
            f"1 {rate.base} = {rate.rate.normalize():f} {rate.quote}",
            basis=Basis.MEASURED,
            source=f"{rate.as_of.isoformat()}: {rate.source}",
        )
    ]


def _checkpoint(context: Context) -> ExplainedNode:
    resolved = context.estimate.resolved
    held = persistent(resolved.model, resolved.recipe)
    content = checkpoint_content(resolved.model, resolved.recipe, held)
    return context.figure(
        "storage.checkpoint_bytes",
        "saved parameters x bytes each + trained parameters x optimizer bytes each",
        inputs=[
            *(known(name, value) for name, value in content.items()),
            *context.settings("method", "training.optim", "training.master_weights"),
        ],
        source="transformers trainer.py saves the model (or the adapter) and the optimizer",
    )


def _kept(context: Context) -> ExplainedNode | None:
    if context.value("storage.kept_bytes") is None:
        return None
    return context.figure(
        "storage.kept_bytes",
        "checkpoint x min(saves, save_total_limit + 1): the new one is written before the oldest "
        "goes",
        inputs=context.settings("training.save_steps", "training.save_total_limit"),
        children=[_checkpoint(context)],
        source="transformers trainer.py: _rotate_checkpoints runs after the save",
    )


def _dataset(context: Context) -> ExplainedNode | None:
    if context.value("storage.dataset_bytes") is None:
        return None
    return context.figure("storage.dataset_bytes", "size of the files on disk")


def _energy(context: Context) -> ExplainedNode | None:
    energy, cluster = context.estimate.energy, context.estimate.resolved.cluster
    if energy is None or cluster is None:
        return None
    card = cluster.accelerator
    return context.figure(
        "energy_kwh",
        "accelerators x board power x draw x (1 + host) x PUE x hours / 1000",
        inputs=[
            known("accelerators", cluster.num_accelerators),
            known("board power", card.power_w, "W", basis=Basis.MEASURED, source=card.source),
            *context.settings("energy.draw_fraction", "energy.host_fraction", "energy.pue"),
        ],
        children=[TIME_FIGURES["time.total_s"](context)],
        source="economics/energy.py",
    )


def _carbon(context: Context) -> ExplainedNode | None:
    if context.value("co2_kg") is None:
        return None
    return context.figure(
        "co2_kg",
        "energy x g CO2 per kWh / 1000",
        inputs=context.settings("energy.carbon_intensity"),
        children=[_energy(context)],
        source="economics/energy.py",
    )


_BATCH: Final = (
    "training.per_device_train_batch_size",
    "training.max_length",
    "training.packing",
    "training.padding",
)
OTHER_FIGURES: Final[Mapping[str, Explain]] = MappingProxyType(
    {
        "model.total_parameters": _total_parameters,
        "model.active_parameters": _active_parameters,
        "model.trainable_parameters": _trainable_parameters,
        "data.num_samples": _data(
            "data.num_samples",
            sentence("samples less those held out for evaluation"),
            *("data.path", "data.profile", "data.num_samples", "data.eval_fraction"),
        ),
        "data.total_tokens": _data(
            "data.total_tokens",
            sentence("tokens of the training samples, before truncation"),
            *("data.path", "data.profile", "data.tokenizer"),
            *("data.total_tokens", "data.mean_tokens", "data.quantiles"),
        ),
        "data.tokens_per_step": _data(
            "data.tokens_per_step",
            sentence("rows x mean length of a row x micro-batches, padding included"),
            *_BATCH,
            "training.gradient_accumulation_steps",
        ),
        "data.padding_fraction": _data(
            "data.padding_fraction", sentence("1 - tokens of samples / positions computed"), *_BATCH
        ),
        "data.worst_micro_batch_tokens": _data(
            "data.worst_micro_batch_tokens",
            sentence("rows x length of the longest micro-batch to expect in the run"),
            *_BATCH,
        ),
        "cost.total": _cost,
        "storage.checkpoint_bytes": _checkpoint,
        "storage.kept_bytes": _kept,
        "storage.dataset_bytes": _dataset,
        "energy_kwh": _energy,
        "co2_kg": _carbon,
    }
)
