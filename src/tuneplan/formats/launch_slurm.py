"""A batch script for Slurm: one torchrun a node, which find each other by themselves.

Options: Slurm ``sbatch`` 24.05; rendezvous: torch ``distributed/run.py``.
"""

from __future__ import annotations

import math
from typing import Final

from tuneplan.formats.foreign import ExportedFile
from tuneplan.formats.launching import PORT, Launch, torchrun
from tuneplan.language import message

FILE: Final = "job.slurm"


def slurm_files(launch: Launch) -> tuple[ExportedFile, ...]:
    """``job.slurm``, for ``sbatch`` in the folder of the configuration."""
    options = [
        f"--job-name={launch.name}",
        f"--nodes={launch.num_nodes}",
        "--ntasks-per-node=1",
        f"--gpus-per-node={launch.accelerators_per_node}",
        "--output=%x-%j.log",
    ]
    if launch.deadline_s is not None:
        options.insert(4, f"--time={_duration(launch.deadline_s)}")
    rendezvous = []
    setup = ['cd "$SLURM_SUBMIT_DIR"']
    if launch.num_nodes > 1:
        first = 'scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1'
        setup.append(f"MASTER_ADDR=$({first})")
        rendezvous = [
            f"--nnodes {launch.num_nodes}",
            '--rdzv_id "$SLURM_JOB_ID"',
            "--rdzv_backend c10d",
            f'--rdzv_endpoint "$MASTER_ADDR:{PORT}"',
        ]
    lines = [
        "#!/usr/bin/env bash",
        *(f"#SBATCH {option}" for option in options),
        "",
        "set -euo pipefail",
        *setup,
        "",
        "srun " + torchrun(launch, rendezvous),
        "",
    ]
    purpose = message(
        "purpose_slurm",
        "for sbatch: add the partition and account of your cluster, and load your environment",
    )
    return (ExportedFile(name=FILE, text="\n".join(lines), purpose=purpose),)


def _duration(seconds: float) -> str:
    """Slurm's ``days-hours:minutes:seconds``."""
    minutes = math.ceil(seconds / 60)
    days, rest = divmod(minutes, 24 * 60)
    hours, minutes = divmod(rest, 60)
    return f"{days}-{hours:02d}:{minutes:02d}:00"
