"""Launch files for SkyPilot and dstack, which find the machines.

Schemas: skypilot ``utils/schemas.py`` 0.14, dstack ``core/models/configurations.py`` 0.22; names of
cards: skypilot ``catalog`` (its data fetchers), gpuhunt 0.1.34.
"""

from __future__ import annotations

from typing import Any, Final

from tuneplan.errors import CannotExport, Mistake
from tuneplan.formats.file_text import block, yaml_text
from tuneplan.formats.foreign import ExportedFile
from tuneplan.formats.launching import Launch, across_nodes, torchrun
from tuneplan.language import Message, message

SKYPILOT_FILE: Final = "sky.yaml"
DSTACK_FILE: Final = ".dstack.yml"
REQUIREMENTS: Final = "requirements.txt"
# Catalogue name: SkyPilot's name, dstack's name (with the memory where a name has several).
_CARDS: Final[dict[str, tuple[str | None, str | None]]] = {
    "NVIDIA B300 SXM": ("B300", "B300"),
    "NVIDIA B200 SXM": ("B200", "B200"),
    "NVIDIA H200 SXM": ("H200", "H200"),
    "NVIDIA H100 SXM": ("H100", "H100"),
    "NVIDIA H100 PCIe": ("H100", "H100"),
    "NVIDIA H100 NVL": ("H100-NVL", "H100NVL"),
    "NVIDIA GH200 96GB": ("GH200", "GH200"),
    "NVIDIA A100 SXM 80GB": ("A100-80GB", "A100:80GB"),
    "NVIDIA A100 PCIe 80GB": ("A100-80GB", "A100:80GB"),
    "NVIDIA A100 SXM 40GB": ("A100", "A100:40GB"),
    "NVIDIA A100 PCIe 40GB": ("A100", "A100:40GB"),
    "NVIDIA A40": ("A40", "A40"),
    "NVIDIA A10": ("A10", "A10"),
    "NVIDIA A10G": ("A10G", "A10G"),
    "NVIDIA RTX A6000": ("RTXA6000", "A6000"),
    "NVIDIA RTX A5000": ("RTXA5000", "A5000"),
    "NVIDIA L40S": ("L40S", "L40S"),
    "NVIDIA L40": ("L40", "L40"),
    "NVIDIA L4": ("L4", "L4"),
    "NVIDIA RTX 6000 Ada": ("RTX6000-Ada", "RTX6000Ada"),
    "NVIDIA GeForce RTX 4090": ("RTX4090", "RTX4090"),
    "NVIDIA GeForce RTX 3090": ("RTX3090", "RTX3090"),
    "NVIDIA V100 SXM2 32GB": ("V100-32GB", "V100:32GB"),
    "NVIDIA V100 SXM2 16GB": ("V100", "V100:16GB"),
    "NVIDIA T4": ("T4", "T4"),
    "AMD Instinct MI300X": ("MI300X", "MI300X"),
}


def skypilot_files(launch: Launch) -> tuple[ExportedFile, ...]:
    """``sky.yaml``, for ``sky launch``.

    Raises:
        CannotExport: SkyPilot has no name for the accelerator.
    """
    card = _card(launch, 0, "SkyPilot")
    line = torchrun(
        launch, across_nodes(launch, rank='"$SKYPILOT_NODE_RANK"', address='"$MASTER_ADDR"')
    )
    if launch.num_nodes > 1:
        line = f'MASTER_ADDR=$(echo "$SKYPILOT_NODE_IPS" | head -n 1)\n{line}'
    tree: dict[str, Any] = {
        "name": launch.name,
        "num_nodes": launch.num_nodes,
        "resources": {"accelerators": f"{card}:{launch.accelerators_per_node}"},
        "workdir": ".",
        "setup": block(f"pip install -r {REQUIREMENTS}\n"),
        "run": block(f"{line}\n"),
    }
    purpose = message("purpose_skypilot", "for sky launch; the folder is copied to the machines")
    return (_file(SKYPILOT_FILE, tree, purpose),)


def dstack_files(launch: Launch) -> tuple[ExportedFile, ...]:
    """``.dstack.yml``, for ``dstack apply``.

    Raises:
        CannotExport: dstack has no name for the accelerator.
    """
    card = _card(launch, 1, "dstack")
    line = torchrun(
        launch,
        across_nodes(launch, rank='"$DSTACK_NODE_RANK"', address='"$DSTACK_MASTER_NODE_IP"'),
    )
    tree: dict[str, Any] = {
        "type": "task",
        "name": launch.name,
        "nodes": launch.num_nodes,
        "python": "3.12",
        "files": [name for name, _ in launch.files],
        "commands": [f"pip install -r {REQUIREMENTS}", block(f"{line}\n")],
        "resources": {"gpu": f"{card}:{launch.accelerators_per_node}"},
    }
    if launch.deadline_s is not None:
        tree["max_duration"] = f"{max(1, round(launch.deadline_s / 3600))}h"
    purpose = message("purpose_dstack", "for dstack apply")
    return (_file(DSTACK_FILE, tree, purpose),)


def _file(name: str, tree: dict[str, Any], purpose: Message) -> ExportedFile:
    return ExportedFile(name=name, text=yaml_text((None, tree)), purpose=purpose)


def _card(launch: Launch, column: int, scheduler: str) -> str:
    """The scheduler's name of the accelerator."""
    if launch.accelerator is None:
        text = message(
            "launch_needs_accelerator", "{scheduler} asks which accelerator", scheduler=scheduler
        )
        fix = message("state_accelerator", "state hardware.accelerator")
        mistake = Mistake(message=text, path="hardware.accelerator", how_to_fix=fix)
        raise CannotExport([mistake])
    names = _CARDS.get(launch.accelerator)
    found = names[column] if names is not None else None
    if found is None:
        text = message(
            "card_without_name",
            "no name of {card} is known for {scheduler}",
            card=launch.accelerator,
            scheduler=scheduler,
        )
        raise CannotExport(
            [Mistake(message=text, path="hardware.accelerator", value=launch.accelerator)]
        )
    return found
