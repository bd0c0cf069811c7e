"""Launch files for machines you are logged in to: torchrun, accelerate, DeepSpeed's launcher."""

from __future__ import annotations

from typing import Any

from tuneplan.errors import CannotExport, Mistake
from tuneplan.formats.accelerate_writing import FILE as ACCELERATE_FILE
from tuneplan.formats.accelerate_writing import launcher_tree
from tuneplan.formats.file_text import yaml_text
from tuneplan.formats.foreign import ExportedFile
from tuneplan.formats.launching import (
    PORT,
    Launch,
    across_nodes,
    folded,
    options_of,
    script,
    torchrun,
)
from tuneplan.language import Message, message

_ADDRESS = '"$MASTER_ADDR"'
_RANK = '"$NODE_RANK"'


def torchrun_files(launch: Launch) -> tuple[ExportedFile, ...]:
    """``launch.sh`` with torchrun."""
    line = torchrun(launch, across_nodes(launch, rank=_RANK, address=_ADDRESS))
    return (_script("launch.sh", launch, line, "torchrun"),)


def accelerate_files(launch: Launch) -> tuple[ExportedFile, ...]:
    """``launch_accelerate.sh`` and the file it names.

    Raises:
        CannotExport: The program starts under torchrun only.
    """
    _needs_module(launch, "accelerate")
    tree: dict[str, Any] = launcher_tree(launch.job, launch)
    purpose = message("purpose_accelerate", "processes and machines for accelerate launch")
    words = ["accelerate launch", f"--config_file {ACCELERATE_FILE}"]
    if launch.num_nodes > 1:
        words += [f"--machine_rank {_RANK}", f"--main_process_ip {_ADDRESS}"]
    line = folded([*words, *options_of(launch.program.tail)])
    return (
        ExportedFile(name=ACCELERATE_FILE, text=yaml_text((None, tree)), purpose=purpose),
        _script("launch_accelerate.sh", launch, line, "accelerate"),
    )


def deepspeed_files(launch: Launch) -> tuple[ExportedFile, ...]:
    """``launch_deepspeed.sh``, and a ``hostfile`` for several machines.

    Raises:
        CannotExport: The program starts under torchrun only.
    """
    _needs_module(launch, "deepspeed")
    module = launch.program.module or ""
    tail = options_of(["--module", module, *launch.program.arguments])
    if launch.num_nodes == 1:
        line = folded(["deepspeed", f"--num_gpus {launch.accelerators_per_node}", *tail])
        return (_script("launch_deepspeed.sh", launch, line, "deepspeed", alone=True),)
    line = folded(["deepspeed", "--hostfile hostfile", f"--master_port {PORT}", *tail])
    hosts = "".join(
        f"node{at} slots={launch.accelerators_per_node}\n" for at in range(launch.num_nodes)
    )
    purpose = message(
        "purpose_hostfile", "one line a machine: put the names of yours in place of node0, ..."
    )
    return (
        ExportedFile(name="hostfile", text=hosts, purpose=purpose),
        _script("launch_deepspeed.sh", launch, line, "deepspeed", alone=True),
    )


def _script(
    name: str, launch: Launch, line: str, launcher: str, *, alone: bool = False
) -> ExportedFile:
    needs: tuple[str, ...] = ()
    if launch.num_nodes > 1 and not alone:
        needs = (
            ': "${MASTER_ADDR:?the address of the first machine}"',
            ': "${NODE_RANK:?0 on the first machine, 1 on the next, ...}"',
        )
    return ExportedFile(name=name, text=script(*needs, line), purpose=_purpose(launch, launcher))


def _purpose(launch: Launch, launcher: str) -> Message:
    if launch.num_nodes == 1 or launcher == "deepspeed":
        return message("purpose_launch", "starts the job with {launcher}", launcher=launcher)
    return message(
        "purpose_launch_nodes",
        "starts the job with {launcher}: run it on every machine",
        launcher=launcher,
    )


def _needs_module(launch: Launch, launcher: str) -> None:
    if launch.program.module is not None:
        return
    text = message(
        "launched_by_torchrun_only",
        "{program} starts its own processes: {launcher} cannot",
        program=" ".join(launch.program.starter),
        launcher=launcher,
    )
    raise CannotExport([Mistake(message=text, path="--launch", value=launcher, near=("torchrun",))])
