"""How the weights come to the card, by the versions of the libraries."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from packaging.version import Version

from tuneplan.estimation.replayed_job import Loading
from tuneplan.frameworks.versions import read_version
from tuneplan.spec.recipe import TrainingRecipe

_PACKED_WARM_UP: Final = Version("5.0")
_HALF_WARM_UP: Final = Version("4.50")
_IN_TURN: Final = Version("5.4")
_PEFT_EMPTIES_CACHE: Final = Version("0.20")
_THREADS: Final = 4


def loading_of(recipe: TrainingRecipe, software: Mapping[str, str]) -> Loading:
    """What the loader asks of the allocator beside the weights.

    A model that bitsandbytes quantises is loaded on the card (``device_map``); others are taken to
    be moved there from the host, as the Trainer does.

    Source: transformers ``modeling_utils.py caching_allocator_warmup`` (4.50 to 4.57: half of the
    half-precision model for a quantised one; 5.0: the packed size), ``core_model_loading.py`` (5.0
    to 5.3: four threads read weights, not bounded by what quantises them; 5.4, transformers #44576:
    in turn); peft 0.20 ``utils/other.py prepare_model_for_kbit_training``.
    """
    quantization = recipe.quantization
    if quantization is None or quantization.type.value == "gptq":
        return Loading()
    transformers = read_version(software.get("transformers")) or _IN_TURN
    peft = read_version(software.get("peft")) or _PEFT_EMPTIES_CACHE
    packed = transformers >= _PACKED_WARM_UP
    half = not packed and transformers >= _HALF_WARM_UP
    return Loading(
        reserved_bytes_per_weight=0.5 if packed else 1.0 if half else 0.0,
        reserved_fraction_of_rest=1.0 if packed else 0.5 if half else 0.0,
        empties_cache=peft >= _PEFT_EMPTIES_CACHE,
        threads=_THREADS if packed and transformers < _IN_TURN else 1,
    )
