"""File systems behind URIs for tests: pyarrow's, over a directory or in memory, watched and failing."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any, NamedTuple

from pyarrow.fs import FileInfo, FileSelector, FileSystemHandler, FileType, PyFileSystem

if TYPE_CHECKING:
    from pathlib import Path


class Range(NamedTuple):
    """One request for bytes of a file."""

    path: str
    pos: int
    count: int


class WatchedHandler(FileSystemHandler):  # type: ignore[misc]
    """A pyarrow file system over a directory, that tells what was asked of it.

    `errors` holds what to raise: by path, for listing, asking or opening it; by (path, position)
    for every read that touches this byte.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.ranges: list[Range] = []
        self.calls: list[tuple[str, str]] = []
        self.errors: dict[str | tuple[str, int], Exception] = {}

    def __eq__(self, other: object) -> bool:
        return self is other

    __hash__ = object.__hash__

    def get_type_name(self) -> str:
        return "watched"

    def normalize_path(self, path: str) -> str:
        return path

    def _called(self, what: str, path: str) -> None:
        self.calls.append((what, path))
        if path in self.errors:
            raise self.errors[path]

    def _info(self, path: str) -> FileInfo:
        full = self.root / path
        if full.is_dir():
            return FileInfo(path, FileType.Directory)
        if not full.exists():
            return FileInfo(path, FileType.NotFound)
        found = full.stat()
        return FileInfo(path, FileType.File, size=found.st_size, mtime_ns=found.st_mtime_ns)

    def get_file_info(self, paths: list[str]) -> list[FileInfo]:
        for path in paths:
            self._called("info", path)
        return [self._info(path) for path in paths]

    def get_file_info_selector(self, selector: FileSelector) -> list[FileInfo]:
        what = "list all" if selector.recursive else "list"
        self._called(what, selector.base_dir)
        base = self.root / selector.base_dir
        if not base.is_dir():
            if selector.allow_not_found:
                return []
            raise FileNotFoundError(selector.base_dir)
        found = base.rglob("*") if selector.recursive else base.iterdir()
        paths = sorted(str(each.relative_to(self.root)) for each in found)
        if selector.recursive:
            for path in paths:
                if path in self.errors:
                    raise self.errors[path]
        return [self._info(path) for path in paths]

    def open_input_file(self, path: str) -> Any:
        import pyarrow as pa

        self._called("open", path)
        return pa.PythonFile(_WatchedFile(self, path), mode="r")

    def open_input_stream(self, path: str) -> Any:
        raise AssertionError(f"{path}: to be read by ranges")

    def _refuse(self, *args: object, **options: object) -> Any:
        raise AssertionError("nothing is to be changed")

    create_dir = delete_dir = delete_dir_contents = delete_root_dir_contents = _refuse
    delete_file = move = copy_file = open_output_stream = open_append_stream = _refuse


class _WatchedFile(io.RawIOBase):
    def __init__(self, handler: WatchedHandler, path: str) -> None:
        self._handler = handler
        self._path = path
        self._file = (handler.root / path).open("rb", buffering=0)

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, pos: int, whence: int = 0) -> int:
        return self._file.seek(pos, whence)

    def tell(self) -> int:
        return self._file.tell()

    def read(self, count: int = -1) -> bytes:
        pos = self.tell()
        self._handler.ranges.append(Range(self._path, pos, count))
        for key, error in self._handler.errors.items():
            if isinstance(key, tuple) and key[0] == self._path and pos <= key[1] < pos + count:
                raise error
        return self._file.read(count) or b""

    def close(self) -> None:
        self._file.close()
        super().close()


def watched(root: Path) -> tuple[WatchedHandler, PyFileSystem]:
    """A watched file system over a directory."""
    handler = WatchedHandler(root)
    return handler, PyFileSystem(handler)
