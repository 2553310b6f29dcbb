"""The file of a session: one value in msgpack with a checksum, replaced as a whole and durably."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Generic, TypeVar

from storage.checksum import crc32c
from storage.dirs.state_file import read_as
from storage.errors import AccessError, RefusedError
from storage.files import fsio

if TYPE_CHECKING:
    from collections.abc import Callable

    from storage.dirs.state_file import StateSchema
    from storage.files.fsio import FileSystem

Session = TypeVar("Session")

MAX_SESSION_BYTES = 16 << 20  # of 100,000 partitions it has a tenth


class SessionFormat(Generic[Session]):
    """A kind of session.

    Args:
        schema: what the file says that it is, and the type of a session, a named tuple.
        what: for errors, such as "the session of a producer".
        next_step: after an error.
    """

    def __init__(self, schema: StateSchema, what: str, next_step: str) -> None:
        self._schema = schema
        self._kind: type[Session] = schema.holds[0]
        self._what = what
        self._next_step = next_step

    def load(self, path: str, check: Callable[[Session], None]) -> Session | None:
        """Read a session; None if there is no such file. `check` raises ValueError for a bad one.

        Raises:
            AccessError: it cannot be read.
            RefusedError: it is none.
        """
        import msgpack

        try:
            found_bytes = Path(path).stat().st_size
            if not Path(path).is_file() or found_bytes > MAX_SESSION_BYTES:
                raise RefusedError(
                    f"{path}: not {self._what}: no file, or one of {found_bytes} bytes",
                    next_step=self._next_step,
                )
            data = Path(path).read_bytes()
        except FileNotFoundError:
            return None
        except OSError as exc:
            raise AccessError(exc, path) from exc
        try:
            body, checksum = msgpack.unpackb(data)
            if crc32c(body) != checksum:
                raise ValueError("its checksum is wrong")  # noqa: TRY301
            found = msgpack.unpackb(body, use_list=False)
            kind, version = found.pop("format"), found.pop("version")
            if kind != self._schema.name:
                raise ValueError(f"format {kind!r}")  # noqa: TRY301
            if version != self._schema.version:
                raise ValueError(  # noqa: TRY301
                    f"of version {version!r}, this program knows {self._schema.version}"
                )
            session = read_as(self._kind, found)
            check(session)
        except (ValueError, TypeError, KeyError, AttributeError, msgpack.UnpackException) as exc:
            raise RefusedError(
                f"{path}: not {self._what}, or damaged: {exc}", next_step=self._next_step
            ) from exc
        return session

    def save(self, fs: FileSystem, path: str, session: Session) -> None:
        """Replace the file durably. Raises AccessError."""
        import msgpack

        fields = session._asdict()  # type: ignore[attr-defined]
        head = {"format": self._schema.name, "version": self._schema.version}
        body = msgpack.packb({**head, **fields})
        fsio.replace_file(fs, path, msgpack.packb([body, crc32c(body)]))
