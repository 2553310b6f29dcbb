"""Users' SCRAM credentials and ACLs in an old `__cluster_metadata`: the last word of each.

They are taken over as the records that they are: nothing of them is decoded and made anew.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from storage.errors import AccessError, FormatError
from storage.formats import cluster_metadata as records
from storage.log.segment import open_segment

if TYPE_CHECKING:
    from collections.abc import Hashable

    from storage.dirs.partition import Partition
    from storage.formats.cluster_metadata import MetadataRecord

_SET = {records.USER_SCRAM_CREDENTIAL: ("name", "mechanism"), records.ACCESS_CONTROL_ENTRY: ("id",)}
_REMOVED = {
    records.REMOVE_USER_SCRAM_CREDENTIAL: records.USER_SCRAM_CREDENTIAL,
    records.REMOVE_ACCESS_CONTROL_ENTRY: records.ACCESS_CONTROL_ENTRY,
}


class SecurityRecords:
    """What holds after a metadata log.

    Attributes:
        problems: what could not be read, in words: then it is not all of it.
    """

    def __init__(self, partition: Partition) -> None:
        self.problems: list[str] = []
        self._held: dict[Hashable, bytes] = {}
        self._pending: list[tuple[MetadataRecord, bytes]] | None = None
        start_offset = 0
        for entry in reversed(partition.files.checkpoints):
            if self._read(entry.path, 0):
                start_offset = entry.name.offset or 0
                break
            self._held.clear()
        for files in partition.segments:
            self._read(files.log.path, start_offset)

    @property
    def values(self) -> tuple[bytes, ...]:
        """The records, in the order in which they were set."""
        return tuple(self._held.values())

    @property
    def users_count(self) -> int:
        """How many of them are credentials."""
        return sum(
            records.parse_record(each).api_key == records.USER_SCRAM_CREDENTIAL
            for each in self._held.values()
        )

    def _read(self, path: str, start_offset: int) -> bool:
        before = len(self.problems)
        try:
            with open_segment(path) as segment:
                scan = segment.scan()
                for batch in scan:
                    if batch.header.is_control or batch.crc_ok is False:
                        continue
                    for record in segment.records(batch):
                        if record.offset >= start_offset and record.value is not None:
                            self._take(bytes(record.value))
                self.problems += (
                    f"{path}: position {each.start_pos}: {each.reason or each.kind}"
                    for each in scan.verdicts
                    if each.check_id != "SEG-6"  # a torn or preallocated tail is no loss
                )
        except (AccessError, FormatError) as error:
            self.problems.append(f"{path}: {error}")
        return len(self.problems) == before

    def _take(self, value: bytes) -> None:
        try:
            record = records.parse_record(value)
        except FormatError:
            return  # of a newer release: nothing that is set here
        if record.api_key == records.BEGIN_TRANSACTION:
            self._pending = []
        elif record.api_key == records.ABORT_TRANSACTION:
            self._pending = None
        elif record.api_key == records.END_TRANSACTION:
            pending, self._pending = self._pending or [], None
            for each in pending:
                self._apply(*each)
        elif self._pending is not None:
            self._pending.append((record, value))
        else:
            self._apply(record, value)

    def _apply(self, record: MetadataRecord, value: bytes) -> None:
        kind = _REMOVED.get(record.api_key, record.api_key)
        if kind not in _SET:
            return
        key = (kind, *(record.data[name] for name in _SET[kind]))
        self._held.pop(key, None)
        if record.api_key == kind:
            self._held[key] = value
