"""The files of a broker, read and written byte for byte.

This package knows the content of a log directory. The decisions about repairs are elsewhere.

From the entry down: value_pieces, file_names, checksum, limits, counts, errors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import os

    from storage.dirs.partition import Partition
    from storage.log.segment import Segment

__all__ = ["open_partition", "open_segment"]


def open_partition(path: str | os.PathLike[str]) -> Partition:
    """Open a partition directory read-only, without a lock.

    Raises:
        UsageError: the path leads to no partition, or to several.
        AccessError: it cannot be read.
    """
    from pathlib import Path

    from storage.dirs.discovery import select_partition
    from storage.dirs.partition import Partition

    return Partition.of(select_partition(Path(path)))


def open_segment(path: str | os.PathLike[str]) -> Segment:
    """Open one `.log` read-only, as a context manager. Its name gives its base offset.

    Raises:
        AccessError: it cannot be read.
    """
    from storage.log.segment import open_segment as open_file

    return open_file(path)
