"""Pseudonyms in the place of names and paths, so that a report can be shown to strangers.

A pseudonym is an HMAC of the name, so that one name has one pseudonym in all reports that are made
with one key, and nobody without the key can try names against it. Topics of Kafka itself keep their
names; offsets, times, sizes and ids stay as they are. Messages and calls are text in which names
stand: all names of the report are looked for in them, and the paths of its directories.
"""

from __future__ import annotations

import hmac
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    from eoctl.report.model import Model

DIGEST = "sha256"
DIGITS = 10
KEY_BYTES = 32
# Columns that hold a name -> what its pseudonym begins with.
KINDS = {
    "topic": "topic",
    "transactional_id": "id",
    "group": "group",
    "client_id": "client",
    "host": "host",
}
PARTITION_LISTS = ("committed_in", "aborted_in", "open_in", "without_marker", "not_here")
PATHS = ("path", "other_path", "file")
_OWN = re.compile(r"__[a-z_]+")  # of Kafka itself
_WORD = r"[\w.\-]"


def redacted(model: Model, key: bytes) -> Model:
    """Return the same report with pseudonyms."""
    return _Redaction(model, key).model()


class _Redaction:
    def __init__(self, model: Model, key: bytes) -> None:
        self._model = model
        self._key = key
        self._names: dict[str, str] = {}
        for name, kind in _names_of(model):
            if name and not _OWN.fullmatch(name):
                self._names.setdefault(name, self._pseudonym(kind, name))
        for path in _log_dirs_of(model):
            self._names.setdefault(path, self._pseudonym("dir", path))
        # The longest first: a name may be the beginning of another one.
        parts = [re.escape(each) for each in sorted(self._names, key=len, reverse=True)]
        self._known = re.compile(f"(?<!{_WORD})(?:{'|'.join(parts)})(?![\\w.])") if parts else None

    def _pseudonym(self, kind: str, name: str) -> str:
        data = f"{kind}\0{name}".encode("utf-8", "surrogateescape")
        return f"{kind}-{hmac.new(self._key, data, DIGEST).hexdigest()[:DIGITS]}"

    def model(self) -> Model:
        model = self._model
        changed: dict[str, Any] = {}
        for field, value in model._asdict().items():
            if isinstance(value, tuple):
                changed[field] = tuple(map(self._row, value))
        title = self._text(model.title)
        return model._replace(**changed, title=title, next_command=self._text(model.next_command))

    def _row(self, row: Any) -> Any:
        if isinstance(row, str):
            return self._text(row)
        values = {
            name: self._value(name, value)
            for name, value in zip(row._fields, row, strict=True)
            if isinstance(value, str | tuple)
        }
        return row._replace(**values)

    def _value(self, name: str, value: str | tuple[str, ...]) -> str | tuple[str, ...]:
        if isinstance(value, tuple):  # of PARTITION_LISTS
            return tuple(map(self._text, value))
        if name in KINDS:
            return self._names.get(value, value)
        return self._text(value)

    def _text(self, text: str) -> str:
        if self._known is None:
            return text
        return self._known.sub(lambda found: self._names[found[0]], text)


def _names_of(model: Model) -> Iterator[tuple[str, str]]:
    for _, columns, rows in model.tables():
        for place, column in enumerate(columns):
            kind = KINDS.get(column)
            if kind is not None:
                yield from ((row[place], kind) for row in rows if row[place] is not None)
            elif column in PARTITION_LISTS:  # of some that are not here, too
                for row in rows:
                    yield from ((each.rpartition("-")[0], "topic") for each in row[place])


def _log_dirs_of(model: Model) -> Iterator[str]:
    """Directories that partitions lie in, and what was given as a path."""
    for _, columns, rows in model.tables():
        for place, column in enumerate(columns):
            if column in PATHS:
                for row in rows:
                    path = row[place]
                    if path and "/" in path:
                        yield path.rpartition("/")[0] if column != "file" else _above(path)
    for each in model.sources:
        if each.what in {"path", "metadata", "coordinators"}:
            yield each.value.rstrip("/")


def _above(file: str) -> str:
    """The log dir of a file in a partition directory."""
    return file.rpartition("/")[0].rpartition("/")[0] or file.rpartition("/")[0]
