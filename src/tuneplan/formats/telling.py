"""Saying a job in a framework's words, with nothing of it left out in silence."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields
from typing import Any, Final

from tuneplan.errors import CannotExport, Mistake
from tuneplan.language import Message, message
from tuneplan.spec.stated import StatedJob

_SECTIONS: Final = ("adapter", "quantization", "training", "parallelism")
_SAYS_NOTHING: Final[dict[str, tuple[Any, ...]]] = {
    "adapter.modules_to_save": ((),),
    "parallelism.tensor": (1,),
    "parallelism.pipeline": (1,),
    "parallelism.context": (1,),
    "parallelism.expert": (1,),
    "parallelism.offload": ("none",),
    "training.loss": ("auto",),
    "training.optimizer_in_backward": (False,),
    "adapter.fused_kernels": (False,),
    "adapter.target_parameters": ((),),
    "quantization.quantize_experts": (False,),
}


class Teller:
    """Hands out what a job states, and refuses at the end what nobody asked for.

    ``take`` a key and write it down; ``refuse`` it where the framework has no word for its value.
    Every key of objective, method, adapter, quantization, training and parallelism counts; what a
    job says of data, hardware, prices and limits is no setting of a training program.
    """

    def __init__(self, job: StatedJob, *, framework: str) -> None:
        self.job = job
        self.framework = framework
        self._values = dict(_stated(job))
        self._asked: set[str] = set()
        self._mistakes: list[Mistake] = []
        for path, values in job.choices.items():
            self._mistakes.append(_is_a_choice(path, values))

    def peek(self, path: str) -> Any:
        """What a key states, None where it is blank; it still has to be taken."""
        return self._values.get(path)

    def take(self, path: str) -> Any:
        """What a key states, None where it is blank; the caller says it from now on."""
        self._asked.add(path)
        return self._values.get(path)

    def word(self, path: str, words: dict[Any, Any], *, near: Sequence[str] = ()) -> Any:
        """What a key states in the framework's words; refused where there is none for it."""
        value = self.take(path)
        if value is None:
            return None
        if value not in words:
            self.refuse(path, near=near or tuple(str(word) for word in words))
            return None
        return words[value]

    def whole(self, path: str) -> int | None:
        """A number that the framework takes only whole."""
        value = self.take(path)
        if value is None or isinstance(value, int):
            return value
        if isinstance(value, float) and value.is_integer():
            return int(value)
        why = message(
            "only_whole", "{framework} takes whole numbers there", framework=self.framework
        )
        self.refuse(path, why)
        return None

    def refuse(
        self,
        path: str,
        why: Message | None = None,
        *,
        near: Sequence[str] = (),
        how_to_fix: Message | None = None,
    ) -> None:
        """The framework cannot say this key's value; one reason a key."""
        self._asked.add(path)
        if any(mistake.path == path for mistake in self._mistakes):
            return
        value = self._values.get(path)
        self._mistakes.append(
            Mistake(
                message=why or self._no_word(value),
                path=path,
                value=value,
                near=tuple(near),
                how_to_fix=how_to_fix,
            )
        )

    def leave(self, paths: Iterable[str]) -> None:
        """Keys that another file of the export, or the program's own default, says."""
        self._asked.update(paths)

    def finish(self) -> None:
        """Check that everything was said.

        Raises:
            CannotExport: Something was not; each with its reason.
        """
        for path, value in self._values.items():
            if path not in self._asked and value not in _SAYS_NOTHING.get(path, ()):
                self.refuse(path)
        if self._mistakes:
            raise CannotExport(self._mistakes)

    def _no_word(self, value: Any) -> Message:
        return message(
            "cannot_say",
            "{framework} has no way to say {value}",
            framework=self.framework,
            value=_shown(value),
        )


def kept(pairs: dict[str, Any]) -> dict[str, Any]:
    """The pairs that say something."""
    return {name: value for name, value in pairs.items() if value is not None}


def refused_of(dump: Callable[[StatedJob], Any], job: StatedJob) -> tuple[Mistake, ...]:
    """Why a job cannot be written; empty where it can."""
    try:
        dump(job)
    except CannotExport as error:
        return error.mistakes
    return ()


def _stated(job: StatedJob) -> Iterable[tuple[str, Any]]:
    recipe = job.recipe
    pairs = [("objective", recipe.objective), ("method", recipe.method)]
    for name in _SECTIONS:
        section = getattr(recipe, name)
        pairs += [(f"{name}.{f.name}", getattr(section, f.name)) for f in fields(section)]
    return ((path, value) for path, value in pairs if value is not None)


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return ", ".join(str(one) for one in value) if isinstance(value, tuple) else repr(value)


def _is_a_choice(path: str, values: tuple[Any, ...]) -> Mistake:
    return Mistake(
        message=message("choice_in_export", "a file says one value; {key} is a choice", key=path),
        path=path,
        value=list(values),
        near=tuple(str(value) for value in values[:3]),
        how_to_fix=message("choice_in_export_fix", "name one, e.g. that of `tuneplan plan`"),
    )
