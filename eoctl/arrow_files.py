"""URIs through pyarrow: S3, HDFS, Google and Azure storage, and all else that pyarrow.fs opens.

Importing this module makes it the default for all schemes without a registered file system. pyarrow
itself is imported when the first URI is opened. Credentials, end points, timeouts and retries come
from pyarrow, by the environment or the URI's query. For other file systems:

    register_file_system("sim", lambda uri: (ArrowTree(my_file_system), ""))

`my_file_system` is any pyarrow.fs.FileSystem, including a wrapper of fsspec.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from eoctl.libraries import REQUIREMENTS, install_call
from storage.errors import UsageError
from storage.files.file_systems import RemoteEntry, as_os_error, register_default

if TYPE_CHECKING:
    from storage.files.file_systems import OpenedFile


class ArrowTree:
    """A pyarrow.fs.FileSystem as the FileTree that `storage` needs."""

    def __init__(self, file_system: Any) -> None:
        self.file_system = file_system

    def entry(self, path: str) -> RemoteEntry | None:
        """Return the entry at a path, or None if there is none. Raises OSError."""
        try:
            info = self.file_system.get_file_info(path)
            return _entry(info)
        except FileNotFoundError:
            return None
        except Exception as exc:
            raise as_os_error(exc) from exc

    def entries(self, path: str, *, is_recursive: bool = False) -> list[RemoteEntry]:
        """List a directory, [] if it does not exist. Raises OSError."""
        from pyarrow.fs import FileSelector

        selector = FileSelector(path, allow_not_found=True, recursive=is_recursive)
        try:
            found = map(_entry, self.file_system.get_file_info(selector))
            return [each for each in found if each is not None]
        except (FileNotFoundError, NotADirectoryError):
            return []
        except Exception as exc:
            raise as_os_error(exc) from exc

    def open_file(self, path: str) -> OpenedFile:
        """Open a file. Raises OSError."""
        try:
            return _Opened(self.file_system.open_input_file(path))
        except Exception as exc:
            raise as_os_error(exc) from exc


class _Opened:
    """A pyarrow.NativeFile."""

    def __init__(self, file: Any) -> None:
        self._file = file

    def size(self) -> int:
        return int(self._file.size())

    def read_at(self, count: int, pos: int) -> bytes:
        return bytes(self._file.read_at(count, pos))

    def close(self) -> None:
        self._file.close()


def open_tree(uri: str) -> tuple[ArrowTree, str]:
    """Open the file system of a URI, and return it with the URI's path in it.

    Raises:
        UsageError: pyarrow is not installed, or does not know the scheme.
        OSError: the file system cannot be opened.
    """
    if find_spec("pyarrow") is None:
        raise UsageError(
            f"{uri}: pyarrow is not installed", next_step=install_call(REQUIREMENTS["pyarrow"])
        )
    from pyarrow.fs import FileSystem
    from pyarrow.lib import ArrowException

    try:
        file_system, path = FileSystem.from_uri(uri)
    except OSError as exc:
        raise as_os_error(exc) from exc
    except (ArrowException, ValueError) as exc:
        raise UsageError(f"{uri}: {exc}") from exc
    return ArrowTree(file_system), path


def _entry(info: Any) -> RemoteEntry | None:
    from pyarrow.fs import FileType

    if info.type == FileType.NotFound:
        return None
    try:
        path = info.path
    except UnicodeDecodeError:
        path = ""
    is_dir = info.type == FileType.Directory
    return RemoteEntry(
        path=path, is_dir=is_dir, file_bytes=info.size or 0, modified_ns=info.mtime_ns or 0
    )


register_default(open_tree)
