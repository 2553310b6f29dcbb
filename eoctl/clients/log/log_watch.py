"""Waits until a partition directory has changed, and tells whether a place in it is still there."""

from __future__ import annotations

import time
from errno import ENOENT
from pathlib import Path
from typing import TYPE_CHECKING

from storage.errors import AccessError
from storage.file_names import HIGH_WATERMARK_NAME

if TYPE_CHECKING:
    from collections.abc import Iterable

    from storage.dirs.partition import Partition

    Place = tuple[int, int]  # base offset of a segment, position in it

POLL_S = 0.1


class LogWatch:
    """Watches the active segment, the directory, and the checkpoint of the high watermark."""

    def __init__(self, partition: Partition) -> None:
        self._partition = partition
        # Nothing is known of what came between the listing and now: the first wait is over at once.
        self._seen: tuple[object, ...] = ()

    def wait(self) -> bool:
        """Sleep a moment; True if something has changed since `refresh`."""
        time.sleep(POLL_S)
        return self.has_changed()

    def has_changed(self) -> bool:
        """True if something has changed since `refresh`."""
        return self._look() != self._seen

    def refresh(self, places: Iterable[Place]) -> bool:
        """List the partition again; False if one of the places is not there any more.

        Raises:
            AccessError: the directory is gone.
        """
        partition = self._partition
        self._seen = self._look()
        if not Path(partition.path).is_dir():
            error = FileNotFoundError(ENOENT, "the directory is gone while it was followed")
            raise AccessError(error, partition.path)
        partition.refresh()
        partition.notes.clear()  # that segments roll is no news
        sizes = {each.base_offset: each.log.file_bytes for each in partition.segments}
        return all(sizes.get(base_offset, -1) >= pos for base_offset, pos in places)

    def _look(self) -> tuple[object, ...]:
        segments = self._partition.segments
        active = segments[-1].log.path if segments else self._partition.path
        checkpoint = Path(self._partition.path).parent / HIGH_WATERMARK_NAME
        return tuple(map(_state, (Path(self._partition.path), Path(active), checkpoint)))


def _state(path: Path) -> tuple[int, int, int]:
    try:
        found = path.stat()
    except OSError:
        return 0, 0, 0
    return found.st_ino, found.st_size, found.st_mtime_ns
