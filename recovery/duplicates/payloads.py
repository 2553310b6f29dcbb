"""From found pairs to what is reported: with paths, and whether two batches say the same."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from recovery.duplicates.record_digests import content_of, digest_of
from recovery.duplicates.rows import OUTCOMES, Duplicate, DuplicateKind
from recovery.summaries.sequence_ranges import LAP
from storage.dirs.partition import floor_of
from storage.errors import AccessError, FormatError
from storage.formats.record_batch import HEADER_BYTES, parse_header
from storage.kernels.protocol import ScannedBatch
from storage.log.segment import open_segment

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

    from recovery.duplicates.spill import Rows
    from storage.dirs.partition import Partition
    from storage.dirs.partition_files import SegmentFiles
    from storage.log.segment import LogRecord, Segment

MAX_OPEN_SEGMENTS = 4


class _Compared(NamedTuple):
    """What two batches have in the places that both hold."""

    records_count: int | None
    is_same_payload: bool | None
    payload_hash: str | None


UNREADABLE = _Compared(None, None, None)


class PairReporter:
    """Makes a Duplicate of each pair; a context manager, since it keeps some segments open.

    Args:
        partitions: by the numbers that the pairs call directories.
    """

    def __init__(self, partitions: dict[int, Partition]) -> None:
        self._partitions = partitions
        self._segments: dict[str, Segment] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for segment in self._segments.values():
            segment.close()
        self._segments.clear()

    def proved(self, pair: Rows) -> Duplicate:
        """Report two batches; both are read again."""
        partition = self._partitions[int(pair["directory"])]
        first, repeat = pair["first"], pair["repeat"]
        start = max(_start(first), _start(repeat))
        end = min(_end(first), _end(repeat))
        compared = self._compare(partition, first, repeat, start, end)
        return Duplicate(
            kind=DuplicateKind.PROVED,
            topic=partition.topic,
            partition=_number(partition),
            first_partition=_number(partition),
            first_base_offset=int(first["base_offset"]),
            first_last_offset=_last_offset(first),
            repeat_base_offset=int(repeat["base_offset"]),
            repeat_last_offset=_last_offset(repeat),
            records_count=compared.records_count,
            first_timestamp_ms=int(first["max_timestamp_ms"]),
            repeat_timestamp_ms=int(repeat["max_timestamp_ms"]),
            **_sessions(first, repeat),
            base_sequence=start % LAP,
            last_sequence=(end - 1) % LAP,
            is_same_payload=compared.is_same_payload,
            payload_hash=compared.payload_hash,
            first_path=_files(partition, int(first["base_offset"])).log.path,
            path=_files(partition, int(repeat["base_offset"])).log.path,
        )

    def suspected(self, pair: Rows, *, by_id: bool) -> Duplicate:
        """Report two records."""
        first, repeat = pair["first"], pair["repeat"]
        first_in = self._partitions[int(first["directory"])]
        repeat_in = self._partitions[int(repeat["directory"])]
        prefix = "payload" if by_id else "hash"
        first_hash, repeat_hash = _hash(first, prefix), _hash(repeat, prefix)
        return Duplicate(
            kind=DuplicateKind.SUSPECTED,
            topic=repeat_in.topic,
            partition=_number(repeat_in),
            first_partition=_number(first_in),
            first_base_offset=int(first["offset"]),
            first_last_offset=int(first["offset"]),
            repeat_base_offset=int(repeat["offset"]),
            repeat_last_offset=int(repeat["offset"]),
            records_count=1,
            first_timestamp_ms=int(first["timestamp_ms"]),
            repeat_timestamp_ms=int(repeat["timestamp_ms"]),
            **_sessions(first, repeat),
            base_sequence=None,
            last_sequence=None,
            is_same_payload=first_hash == repeat_hash,
            payload_hash=repeat_hash,
            first_path=_files(first_in, int(first["offset"])).log.path,
            path=_files(repeat_in, int(repeat["offset"])).log.path,
        )

    def _compare(
        self, partition: Partition, first: Any, repeat: Any, start: int, end: int
    ) -> _Compared:
        contents = []
        for each in (first, repeat):
            try:
                records = self._records(partition, each)
            except (AccessError, FormatError):
                return UNREADABLE
            shift = _start(each) - int(each["base_offset"])
            contents.append(
                {
                    record.offset + shift: content_of(record)
                    for record in records
                    if start <= record.offset + shift < end
                }
            )
        in_first, in_repeat = contents
        digest = digest_of(in_repeat.values())
        return _Compared(len(in_repeat), in_first == in_repeat, digest.hex())

    def _records(self, partition: Partition, batch: Any) -> list[LogRecord]:
        """Read a batch again. Raises AccessError, FormatError."""
        segment = self._segment(_files(partition, int(batch["base_offset"])))
        pos = int(batch["pos"])
        header = parse_header(segment.file.read_at(pos, HEADER_BYTES).data, 0)
        return list(segment.records(ScannedBatch(pos, header, crc_ok=True)))

    def _segment(self, files: SegmentFiles) -> Segment:
        path = files.log.path
        if path not in self._segments:
            if len(self._segments) == MAX_OPEN_SEGMENTS:
                self._segments.pop(next(iter(self._segments))).close()
            self._segments[path] = open_segment(path, base_offset=files.base_offset)
        return self._segments[path]


def _start(batch: Any) -> int:
    return int(batch["start"])


def _end(batch: Any) -> int:
    return int(batch["start"]) + int(batch["sequences_count"])


def _last_offset(batch: Any) -> int:
    return int(batch["base_offset"]) + int(batch["sequences_count"]) - 1


def _number(partition: Partition) -> int | None:
    return partition.partition if partition.partition >= 0 else None


def _files(partition: Partition, offset: int) -> SegmentFiles:
    return partition.segments[floor_of(partition.segments, offset)]


def _hash(record: Any, prefix: str) -> str:
    return f"{int(record[prefix + '_high']):016x}{int(record[prefix + '_low']):016x}"


def _sessions(first: Any, repeat: Any) -> dict[str, Any]:
    return {
        "first_producer_id": int(first["producer_id"]),
        "first_producer_epoch": int(first["producer_epoch"]),
        "repeat_producer_id": int(repeat["producer_id"]),
        "repeat_producer_epoch": int(repeat["producer_epoch"]),
        "first_outcome": OUTCOMES[int(first["outcome"])],
        "repeat_outcome": OUTCOMES[int(repeat["outcome"])],
    }
