"""The transformers configuration of a model, from the facts that the catalogue or a file has."""

from __future__ import annotations

from typing import Any

from tuneplan.errors import NotSupported
from tuneplan.language import message
from tuneplan.spec.architecture import ModelArchitecture


def build_config(architecture: ModelArchitecture) -> Any:
    """The transformers configuration of a model.

    Raises:
        NotSupported: where this transformers has no code for the model type.
    """
    from transformers import CONFIG_MAPPING, AutoConfig

    fields = dict(architecture.hf_config)
    kind = fields.pop("model_type", architecture.model_type)
    if "auto_map" in fields or kind not in CONFIG_MAPPING:
        raise NotSupported(
            message(
                "trace_remote_code",
                "the code of {kind} models is not part of transformers; code from a model's own "
                "repository is never run",
                kind=kind,
            )
        )
    fields.pop("torch_dtype", None)
    fields.pop("dtype", None)
    config = AutoConfig.for_model(kind, **fields)
    config.use_cache = False
    return config
