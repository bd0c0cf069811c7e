"""A model named by a folder that is not on this machine: its name is taken instead."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Final

from tuneplan.formats.foreign import Imported
from tuneplan.language import message
from tuneplan.spec.answer import Notice

_CACHED: Final = re.compile(r"models--(?P<owner>.+?)--(?P<name>[^/]+)")
# Folders that say nothing of what is in them.
_EMPTY_WORDS: Final = re.compile(
    r"(?:model|models|base|hf|weights?|main|latest|final|merged|ckpt|checkpoints?|snapshots?|output"
    r"|checkpoint-\d+|v\d+|[0-9a-f]{20,}|original|pytorch_model\.bin|\.{1,2}|~)",
    re.IGNORECASE,
)


def named_by_folder(found: Imported) -> Imported:
    """The same, the model by the name of its folder where that is a path to nothing here."""
    model = found.job.get("model")
    if not isinstance(model, str):
        return found
    name = name_of_folder(model, Path(found.files[0]).parent if found.files else Path())
    if name is None:
        return found
    key = next((key for key in found.keys if "model" in key.job_keys), None)
    text = message(
        "model_folder_not_here",
        "{path} is not on this machine; the model is taken to be {name}, as the folder is called",
        path=model,
        name=name,
    )
    notice = Notice(message=text, path=key.path if key else None, line=key.line if key else None)
    return replace(found, job={**found.job, "model": name}, notices=(*found.notices, notice))


def name_of_folder(model: str, beside: Path) -> str | None:
    """What the model in a folder that is not here is called; None where it is here or no path."""
    text = model.strip().replace("\\", "/").rstrip("/")
    local = text.startswith((".", "~", "/")) or text.count("/") > 1 or text[1:3] == ":/"
    if not local or any(_exists(path) for path in (beside / model, Path(model))):
        return None
    cached = _CACHED.search(text)
    if cached is not None:
        return f"{cached['owner']}/{cached['name']}"
    for part in reversed(PurePosixPath(text).parts):
        if part != "/" and not _EMPTY_WORDS.fullmatch(part):
            return part
    return None


def _exists(path: Path) -> bool:
    try:
        return path.expanduser().exists()
    except (OSError, ValueError, RuntimeError):
        return False
