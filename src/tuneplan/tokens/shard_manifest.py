"""What a set of shards is, as its manifest says it: tokenizer, settings, data, totals, bad rows."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tuneplan._version import __version__
from tuneplan.language import Message
from tuneplan.tokens.encoders import Rendered
from tuneplan.tokens.profile import FileFacts
from tuneplan.tokens.rows import BadRow
from tuneplan.tokens.shard_files import pyarrow
from tuneplan.tokens.sources import is_url
from tuneplan.tokens.tokenizers import Tokenizer
from tuneplan.tokens.totals import Totals
from tuneplan.tokens.work import DataSet

if TYPE_CHECKING:
    from tuneplan.tokens.tokenising import ShardSettings

# A tokenizer is told by what it makes of this, beside its vocabulary and template.
_PROBE: Final = "Zwölf 12 boxing wizards, 你好世界!\n\tdef f(x): return x**2  # 🤗 <|im_start|>"


def plan_of(data: DataSet, tokenizer: Tokenizer, settings: ShardSettings) -> dict[str, Any]:
    """What decides the bytes of the shards; a set is only gone on with under the same."""
    rows = settings.rows
    return {
        "schema_version": 1,
        "tokenizer": _identity(tokenizer),
        "settings": {
            "format": settings.format,
            "max_length": rows.max_length,
            "packing": rows.packing,
            "packed_within": "shard",
            "too_long": rows.too_long,
            "learned": rows.learned,
            "shard_bytes": settings.shard_bytes,
        },
        "made_with": {"tuneplan": __version__, "pyarrow": pyarrow().__version__},
        "data": [
            {"path": tally.path, "bytes": tally.size_bytes, "changed_ns": _changed_ns(tally.path)}
            for tally in data.tallies
        ],
    }


def _identity(tokenizer: Tokenizer) -> dict[str, Any]:
    (probe,) = tokenizer.encoder.encode([Rendered(_PROBE)])
    told = (
        probe.ids.tolist(), tokenizer.encoder.vocab_size, tokenizer.chat_template,
        sorted(tokenizer.specials.items()), tokenizer.family.id if tokenizer.family else None,
    )  # fmt: skip
    return {
        "name": tokenizer.name,
        "source": tokenizer.source,
        "vocab_size": tokenizer.encoder.vocab_size,
        "fingerprint": sha256(json.dumps(told).encode()).hexdigest()[:32],
    }


def _changed_ns(path: str) -> int | None:
    return None if is_url(path) else Path(path).stat().st_mtime_ns


def manifest_of(
    plan: Mapping[str, Any],
    files: Sequence[FileFacts],
    shards: Sequence[Mapping[str, Any]],
    totals: Totals,
) -> dict[str, Any]:
    """The plan, what the files held, and what the shards hold."""
    summed = (
        "rows", "samples", "sequences", "tokens", "labels", "cut_sequences", "cut_tokens",
        "dropped_sequences", "empty_sequences", "bytes",
    )  # fmt: skip
    shown = ("name", "rows", "sequences", "tokens", "bytes", "sha256")
    return {
        **{name: value for name, value in plan.items() if name != "data"},
        "data": [
            {
                "path": file.path,
                "format": file.format,
                "bytes": file.size_bytes,
                "shape": file.shape,
                "rows_ok": file.rows_ok,
                "rows_bad": file.rows_bad,
                "blank_lines": file.blank_lines,
            }
            for file in files
        ],
        "totals": {name: sum(shard[name] for shard in shards) for name in summed},
        "shards": [{name: shard[name] for name in shown} for shard in shards if shard["name"]],
        "bad_rows_by_code": dict(sorted(totals.bad_by_code.items())),
        "bad_rows": [
            {
                "path": row.path,
                "line": row.line,
                "column": row.column,
                "code": row.code,
                "message": str(row.message),
            }
            for row in totals.bad_rows
        ],
    }


def plain_row(row: BadRow) -> dict[str, Any]:
    """A bad row as JSON keeps it while the set is made."""
    return {
        "path": row.path,
        "line": row.line,
        "column": row.column,
        "code": row.code,
        "template": row.message.template,
        "params": dict(row.message.params),
    }


def row_of(plain: Mapping[str, Any]) -> BadRow:
    """The bad row that ``plain_row`` has kept."""
    return BadRow(
        path=plain["path"],
        line=plain["line"],
        column=plain["column"],
        code=plain["code"],
        message=Message(plain["code"], plain["template"], plain["params"]),
    )


def told_row(plain: Mapping[str, Any]) -> BadRow:
    """A bad row of a manifest, which has its sentence."""
    text = Message(plain["code"], "{text}", {"text": plain["message"]})
    return BadRow(
        path=plain["path"],
        line=plain["line"],
        column=plain["column"],
        code=plain["code"],
        message=text,
    )
