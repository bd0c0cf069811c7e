"""One launch command taken apart: wrappers, launcher and its options, program, arguments.

Options of launchers: torch 2.10 ``distributed/run.py``, DeepSpeed 0.18 ``launcher/runner.py``,
accelerate 1.15 ``commands/launch.py``, CPython 3.13 ``Using Python: Command line``. Entry points of
frameworks: ``[project.scripts]`` of ms-swift 3.x, LLaMA-Factory 0.9, axolotl 0.18, torchtune 0.7,
litgpt 0.5, trl 1.x.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import field
from typing import Final

from tuneplan.formats.shell_values import Token
from tuneplan.frozen import dataclass

# Programs that only start others, and the options of theirs that take no value of their own.
LAUNCHERS: Final = {
    "torchrun": frozenset(("standalone", "no_python", "module", "m", "run_path", "use_env")),
    "deepspeed": frozenset(
        (
            *("module", "no_python", "no_local_rank", "no_ssh", "no_ssh_check", "save_pid"),
            *("force_multi", "bind_cores_to_rank", "elastic_training", "use_env"),
        )
    ),
    "accelerate": frozenset(
        (
            *("cpu", "multi_gpu", "tpu", "ipex", "use_deepspeed", "use_fsdp", "use_megatron_lm"),
            *("use_xpu", "module", "m", "no_python", "same_network", "quiet", "q", "debug"),
            *("use_parallelism_config", "tpu_use_cluster", "tpu_use_sudo", "use_mps_device"),
        )
    ),
    "colossalai": frozenset(("m", "module")),
    "python": frozenset(("u", "O", "OO", "B", "E", "I", "s", "S", "v", "x", "m", "b", "d", "q")),
}
# Programs that run what stands behind them.
_WRAPPERS: Final = frozenset(
    (
        *("nohup", "time", "exec", "env", "sudo", "nice", "ionice", "srun", "mpirun", "mpiexec"),
        *("numactl", "uv", "uvx", "poetry", "pdm", "hatch", "conda", "mamba", "micromamba"),
        *("pixi", "docker", "podman", "singularity", "apptainer", "stdbuf", "taskset", "timeout"),
        *("unbuffer", "nsys", "ray", "sky", "pueue", "tmux", "screen", "ssh", "pdsh", "salloc"),
        *("sbatch", "run", "bash", "sh", "zsh", "eval", "torchx", "dlc", "command", "setsid"),
    )
)
# Frameworks' own programs: the word behind them says what they do.
ENTRY_POINTS: Final = {
    "swift": ("sft", "pt", "rlhf"),
    "megatron": ("sft", "pt", "rlhf"),
    "llamafactory-cli": ("train",),
    "lmf": ("train",),
    "axolotl": ("train",),
    "tune": ("run",),
    "litgpt": (
        *("finetune", "finetune_lora", "finetune_full", "finetune_adapter", "pretrain"),
        "finetune_adapter_v2",
    ),
    "trl": ("sft", "dpo", "kto", "grpo", "rloo", "reward", "orpo"),
    "unsloth": ("train",),
    "xtuner": ("train",),
    "nemo": ("llm",),
    "nemorun": (),
}
_PYTHON: Final = re.compile(r"(?:.*/)?python(?:\d(?:\.\d+)?)?(?:\.exe)?")
_DISTRIBUTED: Final = frozenset(
    ("torch.distributed.run", "torch.distributed.launch", "torch.distributed.elastic")
)
_MODULES: Final = {
    **dict.fromkeys(_DISTRIBUTED, "torchrun"),
    "deepspeed.launcher.runner": "deepspeed",
    "accelerate.commands.launch": "accelerate",
    "accelerate": "accelerate",
    "deepspeed": "deepspeed",
}
_OPTION: Final = re.compile(r"--?([A-Za-z_][\w.:/-]*)(?:=(.*))?", re.DOTALL)
_WORDS_OF_TRAINING: Final = re.compile(
    r"train|finetun|fine_tun|fine-tun|sft|dpo|kto|orpo|grpo|ppo|rlhf|lora|run_clm|full_|ptuning",
    re.IGNORECASE,
)
_OPTIONS_OF_TRAINING: Final = frozenset(
    (
        *("learning_rate", "lr", "per_device_train_batch_size", "num_train_epochs", "max_steps"),
        *("gradient_accumulation_steps", "gradient_checkpointing", "lora_rank", "lora_r"),
        *("train_type", "tuner_type", "sft_type", "micro_batch_size", "train_iters", "epochs"),
        *("finetuning_type", "train.epochs", "train.micro_batch_size", "batch_size", "stage"),
    )
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """A command that starts a program.

    Attributes:
        launchers: The launchers in front, outermost first (``torchrun``); ``python`` included.
        options: What these are told, by name without dashes, ``_`` for ``-`` inside.
        wrapper: The programs in front of them, with their options (``srun --gres=gpu:8``).
        program: The script, module or entry point that trains.
        arguments: What stands behind it.
        environment: Variables set in front of the command.
    """

    launchers: tuple[str, ...] = ()
    options: dict[str, Token] = field(default_factory=dict)
    wrapper: tuple[Token, ...] = ()
    program: Token
    arguments: tuple[Token, ...]
    environment: dict[str, Token] = field(default_factory=dict)

    @property
    def weight(self) -> int:
        """How much the command looks like training; 0 = it certainly does something else."""
        name = self.program.text.rpartition("/")[2]
        doing = next((token.text for token in self.arguments if token.text[:1] != "-"), "")
        if name in ENTRY_POINTS:
            return 10 if doing in ENTRY_POINTS[name] or not ENTRY_POINTS[name] else 0
        named = {option_name(token.text) for token in self.arguments}
        weight = 2 * len(named & _OPTIONS_OF_TRAINING)
        weight += 4 if _WORDS_OF_TRAINING.search(name) else 0
        weight += 3 if set(self.launchers) - {"python"} else 0
        return weight + (
            1 if any(token.text.endswith((".yaml", ".yml")) for token in self.arguments) else 0
        )


def option_name(text: str) -> str | None:
    """The name of an option (``--lora-rank=8`` is ``lora_rank``); None for any other word."""
    match = _OPTION.fullmatch(text)
    return match[1].replace("-", "_") if match is not None else None


def option_value(text: str) -> str | None:
    """What stands behind ``=`` in an option."""
    match = _OPTION.fullmatch(text)
    return match[2] if match is not None else None


def launcher_of(text: str) -> str | None:
    """The launcher that a word names, whatever folder it lies in."""
    if _PYTHON.fullmatch(text):
        return "python"
    name = text.rpartition("/")[2]
    return name if name in LAUNCHERS and not text.endswith(".py") else None


def launch_in(tokens: Sequence[Token], environment: dict[str, Token]) -> Launch | None:
    """The launch that a command is; None where it starts nothing that is known here."""
    start = _start(tokens)
    if start is None:
        return None
    launchers: list[str] = []
    options: dict[str, Token] = {}
    at = start
    while at < len(tokens):
        launcher = launcher_of(tokens[at].text)
        if launcher is None:
            return Launch(
                launchers=tuple(launchers),
                options=options,
                wrapper=tuple(tokens[:start]),
                program=tokens[at],
                arguments=_behind(tokens, at, options),
                environment=environment,
            )
        at += 1
        if launcher in ("accelerate", "colossalai"):
            if at >= len(tokens) or tokens[at].text not in ("launch", "run"):
                return None
            at += 1
        launchers.append(launcher)
        at = _own_options(tokens, at, launcher, options)
        module = _MODULES.get(tokens[at].text) if at < len(tokens) else None
        if module is not None and "m" in options:
            options.pop("m")
            launchers[-1] = module
            at += 1
            if module == "accelerate" and at < len(tokens) and tokens[at].text == "launch":
                at += 1
            at = _own_options(tokens, at, module, options)
    return None


def _behind(tokens: Sequence[Token], at: int, options: dict[str, Token]) -> tuple[Token, ...]:
    """The arguments of a program; ``tune run`` takes torchrun's options before its recipe."""
    if tokens[at].text.rpartition("/")[2] != "tune" or [
        t.text for t in tokens[at + 1 : at + 2]
    ] != ["run"]:
        return tuple(tokens[at + 1 :])
    recipe = _own_options(tokens, at + 2, "torchrun", options)
    return (tokens[at + 1], *tokens[recipe:])


def _start(tokens: Sequence[Token]) -> int | None:
    """Where the launcher or the framework's program stands, behind wrappers only."""
    for at, token in enumerate(tokens):
        if launcher_of(token.text) is not None or token.text.rpartition("/")[2] in ENTRY_POINTS:
            return at
        if at == 0 and token.text.rpartition("/")[2] not in _WRAPPERS and token.given:
            return None
    return None


def _own_options(tokens: Sequence[Token], at: int, launcher: str, options: dict[str, Token]) -> int:
    """Read the options of a launcher; where its program stands."""
    flags = LAUNCHERS[launcher]
    while at < len(tokens):
        token = tokens[at]
        name = option_name(token.text)
        if name is None:
            if token.given:
                return at
            at += 1  # an unknown variable that holds options
            continue
        at += 1
        value = option_value(token.text)
        takes = value is None and name not in flags and at < len(tokens)
        if takes and not _looks_like_program(tokens[at].text) and not _is_option(tokens[at].text):
            options[name] = tokens[at]
            at += 1
        else:
            text = "true" if value is None else value
            options[name] = Token(text, token.line, token.known)
        if launcher == "python" and name in ("m", "c"):
            return at
    return at


def _is_option(text: str) -> bool:
    return option_name(text) is not None


def _looks_like_program(text: str) -> bool:
    return text.endswith((".py", ".sh")) or text.rpartition("/")[2] in ENTRY_POINTS
