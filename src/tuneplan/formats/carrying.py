"""Noting what becomes of every key while a configuration is read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from tuneplan.contract.values import nearest
from tuneplan.errors import InvalidRequest, Mistake
from tuneplan.formats.foreign import Fate, ForeignDocument, ForeignKey, Imported
from tuneplan.language import Message, message
from tuneplan.spec.answer import Notice

_BLANK = message("key_blank", "left blank: it says nothing")


class Carrier:
    """Turns one or more documents into a job; what nobody asked about is "not understood".

    A path is a key path of the document. ``carry`` says a job key from it, ``irrelevant`` and
    ``not_carried`` close a key without one. Lists and mappings that hold no keys of the format
    (``target_modules``) are closed as a whole, by the path of the list. ``wrong`` notes what the
    framework itself would refuse, ``refuse`` what has no formula here.
    """

    def __init__(self, document: ForeignDocument) -> None:
        self._documents = [document]
        self._fates: dict[tuple[str, str], ForeignKey] = {}
        self._job: dict[str, Any] = {}
        self.notices: list[Notice] = []
        self._mistakes: list[Mistake] = []
        self._refusals: list[Mistake] = []

    @property
    def document(self) -> ForeignDocument:
        """The configuration itself; files that it points to come after it."""
        return self._documents[0]

    def value(self, path: str, default: Any = None, *, of: ForeignDocument | None = None) -> Any:
        """What stands under a path; None as written counts as absent."""
        found: Any = (of or self._documents[0]).tree
        for name in path.split("."):
            if not isinstance(found, Mapping) or name not in found:
                return default
            found = found[name]
        return default if found is None else found

    def carry(self, path: str, *says: tuple[str, Any], of: ForeignDocument | None = None) -> None:
        """Close a key by what it says: pairs of job key and value. A later one wins."""
        for job_key, value in says:
            self.say(job_key, value)
        self._close(path, Fate.CARRIED, None, tuple(key for key, _ in says), of)

    def agree(
        self, path: str, job_key: str, value: Any, *, of: ForeignDocument | None = None
    ) -> None:
        """Close a key by what it says, unless another file or key says it differently.

        Then both are wrong: the mistake names both places.
        """
        before = next((key for key in self._fates.values() if job_key in key.job_keys), None)
        if before is None or self.said(job_key) == value:
            self.carry(path, (job_key, value), of=of)
            return
        document = of or self._documents[0]
        line = document.line_of(path)
        text = message(
            "says_otherwise",
            "{key}: {value} in {file} (line {line}) contradicts {other}: {before} in {other_file} "
            "(line {other_line})",
            key=path,
            value=self.value(path, of=of),
            file=document.file_of(path),
            line=line if line is not None else "?",
            other=before.path,
            before=before.value,
            other_file=before.file,
            other_line=before.line if before.line is not None else "?",
        )
        self.wrong(path, text, how_to_fix=message("keep_one", "keep one of them"), of=of)

    def say(self, job_key: str, value: Any) -> None:
        """Say a job key that no single key of the document stands for."""
        holder = self._job
        *sections, leaf = job_key.split(".")
        for name in sections:
            holder = holder.setdefault(name, {})
        holder[leaf] = value

    def drop(self, *job_keys: str) -> None:
        """Take back what was said under keys or sections of the job."""
        for job_key in job_keys:
            holder: Any = self._job
            *sections, leaf = job_key.split(".")
            for name in sections:
                holder = holder.get(name) if isinstance(holder, dict) else None
            if isinstance(holder, dict):
                holder.pop(leaf, None)

    def said(self, job_key: str) -> Any:
        """What the job says so far."""
        holder: Any = self._job
        for name in job_key.split("."):
            if not isinstance(holder, Mapping) or name not in holder:
                return None
            holder = holder[name]
        return holder

    def irrelevant(
        self, paths: Iterable[str], why: Message, *, of: ForeignDocument | None = None
    ) -> None:
        """Close those of the keys that are there and still open; sections with all below them."""
        self._close_present(paths, Fate.IRRELEVANT, why, of)

    def not_carried(
        self, paths: Iterable[str], why: Message, *, of: ForeignDocument | None = None
    ) -> None:
        """Close those of the keys that are there and still open: known, but no job key says it."""
        self._close_present(paths, Fate.NOT_CARRIED, why, of)

    def holds(self, path: str, *, of: ForeignDocument | None = None) -> bool:
        """Whether the key is written, blank or not."""
        return _holds((of or self._documents[0]).tree, path)

    def closed(self, path: str, *, of: ForeignDocument | None = None) -> bool:
        """Whether a key, or a section around it, has its fate."""
        return self._fate_of(of or self._documents[0], path) is not None

    def join(self, document: ForeignDocument) -> None:
        """Read a further file into the same job."""
        self._documents.append(document)

    def wrong(
        self,
        path: str,
        text: Message,
        *,
        near: Sequence[str] = (),
        how_to_fix: Message | None = None,
        of: ForeignDocument | None = None,
    ) -> None:
        """Note a value that the framework itself would refuse; ``finish`` raises all of them."""
        self._mistakes.append(self._mistake(path, text, near, how_to_fix, of))
        self._close(path, Fate.NOT_CARRIED, text, (), of)

    def refuse(
        self,
        path: str,
        text: Message,
        *,
        how_to_fix: Message | None = None,
        of: ForeignDocument | None = None,
    ) -> None:
        """Close a key that asks for something of which no estimate can be made."""
        self._refusals.append(self._mistake(path, text, (), how_to_fix, of))
        self._close(path, Fate.NOT_CARRIED, text, (), of)

    def notice(self, path: str, text: Message, *, of: ForeignDocument | None = None) -> None:
        """Tell the reader something about a key, with its line."""
        line = (of or self._documents[0]).line_of(path)
        self.notices.append(Notice(message=text, path=path, line=line))

    def finish(self, *, name: str, version: str | None, known: Sequence[str] = ()) -> Imported:
        """The job; keys that are still open are not understood, unless they are blank.

        Args:
            name: Of the format.
            version: As stated.
            known: Keys of the format, to name the nearest to one that is not understood.

        Raises:
            InvalidRequest: The mistakes of the documents' form and those that ``wrong`` noted.
        """
        mistakes = [m for document in self._documents for m in document.mistakes]
        if mistakes or self._mistakes:
            unique = {(m.file, m.path, m.message.code): m for m in (*mistakes, *self._mistakes)}
            raise InvalidRequest(sorted(unique.values(), key=lambda m: m.line or 0))
        keys: list[ForeignKey] = []
        files = [
            file
            for document in self._documents
            for file in (document.file, *document.elsewhere.values())
        ]
        for document in self._documents:
            for path, value in leaves(document.tree):
                found = self._fate_of(document, path)
                keys.append(found or self._left_open(document, path, value, known))
        return Imported(
            format=name,
            format_version=version,
            files=tuple(dict.fromkeys(files)),
            job=self._job,
            keys=tuple({(key.file, key.path): key for key in keys}.values()),
            notices=(
                *(notice for document in self._documents for notice in document.notices),
                *self.notices,
            ),
            refusals=tuple(self._refusals),
        )

    def _left_open(
        self, document: ForeignDocument, path: str, value: Any, known: Sequence[str]
    ) -> ForeignKey:
        if path in document.unknown:
            why = message(
                "value_unknown",
                "its value, {value}, is only known when the job starts",
                value=document.unknown[path],
            )
            return self._key(document, path, document.unknown[path], Fate.NOT_CARRIED, why)
        if value is None or (isinstance(value, Mapping) and not value):
            return self._key(document, path, value, Fate.IRRELEVANT, _BLANK)
        near = nearest(path, known, count=1)
        why = (
            message("key_not_understood_near", "not known here; near it is {near}", near=near[0])
            if near
            else message("key_not_understood", "this key is not known here")
        )
        return self._key(document, path, value, Fate.NOT_UNDERSTOOD, why)

    def _mistake(
        self,
        path: str,
        text: Message,
        near: Sequence[str],
        how_to_fix: Message | None,
        of: ForeignDocument | None,
    ) -> Mistake:
        document = of or self._documents[0]
        value = self.value(path, of=document)
        return Mistake(
            message=text,
            path=path,
            line=document.line_of(path),
            file=document.file_of(path),
            value=value if isinstance(value, str | int | float) else None,
            near=tuple(near),
            how_to_fix=how_to_fix,
        )

    def _close_present(
        self, paths: Iterable[str], fate: Fate, why: Message, of: ForeignDocument | None
    ) -> None:
        document = of or self._documents[0]
        for path in paths:
            if (document.file, path) not in self._fates and _holds(document.tree, path):
                self._close(path, fate, why, (), document)

    def _close(
        self,
        path: str,
        fate: Fate,
        why: Message | None,
        job_keys: tuple[str, ...],
        of: ForeignDocument | None,
    ) -> None:
        document = of or self._documents[0]
        value = self.value(path, of=document)
        before = self._fates.get((document.file, path))
        if before is not None and before.fate is Fate.CARRIED:
            job_keys = (*before.job_keys, *(key for key in job_keys if key not in before.job_keys))
        self._fates[document.file, path] = self._key(document, path, value, fate, why, job_keys)

    def _fate_of(self, document: ForeignDocument, path: str) -> ForeignKey | None:
        """The fate of a path, or of the nearest section around it that was closed as a whole."""
        while path:
            found = self._fates.get((document.file, path))
            if found is not None:
                return found
            path = path.rpartition(".")[0]
        return None

    @staticmethod
    def _key(
        document: ForeignDocument,
        path: str,
        value: Any,
        fate: Fate,
        why: Message | None,
        job_keys: tuple[str, ...] = (),
    ) -> ForeignKey:
        return ForeignKey(
            path=path,
            value=value,
            file=document.file_of(path),
            line=document.line_of(path),
            fate=fate,
            why=why,
            job_keys=job_keys,
        )


def leaves(tree: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    """Every key path that holds no further keys, with its value."""
    for name, value in tree.items():
        inner = f"{path}.{name}" if path else name
        if isinstance(value, Mapping) and value:
            yield from leaves(value, inner)
        else:
            yield inner, value


def _holds(tree: Mapping[str, Any], path: str) -> bool:
    found: Any = tree
    for name in path.split("."):
        if not isinstance(found, Mapping) or name not in found:
            return False
        found = found[name]
    return True
