"""The end of a closed partition, with the state that a writer needs to continue there.

A broker that stops cleanly, and our own writer, leave a partition closed. The directory itself
shows that, with or without the clean-shutdown marker of the log directory:

- From the recovery point on every batch is whole and its checksum right (SEG-5, SEG-6, BAT-1).
  Without the marker a broker would truncate the log at the first bad batch.
- `.index` and `.timeindex` of the last segment exist and are trimmed. They are preallocated while a
  broker runs, so a crash leaves zeros at their end (IDX-5).
- Neither has an entry behind the log end (IDX-4), whose log would be lost.
- There is a producer snapshot at the log end offset (SNP-3), unless the log is empty. There is none
  above it, which would later count as a snapshot of a log that grows to that offset.
- The last batch of a producer in that snapshot does not lie between two segments.
- No compaction is unfinished (`.cleaned`, `.swap`).

Everything else is refused and has to be recovered first (`recovery.repair.broker_start`).

The index entries of the last segment are computed again from its batches. So the next roll or close
writes the same entries as a recovery (FIX-2).
"""

from __future__ import annotations

from bisect import bisect_right
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from storage.dirs.partition import floor_of
from storage.errors import FormatError, RefusedError, pasted
from storage.file_names import FileSuffix
from storage.formats import offset_index, time_index, txn_index
from storage.formats.producer_snapshot import parse_snapshot
from storage.formats.record_batch import MAGIC_V2, NO_LEADER_EPOCH
from storage.limits import MAX_OFFSET, MAX_RELATIVE_OFFSET
from storage.log.segment import open_segment

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from storage.dirs.partition import Partition
    from storage.dirs.partition_files import FileEntry, SegmentFiles
    from storage.formats.checkpoint import LeaderEpochEntry
    from storage.formats.producer_snapshot import ProducerEntry
    from storage.formats.txn_index import AbortedTxn
    from storage.kernels.protocol import HeaderTable, Verdict


# -- `.index` and `.timeindex` of a segment while it is written, batch by batch (rules APP-8,
# APP-9).
#
# Per batch at position p with last offset o and maximum timestamp m:
#
# * If m is above the maximum so far, remember m and o.
# * If p - (position of the last indexed batch, 0 at first) > index.interval.bytes, add entries.
#   `.index` gets (o, p). `.timeindex` gets the remembered pair if its timestamp is above the last
#   entry there (-1 at first).
#
# A roll or a close of the segment tries the remembered pair once more (ROLL-6). Source:
# LogSegment.append. `recovery.rebuild.index_builder` does the same for tables of batches.


class SegmentIndexes:
    """The entries of one segment so far.

    Attributes:
        offset_entries_count, time_entries_count: the number of entries in a broker's two files.
    """

    def __init__(self, base_offset: int, interval_bytes: int) -> None:
        self.base_offset = base_offset
        self.interval_bytes = interval_bytes
        self.offset_entries_count = 0
        self.time_entries_count = 0
        self._offset_entries = bytearray()
        self._time_entries = bytearray()
        self._last_indexed_pos = 0
        self._max_timestamp_ms = -1
        self._max_timestamp_offset = -1
        self._last_entry_ms = -1

    def add(self, pos: int, last_offset: int, max_timestamp_ms: int) -> None:
        """Add the next batch."""
        if max_timestamp_ms > self._max_timestamp_ms:
            self._max_timestamp_ms = max_timestamp_ms
            self._max_timestamp_offset = last_offset
        if pos - self._last_indexed_pos > self.interval_bytes:
            self._add_entry(pos, last_offset)

    def add_run(
        self, pos: Sequence[int], last_offsets: Sequence[int], timestamps_ms: Sequence[int]
    ) -> None:
        """Add the next batches. Most small batches get no entry, and cost no line of Python."""
        count, done = len(pos), 0
        while done < count:
            row = bisect_right(pos, self._last_indexed_pos + self.interval_bytes, done, count)
            behind = min(row + 1, count)
            newest_ms = max(timestamps_ms[done:behind])
            if newest_ms > self._max_timestamp_ms:
                self._max_timestamp_ms = newest_ms
                self._max_timestamp_offset = last_offsets[timestamps_ms.index(newest_ms, done)]
            if row < count:
                self._add_entry(pos[row], last_offsets[row])
            done = behind

    def _add_entry(self, pos: int, last_offset: int) -> None:
        self._offset_entries += offset_index.ENTRY.pack(last_offset - self.base_offset, pos)
        self.offset_entries_count += 1
        self._last_indexed_pos = pos
        entry = self._time_entry()
        if entry:
            self._time_entries += entry
            self.time_entries_count += 1
            self._last_entry_ms = self._max_timestamp_ms

    def free_slots(self, index_max_bytes: int) -> int:
        """Return the number of entries that still fit.

        The time index keeps a slot for its last entry.
        """
        offset_slots = index_max_bytes // offset_index.ENTRY_BYTES
        time_slots = index_max_bytes // time_index.ENTRY_BYTES
        return min(
            offset_slots - self.offset_entries_count, time_slots - 1 - self.time_entries_count
        )

    def is_full(self, index_max_bytes: int) -> bool:
        """Return whether one of the indexes is full."""
        # As `free_slots`, but inlined, since it runs for every batch.
        return (
            self.offset_entries_count >= index_max_bytes // offset_index.ENTRY_BYTES
            or self.time_entries_count >= index_max_bytes // time_index.ENTRY_BYTES - 1
        )

    def offset_index(self) -> bytes:
        """Return `.index`, trimmed."""
        return bytes(self._offset_entries)

    def time_index(self) -> bytes:
        """Return `.timeindex`, trimmed, with the last entry that a roll or a close adds."""
        return bytes(self._time_entries) + self._time_entry()

    def _time_entry(self) -> bytes:
        if self._max_timestamp_ms <= self._last_entry_ms:
            return b""
        offset = self._max_timestamp_offset - self.base_offset
        return time_index.ENTRY.pack(self._max_timestamp_ms, offset)


# -- log tail


RECOVER_FIRST = "let a broker start on it and stop it cleanly, then run it again"


class NotClosedError(RefusedError):
    """A partition that a broker would first recover, as `recovery.repair.broker_start` does."""


class LogTail(NamedTuple):
    """The state of a log with which a writer continues.

    Attributes:
        base_offset: of the last segment, or of the first segment to be written.
        log_bytes: size of that segment.
        end_offset: the log end offset.
        first_timestamp_ms: maximum timestamp of the segment's first batch, or None without a batch.
        indexes: the segment's entries.
        aborted: the entries of its `.txnindex`.
        epochs: of `leader-epoch-checkpoint`.
        last_leader_epoch: the highest leader epoch in the file and in the batches, or -1.
        producers: of the snapshot at the log end offset, in file order.
    """

    base_offset: int
    log_bytes: int
    end_offset: int
    first_timestamp_ms: int | None
    indexes: SegmentIndexes
    aborted: tuple[AbortedTxn, ...]
    epochs: tuple[LeaderEpochEntry, ...]
    last_leader_epoch: int
    producers: tuple[ProducerEntry, ...]


def empty_tail(start_offset: int, index_interval_bytes: int) -> LogTail:
    """Return the tail of a log without a segment."""
    return LogTail(
        base_offset=start_offset,
        log_bytes=0,
        end_offset=start_offset,
        first_timestamp_ms=None,
        indexes=SegmentIndexes(start_offset, index_interval_bytes),
        aborted=(),
        epochs=(),
        last_leader_epoch=NO_LEADER_EPOCH,
        producers=(),
    )


def read_tail(
    partition: Partition,
    index_interval_bytes: int,
    *,
    on_bytes: Callable[[int], None] | None = None,
) -> LogTail:
    """Require that a partition is closed, and return its tail for a writer.

    Args:
        partition: recently listed, with its log directory.
        index_interval_bytes: used to compute the index entries of the last segment.
        on_bytes: receives the number of further verified bytes of log.

    Raises:
        RefusedError: the partition is not closed, or its log is in an older format.
        AccessError: a `.log` cannot be read.
    """
    _require_no_problems(partition)
    for entry in partition.files.others:
        if entry.name.suffix in {FileSuffix.CLEANED, FileSuffix.SWAP}:
            raise _refused(entry.path, "a compaction that a broker has to finish or undo")
    checkpoint = None
    if partition.log_dir is not None:
        checkpoint = partition.log_dir.log_start_offset(partition.directory)
    epochs = tuple(partition.leader_epochs() or ())
    _require_no_problems(partition)
    last_epoch = epochs[-1].epoch if epochs else NO_LEADER_EPOCH
    if not partition.segments:
        tail = empty_tail(checkpoint or 0, index_interval_bytes)
        _require_no_later_snapshot(partition, tail.end_offset)
        return tail._replace(epochs=epochs, last_leader_epoch=last_epoch)
    walk = TailWalk(index_interval_bytes, on_bytes)
    for files in partition.segments[_first_to_verify(partition) :]:
        walk.read(files)
    files = partition.segments[-1]
    if checkpoint is not None and checkpoint > walk.end_offset:
        raise RefusedError(
            f"{partition.path}: its log start offset is {checkpoint}, above its end"
            f" {walk.end_offset}. A broker would delete all of it at its start [OFS-1]",
            next_step="correct its line in log-start-offset-checkpoint",
        )
    require_room(files, walk.end_offset)
    require_flushed(partition, walk.end_offset)
    for index_file in (files.offset_index, files.time_index):
        _require_trimmed(partition, index_file, files, walk.end_offset)
    producers = _read_producers(partition, walk.end_offset)
    _require_not_lost(partition, producers, walk.gaps)
    return LogTail(
        base_offset=files.base_offset,
        log_bytes=files.log.file_bytes,
        end_offset=walk.end_offset,
        first_timestamp_ms=walk.first_timestamp_ms,
        indexes=walk.indexes,
        aborted=_read_aborted(partition, files, walk.end_offset),
        epochs=epochs,
        last_leader_epoch=max(last_epoch, walk.last_leader_epoch),
        producers=producers,
    )


def _refused(path: str, what: str, next_step: str = RECOVER_FIRST) -> NotClosedError:
    return NotClosedError(f"{path}: not closed cleanly: {what}", next_step=next_step)


def _require_no_problems(partition: Partition) -> None:
    for problem in partition.problems:
        raise _refused(partition.path, str(problem)) from problem


def _first_to_verify(partition: Partition) -> int:
    """Return the recovery point: there a broker without a clean-shutdown marker begins (REC-6)."""
    log_dir = partition.log_dir
    recovery_point = None if log_dir is None else log_dir.recovery_point(partition.directory)
    return floor_of(partition.segments, recovery_point or 0)


class TailWalk:
    """A reader of segments in order, which then knows the end of the last segment."""

    def __init__(
        self,
        index_interval_bytes: int,
        on_bytes: Callable[[int], None] | None,
        *,
        may_be_older: bool = False,
    ) -> None:
        """Begin before the first segment.

        `may_be_older`: messages before magic 2 are counted too. A writer must not append to them.
        """
        self._may_be_older = may_be_older
        self._interval_bytes = index_interval_bytes
        self._on_bytes = on_bytes
        self.end_offset = 0
        self.first_timestamp_ms: int | None = None
        self.last_leader_epoch = NO_LEADER_EPOCH
        self.indexes = SegmentIndexes(0, index_interval_bytes)
        self.gaps: list[range] = []  # offsets between segments
        self._has_begun = False

    def read(self, files: SegmentFiles, end_pos: int | None = None) -> None:
        """Verify a segment, up to a position, and count its index entries.

        Raises:
            NotClosedError: a batch is not good, or its offsets do not fit.
            AccessError: it cannot be read.
        """
        base_offset = files.base_offset
        if base_offset < self.end_offset:
            raise _refused(
                files.log.path, f"the segment before it ends at {self.end_offset} [SEG-1]"
            )
        if self._has_begun and base_offset > self.end_offset:
            self.gaps.append(range(self.end_offset, base_offset))
        self._has_begun = True
        self.end_offset = base_offset
        self.first_timestamp_ms = None
        self.indexes = SegmentIndexes(base_offset, self._interval_bytes)
        with open_segment(files.log.path) as segment:
            scan = segment.scan_tables(end_pos=end_pos)
            for table in scan:
                # Verdicts run ahead of rows, so offsets that do not fit the base offset are never
                # counted.
                _require_ok(files, scan.verdicts)
                self._take(table, files)
            _require_ok(files, scan.verdicts)

    def _take(self, table: HeaderTable, files: SegmentFiles) -> None:
        if not table.row_count:
            return
        if int(table.magic.min()) < MAGIC_V2 and not self._may_be_older:
            raise RefusedError(
                f"{files.log.path}: written in an older message format, whose broker may not know "
                "the format that is written here"
            )
        if self.first_timestamp_ms is None:
            self.first_timestamp_ms = int(table.max_timestamp_ms[0])
        add = self.indexes.add
        for pos, last_offset, timestamp_ms in zip(
            table.pos.tolist(),
            table.last_offset.tolist(),
            table.max_timestamp_ms.tolist(),
            strict=True,
        ):
            add(pos, last_offset, timestamp_ms)
        self.end_offset = int(table.last_offset[-1]) + 1
        self.last_leader_epoch = max(
            self.last_leader_epoch, int(table.partition_leader_epoch.max())
        )
        if self._on_bytes is not None:
            self._on_bytes(int(table.batch_bytes.sum()))


def _require_ok(files: SegmentFiles, verdicts: list[Verdict]) -> None:
    for verdict in verdicts:
        raise _refused(files.log.path, _describe(verdict))


def require_room(files: SegmentFiles, end_offset: int) -> None:
    """Refuse a file that would fail in appending, or in a broker afterwards."""
    path = files.log.path
    if Path(path).is_symlink():
        raise RefusedError(f"{path}: is a symbolic link", next_step="put the file itself there")
    if end_offset > MAX_OFFSET - MAX_RELATIVE_OFFSET:
        raise RefusedError(f"{path}: ends at {end_offset}: there are no offsets left")


def require_flushed(partition: Partition, end_offset: int) -> None:
    """Refuse a log that ends below its recovery point (OFS-2)."""
    log_dir = partition.log_dir
    recovery_point = None if log_dir is None else log_dir.recovery_point(partition.directory)
    if recovery_point is not None and recovery_point > end_offset:
        raise RefusedError(
            f"{partition.path}: ends at {end_offset}, below its recovery point {recovery_point}:"
            " what was flushed is gone, and its offsets must not be given out again [OFS-2]",
            next_step="get the missing segments back, or correct recovery-point-offset-checkpoint",
        )


def _describe(verdict: Verdict) -> str:
    where = f"{verdict.kind} at position {verdict.start_pos}"
    reason = f": {verdict.reason}" if verdict.reason else ""
    return f"{where}{reason} [{verdict.check_id}]" if verdict.check_id else where + reason


def _require_trimmed(
    partition: Partition, entry: FileEntry | None, files: SegmentFiles, end_offset: int
) -> None:
    """Require that an index of the last segment is trimmed, as after a roll or a close (IDX-5)."""
    rebuild = f"eoctl rebuild {pasted(partition.path)} --apply"
    if entry is None:
        if files.log.file_bytes:
            raise _refused(files.log.path, "an index of the last segment is missing", rebuild)
        return
    data = partition.read_file(entry)
    _require_no_problems(partition)
    kind = time_index if entry is files.time_index else offset_index
    if not data:
        return
    if kind.logical_entry_count(data) * kind.ENTRY_BYTES != len(data):
        raise _refused(entry.path, "it is not trimmed, as after a crash [IDX-5]", rebuild)
    last = kind.parse_entry(data, len(data) - kind.ENTRY_BYTES)
    if files.base_offset + last.relative_offset >= end_offset:
        raise _refused(
            entry.path, f"it leads behind the end of the log, {end_offset} [IDX-4]", rebuild
        )


def _read_aborted(
    partition: Partition, files: SegmentFiles, end_offset: int
) -> tuple[AbortedTxn, ...]:
    """Read `.txnindex`, which must pass a broker's sanity check (REC-5)."""
    entry = files.txn_index
    data = partition.read_file(entry)
    _require_no_problems(partition)
    if entry is None or not data:
        return ()
    for problem in txn_index.problems(data, files.base_offset, end_offset):
        raise _refused(entry.path, str(problem)) from problem
    return tuple(txn_index.parse_entries(data))


def _require_not_lost(
    partition: Partition, producers: Iterable[ProducerEntry], gaps: Sequence[range]
) -> None:
    """Require that no gap between segments contains a producer's last batch. Other gaps are legal.

    Compaction keeps that batch (COMP-6). Such a gap may be the lost end of a log that was never
    synced.
    """
    for entry in producers:
        for offset in (entry.last_offset, entry.current_txn_first_offset):
            for gap in gaps:
                if offset in gap:
                    raise _refused(
                        partition.path,
                        f"no segment has offset {offset}, known to be of producer"
                        f" {entry.producer_id} [SNP-6]",
                    )


def _require_no_later_snapshot(partition: Partition, end_offset: int) -> None:
    for each in partition.files.snapshots:
        if each.name.offset is not None and each.name.offset > end_offset:
            raise _refused(
                each.path,
                f"a producer snapshot above the end of the log, {end_offset}. A broker deletes it",
            )


def _read_producers(partition: Partition, end_offset: int) -> tuple[ProducerEntry, ...]:
    """Read the snapshot at the log end offset. An empty log has none."""
    _require_no_later_snapshot(partition, end_offset)
    entry = next(
        (each for each in partition.files.snapshots if each.name.offset == end_offset), None
    )
    data = partition.read_file(entry)
    _require_no_problems(partition)
    if entry is None or data is None:
        log_start = partition.log_start_offset
        if log_start is not None and log_start >= end_offset:
            return ()
        raise _refused(
            partition.path,
            f"there is no producer snapshot at its end, {end_offset:020d}.snapshot [SNP-3]",
            f"eoctl recover-state {pasted(partition.path)} --apply",
        )
    try:
        return tuple(parse_snapshot(data))
    except FormatError as exc:
        raise _refused(
            entry.path, str(exc), f"eoctl recover-state {pasted(partition.path)} --apply"
        ) from exc
