"""The file of a session: one value in msgpack with a checksum, replaced as a whole and durably."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from storage import fsio
from storage.checksum import crc32c
from storage.errors import AccessError, RefusedError

if TYPE_CHECKING:
    from storage.fsio import FileSystem

MAX_SESSION_BYTES = 16 << 20  # of 100,000 partitions it has a tenth


class SessionFormat:
    """A kind of session.

    Args:
        name: what the file says that it is.
        version: of its fields.
        what: for errors, such as "the session of a producer".
        next_step: after an error.
    """

    def __init__(self, name: str, version: int, what: str, next_step: str) -> None:
        self._name = name
        self._version = version
        self._what = what
        self._next_step = next_step

    def load(self, path: str) -> dict[str, Any] | None:
        """Read the fields; None if there is no such file. Lists come as tuples.

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
            if (kind, version) != (self._name, self._version):
                raise ValueError(f"format {kind!r}, version {version!r}")  # noqa: TRY301
        except (ValueError, TypeError, KeyError, AttributeError, msgpack.UnpackException) as exc:
            raise self.damaged(path, exc) from exc
        fields: dict[str, Any] = found
        return fields

    def damaged(self, path: str, problem: Exception) -> RefusedError:
        """Return the error for a file whose content is not what it should be."""
        return RefusedError(
            f"{path}: not {self._what}, or damaged: {problem}", next_step=self._next_step
        )

    def save(self, fs: FileSystem, path: str, fields: dict[str, Any]) -> None:
        """Replace the file durably. Raises AccessError."""
        import msgpack

        body = msgpack.packb({"format": self._name, "version": self._version, **fields})
        fsio.replace_file(fs, path, msgpack.packb([body, crc32c(body)]))
