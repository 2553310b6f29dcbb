"""The records behind rows of duplicates: their keys, and how their values begin."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from storage.dirs.discovery import select_partition
from storage.dirs.partition import Partition
from storage.errors import EoctlError
from storage.log.segment import open_segment

if TYPE_CHECKING:
    from storage.log.segment import LogRecord

MAX_BATCH_RECORDS = 65_536  # of a batch that is kept; of a larger one the record alone is found
MAX_PARTITIONS = 64  # that are kept open


class RecordFinder:
    """Finds records by offset; those asked for one after the other share batches."""

    def __init__(self) -> None:
        self._partitions: dict[str, Partition | None] = {}
        self._batch: tuple[str, int, int] | None = None  # directory, first and last offset
        self._records: dict[int, LogRecord] = {}

    def at(self, log_path: str, offset: int) -> LogRecord | None:
        """Return the record at an offset, None if it cannot be read; the path is any `.log`'s."""
        directory = os.path.dirname(log_path)  # noqa: PTH120 - called for each row
        if self._batch is not None:
            known, first, last = self._batch
            if known == directory and first <= offset <= last:
                return self._records.get(offset)
        try:
            return self._read(directory, offset)
        except EoctlError:
            return None

    def _read(self, directory: str, offset: int) -> LogRecord | None:
        partition = self._partition(directory)
        place = None if partition is None else partition.find_offset(offset)
        if place is None or place.batch.crc_ok is False:
            return None
        with open_segment(place.files.log.path, base_offset=place.files.base_offset) as segment:
            records = segment.records(place.batch)
            if place.batch.header.records_count > MAX_BATCH_RECORDS:
                return next((each for each in records if each.offset == offset), None)
            found = {each.offset: each for each in records}
        if found:
            self._batch = directory, min(found), max(found)
            self._records = found
        return found.get(offset)

    def _partition(self, directory: str) -> Partition | None:
        if directory not in self._partitions:
            if len(self._partitions) == MAX_PARTITIONS:
                self._partitions.clear()
            self._partitions[directory] = None
            self._partitions[directory] = Partition.of(select_partition(directory))
        return self._partitions[directory]
