"""Values that outlive a run. They are read as the types they were written from, or not at all.

A `StateSchema` has the name of a kind of file, its version, and its types.
`tests/test_persisted.py` records their fields with the version, and fails if the fields change
without a new version. `read_as` makes values of plain values (msgpack, JSON) by the annotations of
their type. So a missing column, an extra column or a wrong type is an error here, and not a wrong
value later.

A `StateFile` contains data that can be computed again: rows that save work in the next run. Data of
another release, or damaged data, is skipped with a note. A file of another kind is never replaced.
The bytes are zlib over msgpack: [name of the kind, version, program, rows].
"""

from __future__ import annotations

import types
import zlib
from enum import Enum
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, Union, get_args, get_origin
from typing import get_type_hints as hints_of

from storage.dirs.discovery import require_outside_log_dirs
from storage.errors import AccessError, UsageError
from storage.files import fsio
from storage.files.fsio import own_attributes
from storage.files.positioned_file import read_small_file

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

Value = TypeVar("Value")

MAX_FILE_BYTES = 1 << 32
COMPRESSION_LEVEL = 1
HEAD_BYTES = 64  # of the content, which include the name of the kind


class StateSchema(NamedTuple):
    """A kind of file, and the types of its values.

    Attributes:
        name: the name in the file.
        version: of the fields. It changes with them.
        holds: the types of its values. A value that is no named tuple, such as the types of
            columns, is recorded as it is.
    """

    name: str
    version: int
    holds: tuple[Any, ...]

    def fields(self) -> dict[str, str]:
        """Return names and types of all fields, by the name of the type that has them."""
        found: dict[str, str] = {}
        waiting = list(self.holds)
        while waiting:
            each = waiting.pop()
            if not isinstance(each, type):
                found.setdefault("columns", "")
                found["columns"] = f"{each!r} {found['columns']}".strip()
            elif issubclass(each, Enum):
                found[each.__name__] = " | ".join(str(member.value) for member in each)
            elif hasattr(each, "_fields") and each.__name__ not in found:
                found[each.__name__] = ", ".join(
                    f"{name} {getattr(kind, '__forward_arg__', kind)}"
                    for name, kind in each.__annotations__.items()
                )
                waiting += _types_in(each)
        return dict(sorted(found.items()))


def _types_in(row: type) -> list[type]:
    """Return our own types in the annotations of a named tuple, if they can be resolved."""
    try:
        waiting = list(hints_of(row).values())
    except NameError:  # known only to the type checker: its schema names them
        return []
    found = []
    while waiting:
        each = waiting.pop()
        if args := get_args(each):
            waiting += args
        elif isinstance(each, type) and (hasattr(each, "_fields") or issubclass(each, Enum)):
            found.append(each)
    return found


# --- plain values as typed ones -------------------------------------------------------------------


def read_as(wanted: type[Value], value: Any) -> Value:
    """Make a value of a type from plain values: lists or maps for named tuples, texts for enums.

    Raises:
        ValueError: the value does not fit the type.
    """
    found: Value = _reader(wanted)(value)  # type: ignore[arg-type]
    return found


@cache
def _reader(wanted: Any) -> Callable[[Any], Any]:
    origin, args = get_origin(wanted), get_args(wanted)
    if wanted is Any:
        return lambda value: value
    if origin in (Union, types.UnionType):
        return _one_of([_reader(each) for each in args])
    if origin is tuple and args[1:] == (...,):
        return _many(_reader(args[0]))
    if origin is tuple:
        return _columns(tuple, "values", [_reader(each) for each in args])
    if origin is dict:
        return _map(_reader(args[0]), _reader(args[1]))
    if hasattr(wanted, "_fields"):
        return _row(wanted)
    if issubclass(wanted, Enum):
        return wanted  # type: ignore[no-any-return]
    return _exactly(wanted)


def _exactly(wanted: type) -> Callable[[Any], Any]:
    def read(value: Any) -> Any:
        if type(value) is not wanted:
            raise ValueError(f"{str(value)[:40]!r} is no {wanted.__name__}")
        return value

    return read


def _one_of(readers: list[Callable[[Any], Any]]) -> Callable[[Any], Any]:
    def read(value: Any) -> Any:
        for each in readers[:-1]:
            try:
                return each(value)
            except ValueError:
                continue
        return readers[-1](value)

    return read


def _many(reader: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def read(value: Any) -> Any:
        if not isinstance(value, (list, tuple)):
            raise ValueError(f"{str(value)[:40]!r} is no list")  # noqa: TRY004 - one error for all
        return tuple([reader(each) for each in value])

    return read


def _map(key: Callable[[Any], Any], reader: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def read(value: Any) -> Any:
        if not isinstance(value, dict):
            raise ValueError(f"{str(value)[:40]!r} is no map")  # noqa: TRY004 - one error for all
        return {key(name): reader(each) for name, each in value.items()}

    return read


def _columns(
    make: Callable[[list[Any]], Any], name: str, readers: list[Callable[[Any], Any]]
) -> Callable[[Any], Any]:
    def read(value: Any) -> Any:
        if not isinstance(value, (list, tuple)) or len(value) != len(readers):
            raise ValueError(f"{str(value)[:40]!r}: no {name} of {len(readers)} fields")
        return make([reader(each) for reader, each in zip(readers, value, strict=True)])

    return read


def _row(wanted: Any) -> Callable[[Any], Any]:
    hints = hints_of(wanted)
    names = wanted._fields
    of_list = _columns(wanted._make, wanted.__name__, [_reader(hints[name]) for name in names])

    def read(value: Any) -> Any:
        if not isinstance(value, dict):
            return of_list(value)
        if value.keys() != set(names):
            differing = ", ".join(sorted(map(str, value.keys() ^ set(names))))
            raise ValueError(f"{wanted.__name__} with or without {differing}")
        return of_list([value[name] for name in names])

    return read


# --- data that can be computed again --------------------------------------------------------------


class StateFile:
    """The data that a run keeps for the next run.

    Attributes:
        notes: skipped data, for the user.

    Raises:
        UsageError: there is no name.
        RefusedError: it lies in a log directory.
    """

    def __init__(self, schema: StateSchema, what: str, path: str, program: str) -> None:
        """Check the place of the file.

        `what` is for errors, such as "the state of a check". `program` names the release.
        """
        require_outside_log_dirs(
            path, "keep the state elsewhere", place=Path(path).absolute().parent
        )
        self.path = path
        self.notes: list[str] = []
        self._schema = schema
        self._what = what
        self._program = program

    def load(self, row: type[Value]) -> list[Value]:
        """Read the rows. [] if there is no such file, or it cannot be used (see `notes`).

        Raises:
            AccessError: it cannot be read.
            UsageError: it is a file of another kind.
        """
        from msgpack import unpackb

        try:
            data = read_small_file(Path(self.path), MAX_FILE_BYTES)
        except FileNotFoundError:
            return []
        except OSError as exc:
            raise AccessError(exc, self.path) from exc
        self._require_ours(data)
        try:
            _, version, made_by, *rest = unpackb(
                zlib.decompress(data), unicode_errors="surrogateescape"
            )
            if (version, made_by) != (self._schema.version, self._program):
                self.pass_over(f"version {version} of {made_by}")
                return []
            (rows,) = rest
            return [read_as(row, each) for each in rows]
        except (ValueError, TypeError, zlib.error) as exc:
            self.pass_over(f"damaged ({exc})")
            return []

    def save(self, rows: Iterable[Any]) -> None:
        """Replace the file. Raises AccessError."""
        from msgpack import packb

        content = [self._schema.name, self._schema.version, self._program, list(rows)]
        data = packb(content, use_bin_type=True, unicode_errors="surrogateescape")
        packed = zlib.compress(data, COMPRESSION_LEVEL)
        fsio.replace_file(fsio.FileSystem(), self.path, packed, attributes=own_attributes())

    def pass_over(self, why: str) -> None:
        """Add a note, once, that the content of the file is not used."""
        if not self.notes:
            self.notes.append(f"{self.path}: {why}: not used, what it is of is read again")

    def _require_ours(self, data: bytes) -> None:
        """Require that the file has our kind in its content. Other files must not be replaced."""
        from msgpack import packb

        problem = "its content is something else"
        try:
            head = zlib.decompressobj().decompress(data, HEAD_BYTES)
        except zlib.error as exc:
            head, problem = b"", str(exc)
        # An array with a few values. The first value is the name.
        if head[:1] not in {b"\x93", b"\x94"} or not head[1:].startswith(packb(self._schema.name)):
            raise UsageError(
                f"{self.path}: not {self._what} ({problem})",
                next_step="name another file, or remove this file: everything is then read again",
            )
