"""A survey of one copy for a new cluster: the files to adopt, and the effects of a start."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from recovery.changes.plans.file_facts import data_bytes_of
from recovery.changes.plans.plan import (
    Action,
    LogSlice,
    Step,
    absolute_path,
    remove_step,
    replace_step,
    take_pieces,
)
from recovery.fsck.one_pass import CheckJob, check_one
from recovery.rebuild.segment_pass import PassEnd, SegmentJob, pass_over
from recovery.rules.findings import Severity
from recovery.start.files import StartAction
from recovery.transactions.open_transactions import find_open
from storage.dirs.offset_ledger import CHECK_ID as GAP_CHECK_ID
from storage.dirs.offset_ledger import OffsetLedger, OffsetSpan, joined
from storage.dirs.partition import Partition
from storage.errors import AccessError, EoctlError, FormatError
from storage.file_names import LEADER_EPOCHS_NAME, FileKind, FileSuffix
from storage.formats.offset_index import ENTRY_BYTES as OFFSET_ENTRY_BYTES
from storage.formats.producer_id_record import FIRST_ID as FIRST_LEASED_ID
from storage.formats.producer_snapshot import parse_snapshot
from storage.formats.record_batch import CONTROL_MASK
from storage.formats.time_index import ENTRY_BYTES as TIME_ENTRY_BYTES
from storage.log.segment import open_segment

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from recovery.checks.partition_check import CheckOptions
    from recovery.rules.findings import Finding
    from storage.dirs.discovery import Selected
    from storage.dirs.partition_files import FileEntry
    from storage.kernels.protocol import HeaderTable, ScannedBatch
    from storage.log.segment import Segment


# -- the files of a copy for a new log dir: copied, or linked if no broker writes to them.
#
#   `.log` of a closed segment    May be a hard link: brokers append only to the last `.log`, and
#                                 truncate nothing in a sound log.
#   `.log` of the last segment    Always a copy: data appended to a link would reach the source.
#   `.index`, `.timeindex`, ...   Always copies: a recovery writes them in place. Preallocated
#                                 zeros are left out: a broker preallocates again.
#   `leader-epoch-checkpoint`     Unchanged.
#   `partition.metadata`          With the id of the topic.
#   `.swap` of a compaction or    Unchanged. If the compaction or split is unfinished, the first
#   a split                       start replaces the old segments, as in the source (REC-4).
#   `.cleaned`, `.deleted`        Left out: a broker would remove them, and any `.swap` that is
#                                 incomplete according to a `.cleaned` (REC-3).
#
# If a copy is repaired, the new log dir gets the repaired content of its files. The source is
# unchanged.


_ENTRY_BYTES = {
    FileKind.INDEX: OFFSET_ENTRY_BYTES,
    FileKind.TIMEINDEX: TIME_ENTRY_BYTES,
}


class TakenFile(NamedTuple):
    """A file of the new directory: slices of other files, or a content.

    Attributes:
        is_whole: for `.log`: all of one file, whose segment is closed.
    """

    name: str
    ranges: tuple[LogSlice, ...]
    content: bytes
    is_whole: bool = False

    @property
    def file_bytes(self) -> int:
        """Its size."""
        return len(self.content) + sum(each.end_pos - each.start_pos for each in self.ranges)


def taken_files(partition: Partition, repairs: Sequence[Step] = ()) -> list[TakenFile]:
    """List the files to adopt from a copy, unchanged or as a repair would leave them.

    Raises:
        AccessError: a file cannot be read.
    """
    files = {each.name: each for each in _as_they_are(partition)}
    for step in repairs:
        name = Path(step.path).name
        if step.action is Action.REMOVE:
            files.pop(name, None)
        elif step.action is Action.TRUNCATE:
            files[name] = _sliced(step.path, step.after_bytes)
        elif step.pieces is not None:
            files[name] = TakenFile(name, step.pieces.ranges, b"")
        elif step.action is Action.REPLACE:
            files[name] = TakenFile(name, (), step.content or b"")
    # In reverse order: a broker must not find a later segment without the segments before it.
    return [files[name] for name in sorted(files, reverse=True)]


def _as_they_are(partition: Partition) -> Iterator[TakenFile]:
    for each in partition.segments:
        is_last = partition.is_active(each)
        end_bytes = _log_bytes(partition, each.log) if is_last else each.log.file_bytes
        yield _sliced(each.log.path, end_bytes)._replace(is_whole=not is_last)
        for entry in (each.offset_index, each.time_index, each.txn_index):
            if entry is not None:
                yield _index(entry)
    for entry in (*partition.files.snapshots, *swaps_of(partition)):
        yield _sliced(entry.path, entry.file_bytes)
    epochs = partition.files.other(LEADER_EPOCHS_NAME)
    if epochs is not None:
        yield TakenFile(LEADER_EPOCHS_NAME, (), _read(epochs.path))


def swaps_of(partition: Partition) -> list[FileEntry]:
    """Return the new segments that a start puts in the place of others (REC-3)."""
    others = partition.files.others
    unfinished = [e.name.offset or 0 for e in others if e.name.suffix is FileSuffix.CLEANED]
    return [
        each
        for each in others
        if each.name.suffix is FileSuffix.SWAP
        and all((each.name.offset or 0) < least for least in unfinished)
    ]


def _sliced(path: str, end_bytes: int) -> TakenFile:
    path = absolute_path(path)
    ranges = (LogSlice(path, 0, end_bytes),) if end_bytes else ()
    return TakenFile(Path(path).name, ranges, b"")


def _log_bytes(partition: Partition, entry: FileEntry) -> int:
    """Return the size without preallocated zeros. A batch may end with zeros, too."""
    end = partition.log_end()
    valid_bytes = 0 if end is None else end.valid_bytes
    return max(valid_bytes, data_bytes_of(entry.path, 0, entry.file_bytes))


def _index(entry: FileEntry) -> TakenFile:
    width = _ENTRY_BYTES.get(entry.name.kind)
    if width is None:
        return _sliced(entry.path, entry.file_bytes)
    data_bytes = data_bytes_of(entry.path, 0, entry.file_bytes)
    return _sliced(entry.path, min(-(-data_bytes // width) * width, entry.file_bytes))


def _read(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise AccessError(error, path) from error


def file_steps(directory: str, files: Sequence[TakenFile], *, is_linked: bool) -> Iterator[Step]:
    """Plan the files of a new partition directory. Reads the copied files for their digest.

    Raises:
        AccessError, RefusedError: a file cannot be read.
    """
    for each in files:
        path = f"{directory}/{each.name}"
        if not each.ranges:
            yield replace_step(path, each.content, "as it is in the copy")
            continue
        is_link = is_linked and each.is_whole
        yield Step(
            action=Action.LINK if is_link else Action.REPLACE,
            path=path,
            before=None,
            after_bytes=each.file_bytes,
            reason="a second name: no broker writes to it" if is_link else "copied",
            pieces=take_pieces(each.ranges),
        )


def removal_steps(partition: Partition) -> Iterator[Step]:
    """Plan the removal of the files of a moved copy. partition.metadata stays.

    Raises:
        AccessError, RefusedError: as `remove_step`.
    """
    directory = absolute_path(partition.path)
    entries: Mapping[str, FileEntry] = {
        each.name.name: each
        for segment in reversed(partition.segments)
        for each in (
            segment.log, segment.offset_index, segment.time_index, segment.txn_index,
        )
        if each is not None
    }  # fmt: skip
    names = [each.name.name for each in swaps_of(partition)]
    names += [*entries, *(each.name.name for each in partition.files.snapshots)]
    if partition.files.other(LEADER_EPOCHS_NAME) is not None:
        names.append(LEADER_EPOCHS_NAME)
    for name in names:
        yield remove_step(f"{directory}/{name}", "it has moved")


# -- facts about one copy that a new cluster needs, and the effects of the next start on it.
#
# There are two passes over its log. The check verifies all checksums. A pass over the headers finds
# the latest leader epoch, the greatest producer id that a broker allocated, and the gaps that
# compaction leaves.


NO_ID = -1
# partition.metadata is written again. Files outside the partition are not adopted. No repair
# restores lost offsets.
_NOT_TAKEN = frozenset({"DIR-4", GAP_CHECK_ID})
# Findings about offsets that no batch has.
_HOLES = frozenset({GAP_CHECK_ID, "SEG-9", "SEG-11"})


class LeftTransaction(NamedTuple):
    """A transaction without a marker."""

    producer_id: int
    first_offset: int


class Survey(NamedTuple):
    """The result of a survey.

    Attributes:
        start_offset, end_offset: of the log, as a reader sees it.
        start_end_offset: the log end offset after a start. None: the start does not load the log.
        last_epoch: the latest leader epoch of its batches and its checkpoint, or -1.
        last_producer_id: the greatest id that a broker allocated, or -1.
        has_gaps: compaction has left gaps. Lost offsets are not such gaps.
        has_unkeyed: it has gaps, and a record without a key, which a cleaner would remove.
        holes: lost offsets between batches, as text.
        swapped_count: new segments that a start puts in the place of others.
        damage: messages about broken rules and unreadable data. Empty: the copy is sound.
        recovered_bytes: bytes of `.log` that a start verifies.
        cut_bytes: bytes of `.log` that a start truncates.
        open_transactions: transactions without a marker. None: unknown.
    """

    path: str
    start_offset: int
    end_offset: int
    start_end_offset: int | None
    last_epoch: int
    last_producer_id: int
    has_gaps: bool
    has_unkeyed: bool
    holes: tuple[str, ...]
    swapped_count: int
    damage: tuple[str, ...]
    log_bytes: int
    recovered_bytes: int
    cut_bytes: int
    open_transactions: tuple[LeftTransaction, ...] | None


class SurveyJob(NamedTuple):
    """One copy, and the options of its check."""

    selected: Selected
    options: CheckOptions


def survey_copy(job: SurveyJob) -> Survey:
    """Survey one copy.

    Raises:
        AccessError: its directory cannot be listed.
    """
    checked = check_one(CheckJob(job.selected, None, job.options))
    partition = Partition.of(job.selected)
    walk, swaps = _HeaderWalk(partition), _Swaps(partition)
    epochs = [each.epoch for each in partition.leader_epochs() or ()]
    holes = [
        _Hole(
            path=each.path,
            start_offset=each.base_offset,
            end_offset=each.last_offset + 1,
            message=each.message,
        )
        for each in checked.findings
        if each.check_id in _HOLES and each.base_offset is not None and each.last_offset is not None
    ]
    has_gaps = walk.has_gaps(holes) or _was_cleaned(partition)
    damage = [_in_words(each) for each in checked.findings if _is_damage(each)]
    damage += checked.problems
    damage += swaps.damage
    sizes = {each.log.path: each.log.file_bytes for each in partition.segments}
    cut_bytes = sum(
        sizes.get(each.path, 0) - (each.size_bytes or 0)
        for each in checked.changes
        if each.action is StartAction.TRUNCATES and each.path in sizes
    )
    row = checked.row
    return Survey(
        path=partition.path,
        start_offset=swaps.start_offset(partition),
        end_offset=row.end_offset or 0,
        start_end_offset=row.start_end_offset,
        last_epoch=max([walk.last_epoch, *epochs]),
        last_producer_id=max(walk.last_producer_id, _of_snapshots(partition)),
        has_gaps=has_gaps,
        has_unkeyed=has_gaps and not is_sure_of_keys(partition),
        holes=tuple(each.reported for each in holes if not swaps.has(each)),
        swapped_count=len(swaps.paths),
        damage=tuple(dict.fromkeys(damage)),
        log_bytes=partition.files.log_bytes,
        recovered_bytes=row.recovered_bytes or 0,
        cut_bytes=cut_bytes,
        open_transactions=None if damage else _open_transactions(partition, job.options.now_ms),
    )


def _is_damage(finding: Finding) -> bool:
    return finding.severity is Severity.ERROR and finding.check_id not in _NOT_TAKEN


def _was_cleaned(partition: Partition) -> bool:
    """Return whether the broker has a cleaner checkpoint for it, as it has for compacted topics."""
    offsets = None if partition.log_dir is None else partition.log_dir.cleaner_offsets
    return partition.directory.topic_partition in (offsets or {})


def _in_words(finding: Finding) -> str:
    place = "" if finding.start_pos is None else f": position {finding.start_pos}"
    return f"{finding.path}{place}: {finding.message} [{finding.check_id}]"


class _Swaps:
    """New segments of an unfinished compaction. No check reads them.

    Attributes:
        ranges: of the offsets that each replaces, with an exclusive end.
        damage: messages.
    """

    def __init__(self, partition: Partition) -> None:
        logs = [each for each in swaps_of(partition) if each.name.kind is FileKind.LOG]
        self.paths = {each.path: each.name.offset or 0 for each in logs}
        self.ranges: list[tuple[int, int]] = []
        self.damage: list[str] = []
        for path, base_offset in self.paths.items():
            try:
                *_, end = pass_over(SegmentJob(path, base_offset, is_last=False))
            except (AccessError, FormatError) as error:
                self.damage.append(str(error))
                continue
            assert isinstance(end, PassEnd), "it comes last"
            self.ranges.append((base_offset, end.next_offset))
            if end.is_cut:
                self.damage.append(
                    f"{path}: position {end.valid_bytes}: left by a compaction that did not end,"
                    f" and damaged there [{end.verdict.check_id}]"
                )

    def has(self, hole: _Hole) -> bool:
        """Return whether one of them covers the missing offsets."""
        return any(
            start <= hole.start_offset and hole.end_offset <= end for start, end in self.ranges
        )

    def start_offset(self, partition: Partition) -> int:
        """Return the log start offset after they are renamed."""
        found = partition.local_log_start_offset or 0
        known = None if partition.log_dir is None else partition.log_dir.log_start_offsets
        noted = (known or {}).get(partition.directory.topic_partition, 0)
        return max(noted, min([found, *(start for start, _ in self.ranges)]))


class _Hole(NamedTuple):
    """Lost offsets between two batches."""

    path: str
    start_offset: int
    end_offset: int
    message: str

    @property
    def reported(self) -> str:
        """A sentence without its verb."""
        return f"{self.path}: {self.message}: they"


def _of_snapshots(partition: Partition) -> int:
    """Return the greatest id in the producer snapshots. Such an id may have no batch in the log."""
    found = NO_ID
    for each in partition.files.snapshots:
        data = partition.read_file(each)
        try:
            entries = () if data is None else parse_snapshot(data)
        except FormatError:
            continue
        ids = [e.producer_id for e in entries if e.producer_id < FIRST_LEASED_ID]
        found = max([found, *ids])
    return found


def _open_transactions(partition: Partition, now_ms: int) -> tuple[LeftTransaction, ...] | None:
    try:
        found, _ = find_open(partition, None, now_ms=now_ms)
    except (EoctlError, ValueError):
        return None
    return tuple(LeftTransaction(each.producer_id, each.first_offset) for each in found)


class _HeaderWalk:
    """A pass over the headers of a log."""

    def __init__(self, partition: Partition) -> None:
        self.last_epoch = NO_ID
        self.last_producer_id = NO_ID
        self._spans: list[OffsetSpan] = []
        self._ledger: OffsetLedger | None = None
        for files in partition.segments:
            self._ledger = OffsetLedger(files.base_offset)
            try:
                with open_segment(files.log.path, base_offset=files.base_offset) as segment:
                    bounds = partition.bounds(files)
                    for table in segment.scan_tables(**bounds, verify_crc=False):
                        self._take(table, segment)
            except AccessError:
                pass  # the check reports it
            self._spans.append(self._ledger.span)
        self._ledger = None
        for each in swaps_of(partition):
            if each.name.kind is FileKind.LOG:
                self._take_ids(each)

    def has_gaps(self, lost: Sequence[_Hole]) -> bool:
        """Return whether a cleaner has left gaps, which are the gaps that are not lost offsets."""
        span = joined(self._spans)
        gone = sum(each.end_offset - each.start_offset for each in lost)
        return bool(span.cleaned_end) or sum(last - first + 1 for first, last in span.gaps) > gone

    def _take_ids(self, swap: FileEntry) -> None:
        """Take the ids of a new segment. The segments that it replaces may be deleted already."""
        try:
            with open_segment(swap.path, base_offset=swap.name.offset or 0) as segment:
                for table in segment.scan_tables(verify_crc=False):
                    self._take(table, segment)
        except (AccessError, FormatError):
            return  # reported as damage

    def _take(self, table: HeaderTable, segment: Segment) -> None:
        if not table.row_count:
            return
        given = table.producer_id[table.producer_id < FIRST_LEASED_ID]
        if len(given):
            self.last_producer_id = max(self.last_producer_id, int(given.max()))
        self.last_epoch = max(self.last_epoch, int(table.partition_leader_epoch.max()))
        if self._ledger is not None:
            self._ledger.take(table, segment)


def is_sure_of_keys(partition: Partition) -> bool:
    """Return whether every record has a key. A cleaner removes records without a key."""
    for files in partition.segments:
        with open_segment(files.log.path, base_offset=files.base_offset) as segment:
            for batch in segment.scan(**partition.bounds(files), verify_crc=False):
                if not batch.header.attributes & CONTROL_MASK and not _has_keys(segment, batch):
                    return False
    return True


def _has_keys(segment: Segment, batch: ScannedBatch) -> bool:
    try:
        return all(each.key is not None for each in segment.records(batch))
    except (FormatError, AccessError):
        return False


class LastIds(NamedTuple):
    """The ids in a copy that must not be allocated again, or -1."""

    epoch: int
    producer_id: int


def last_ids(selected: Selected) -> LastIds:
    """Read the headers of a copy. Raises AccessError."""
    partition = Partition.of(selected)
    walk = _HeaderWalk(partition)
    epochs = [each.epoch for each in partition.leader_epochs() or ()]
    return LastIds(
        max([walk.last_epoch, *epochs]), max(walk.last_producer_id, _of_snapshots(partition))
    )
