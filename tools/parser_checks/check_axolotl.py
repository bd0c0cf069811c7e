"""Axolotl's files against its own schema, as eight H100 would have it checked."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import yaml
from answering import answer
from axolotl.integrations.base import PluginManager
from axolotl.utils.config import prepare_plugins, validate_config
from axolotl.utils.dict import DictDefault
from axolotl.utils.schemas.config import AxolotlInputConfig

CARD = {"bf16": True, "fp8": True, "n_gpu": 8, "n_node": 1, "compute_capability": "sm_90"}


def accept() -> None:
    """Validate with plugins; a key that the schema does not know is an error."""
    tree = yaml.safe_load(Path("train.yaml").read_text(encoding="utf-8"))
    config = DictDefault(tree)
    prepare_plugins(config)
    known = set(AxolotlInputConfig.model_fields)
    for plugin in PluginManager.get_instance().plugins.values():
        arguments = plugin.get_input_args()
        if arguments:
            module, _, name = arguments.rpartition(".")
            known |= set(getattr(__import__(module, fromlist=[name]), name).model_fields)
    unknown = set(tree) - known
    if unknown:
        raise ValueError(f"keys that the schema does not know: {sorted(unknown)}")
    validate_config(config, capabilities=CARD, env_capabilities={"torch_version": "2.13.0"})


def files(folder: Path) -> Iterator[tuple[str, Callable[[], object]]]:
    """The configuration of a folder."""
    if (folder / "train.yaml").exists():
        yield "train.yaml", accept


answer(("axolotl", "transformers", "peft", "accelerate", "torch"), files)
