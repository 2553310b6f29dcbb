"""Bundle of eoctl's packages for executors without them: `python -m eoctl.spark.bundle`.

It has only the three packages, for `spark-submit --py-files` or `addPyFile`. Their libraries must
exist there. The same sources give the same bytes everywhere, because names are sorted, and times
and modes are fixed. Nothing is compressed, because zlib versions differ.
"""

from __future__ import annotations

import sys
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn
from zipfile import ZIP_STORED, ZipFile, ZipInfo

from eoctl import __version__
from eoctl.spark import OWN_PACKAGES, packages_root
from storage.dirs.discovery import require_outside_log_dirs
from storage.errors import AccessError, UsageError
from storage.files import fsio
from storage.files.fsio import own_attributes

if TYPE_CHECKING:
    from collections.abc import Iterator

BUNDLE_NAME = f"eoctl-spark-{__version__}.zip"
DEFAULT_DIR = "dist"
FIRST_DATE = (1980, 1, 1, 0, 0, 0)  # the oldest date of a zip file
FILE_MODE = 0o100644 << 16
UNIX = 3
SUFFIXES = frozenset({".py", ".typed"})


def bundle_bytes() -> bytes:
    """Return the bundle, or the existing bundle if eoctl is imported from it.

    Raises:
        AccessError: a source file cannot be read.
    """
    root = packages_root()
    try:
        if root.is_file():
            return root.read_bytes()
        buffer = BytesIO()
        with ZipFile(buffer, "w", ZIP_STORED) as bundle:
            for name in _names(root):
                entry = ZipInfo(name, FIRST_DATE)
                entry.external_attr, entry.create_system = FILE_MODE, UNIX
                bundle.writestr(entry, (root / name).read_bytes())
    except OSError as exc:
        raise AccessError(exc, str(exc.filename or root)) from exc
    return buffer.getvalue()


def write_bundle(directory: str | Path = DEFAULT_DIR) -> Path:
    """Write the bundle into a directory, which is made if necessary, and return its path.

    Raises:
        AccessError: a source file cannot be read, or the bundle cannot be written.
        RefusedError: the directory is in a log dir.
    """
    target = Path(directory, BUNDLE_NAME)
    require_outside_log_dirs(directory, "name a directory elsewhere", place=target)
    fs = fsio.FileSystem()
    if not target.parent.is_dir():
        try:
            fs.make_dir(target.parent, 0o755)
        except OSError as exc:
            raise AccessError(exc, str(target.parent)) from exc
    fsio.replace_file(fs, target, bundle_bytes(), attributes=own_attributes())
    return target


def _names(root: Path) -> Iterator[str]:
    """Yield the files of eoctl's packages in a fixed order."""
    for package in OWN_PACKAGES:
        for path in sorted((root / package).rglob("*")):
            if path.suffix in SUFFIXES:
                yield str(path.relative_to(root))


def main() -> NoReturn:
    """Write the bundle into the given directory, by default `dist`."""
    from eoctl.outcome import exit_status_of
    from eoctl.output import line

    def write() -> None:
        words = sys.argv[1:]
        if len(words) > 1 or any(each.startswith("-") for each in words):
            raise UsageError("usage: python -m eoctl.spark.bundle [DIR]")
        line(str(write_bundle(*words)))

    sys.exit(exit_status_of(write))


if __name__ == "__main__":
    main()
