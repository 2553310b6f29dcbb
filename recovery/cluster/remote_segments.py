"""The segments in remote storage with the offsets of a partition, from `__remote_log_metadata`.

The topic has a record when the copy of a segment begins, and a record for each change of its state.
All records of a partition are in one partition of the topic. Not every broker has a copy of it, and
another kind of metadata manager may have no topic. Then the segments are unknown.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from recovery.cluster.coordinator_log import find_copies, furthest, reading_problems
from storage.counts import counted
from storage.dirs.discovery import discover
from storage.dirs.partition import Partition
from storage.errors import EoctlError, FormatError
from storage.file_names import REMOTE_METADATA_TOPIC
from storage.formats.partition_metadata import format_uuid
from storage.formats.remote_log_metadata import (
    DELETE_STATES,
    PARTITION_DELETE,
    SEGMENT,
    SEGMENT_STATES,
    SEGMENT_UPDATE,
    parse_record,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from typing import Any

    from storage.dirs.acknowledged_offsets import RemoteRange
    from storage.dirs.log_dir import LogDir
    from storage.errors import AccessError

_FINISHED = SEGMENT_STATES.index("COPY_SEGMENT_FINISHED")
_GONE = SEGMENT_STATES.index("DELETE_SEGMENT_FINISHED")
_PARTITION_GONE = DELETE_STATES.index("DELETE_PARTITION_FINISHED")
_REPORTED_HOLES_COUNT = 5


class RemoteSegment(NamedTuple):
    """One segment in remote storage, by the last record about it.

    `state` is one of `remote_log_metadata.SEGMENT_STATES`. Only finished segments can be read.
    """

    topic: str
    partition: int
    start_offset: int
    end_offset: int  # inclusive, as in the record
    state: str
    log_bytes: int
    max_timestamp_ms: int
    segment_id: str

    @property
    def is_readable(self) -> bool:
        """Return whether a broker reads from it."""
        return self.state == SEGMENT_STATES[_FINISHED]


def report_remote(directories: Sequence[str]) -> Iterator[str]:
    """Yield messages about the remote-only data of existing partition directories."""
    if not directories:
        return
    try:
        found = discover(directories)
        remote = RemoteSegments(found.log_dirs)
        for each in found.selected:
            reported = remote.report(Partition.of(each))
            if reported:
                yield reported
    except EoctlError:
        return


class RemoteSegments:
    """The remote segments of all partitions that the given log dirs know.

    They are read when the first partition needs them.
    """

    def __init__(self, log_dirs: Iterable[LogDir]) -> None:
        self._log_dirs = tuple(log_dirs)
        self._by_partition: dict[tuple[str, int], dict[bytes, RemoteSegment]] | None = None
        self.problems: list[FormatError | AccessError] = []

    def of(self, partition: Partition) -> list[RemoteSegment]:
        """Return the segments of one partition, by start offset."""
        if self._by_partition is None:
            self._by_partition = {}
            self._read()
        topic_id = partition.topic_id()
        found = self._by_partition.get((topic_id or "", partition.partition), {})
        return sorted(found.values(), key=lambda each: (each.start_offset, each.segment_id))

    def report(self, partition: Partition) -> str:
        """Return a sentence about the remote-only data of a partition, or "" if there is none."""
        remote = partition.remote_range
        if remote is None:
            return ""
        return f"{partition.path}: {remote}{_where(remote, self.of(partition))}"

    def _read(self) -> None:
        copies, problems = find_copies(self._log_dirs, REMOTE_METADATA_TOPIC)
        self.problems += problems
        for number in sorted(copies):
            for source in furthest(copies[number])[:1]:
                self._read_one(source)

    def _read_one(self, source: Partition) -> None:
        reading = source.read(0)
        for _, segment, batch in reading:
            if batch.crc_ok is False or batch.header.is_control:
                continue
            try:
                for record in segment.records(batch):
                    parsed = parse_record(record.value)
                    self._replay(parsed.api_key, parsed.data)
            except FormatError as error:
                self.problems.append(error.located(segment.path, batch.pos))
        self.problems += reading_problems(source, reading)

    def _replay(self, api_key: int, data: dict[str, Any]) -> None:
        assert self._by_partition is not None
        if api_key == PARTITION_DELETE:
            if data["remotePartitionDeleteState"] == _PARTITION_GONE:
                self._by_partition.pop(_key(data["topicIdPartition"]), None)
            return
        if api_key not in {SEGMENT, SEGMENT_UPDATE}:
            return
        name = data["remoteLogSegmentId"]["topicIdPartition"]
        segment_id = data["remoteLogSegmentId"]["id"]
        segments = self._by_partition.setdefault(_key(name), {})
        state = data["remoteLogSegmentState"]
        if state == _GONE:
            segments.pop(segment_id, None)
        elif api_key == SEGMENT:
            segments[segment_id] = RemoteSegment(
                topic=name["name"],
                partition=name["partition"],
                start_offset=data["startOffset"],
                end_offset=data["endOffset"],
                state=_state(state),
                log_bytes=data["segmentSizeInBytes"],
                max_timestamp_ms=data["maxTimestampMs"],
                segment_id=format_uuid(segment_id),
            )
        elif segment_id in segments:
            segments[segment_id] = segments[segment_id]._replace(state=_state(state))


def _key(name: dict[str, Any]) -> tuple[str, int]:
    return format_uuid(name["id"]), name["partition"]


def _state(number: int) -> str:
    return SEGMENT_STATES[number] if 0 <= number < len(SEGMENT_STATES) else str(number)


def _where(remote: RemoteRange, segments: Sequence[RemoteSegment]) -> str:
    if not segments:
        return f" (in unknown segments: no record of {REMOTE_METADATA_TOPIC} here)"
    readable = [each for each in segments if each.is_readable]
    held = [each for each in readable if each.start_offset < remote.end_offset]
    held = [each for each in held if each.end_offset >= remote.start_offset]
    size_bytes = sum(each.log_bytes for each in held)
    text = f", in {counted(len(held), 'segment')} of {size_bytes} bytes by {REMOTE_METADATA_TOPIC}"
    holes = _holes(remote, held)
    if holes:
        named = ", ".join(f"{start} to {end - 1}" for start, end in holes[:_REPORTED_HOLES_COUNT])
        text += f"; no finished segment is known of offsets {named}"
        if len(holes) > _REPORTED_HOLES_COUNT:
            text += f" and {len(holes) - _REPORTED_HOLES_COUNT} more ranges"
    return text


def _holes(remote: RemoteRange, held: Sequence[RemoteSegment]) -> list[tuple[int, int]]:
    """Return the offset ranges that no segment covers. Sorted segments may overlap."""
    holes, next_offset = [], remote.start_offset
    for each in held:
        if each.start_offset > next_offset:
            holes.append((next_offset, each.start_offset))
        next_offset = max(next_offset, each.end_offset + 1)
    if next_offset < remote.end_offset:
        holes.append((next_offset, remote.end_offset))
    return holes
