"""What a new cluster must know of one copy, and what the next start will do to it.

Two passes over its log: the check, with all checksums, and one over the headers for the latest
leader epoch, the greatest producer id that a broker gave out, and the gaps that compaction leaves.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from recovery.begin.taken_files import swaps_of
from recovery.fsck.one_pass import CheckJob, check_one
from recovery.rebuild.segment_pass import PassEnd, SegmentJob, pass_over
from recovery.rules.findings import Severity
from recovery.start.changes import StartAction
from recovery.transactions.open_transactions import find_open
from storage.dirs.offset_ledger import CHECK_ID as GAP_CHECK_ID
from storage.dirs.offset_ledger import OffsetLedger, OffsetSpan, joined
from storage.dirs.partition import Partition
from storage.errors import AccessError, EoctlError, FormatError
from storage.file_names import FileKind
from storage.formats.producer_id_record import FIRST_ID as FIRST_LEASED_ID
from storage.formats.producer_snapshot import parse_snapshot
from storage.formats.record_batch import CONTROL_MASK
from storage.log.segment import open_segment

if TYPE_CHECKING:
    from collections.abc import Sequence

    from recovery.checks.partition_check import CheckOptions
    from recovery.rules.findings import Finding
    from storage.dirs.discovery import Selected
    from storage.dirs.partition_files import FileEntry
    from storage.kernels.protocol import HeaderTable, ScannedBatch
    from storage.log.segment import Segment

NO_ID = -1
# Of partition.metadata: it is written anew. What is beside the partition is not taken. No repair
# brings lost offsets back.
_NOT_TAKEN = frozenset({"DIR-4", GAP_CHECK_ID})
# Findings that name offsets which no batch has.
_HOLES = frozenset({GAP_CHECK_ID, "SEG-9", "SEG-11"})


class LeftTransaction(NamedTuple):
    """A transaction without a marker."""

    producer_id: int
    first_offset: int


class Survey(NamedTuple):
    """What was found.

    Attributes:
        start_offset, end_offset: of the log, as a reader gets it.
        start_end_offset: what a start takes for its end; None: it does not load it.
        last_epoch: the latest leader epoch of its batches and its checkpoint; -1: none.
        last_producer_id: the greatest that a broker gave out; -1: none.
        has_gaps: compaction has been here; lost offsets are not its work.
        has_unkeyed: with gaps: a record has no key, which a cleaner would remove.
        holes: lost offsets between batches, in words.
        swapped_count: new segments that a start puts in the place of others.
        damage: broken rules, one in words, and what could not be read; none: it is sound.
        recovered_bytes: of `.log` that a start verifies.
        cut_bytes: of `.log` that it cuts off.
        open_transactions: without a marker; None: not known.
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
    """One copy, and how it is checked."""

    selected: Selected
    options: CheckOptions


def survey_copy(job: SurveyJob) -> Survey:
    """Look at one copy.

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
        holes=tuple(each.told for each in holes if not swaps.has(each)),
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
    """Whether the broker notes how far its cleaner has come, as it does of compacted topics."""
    offsets = None if partition.log_dir is None else partition.log_dir.cleaner_offsets
    return partition.directory.topic_partition in (offsets or {})


def _in_words(finding: Finding) -> str:
    place = "" if finding.start_pos is None else f": position {finding.start_pos}"
    return f"{finding.path}{place}: {finding.message} [{finding.check_id}]"


class _Swaps:
    """New segments of a compaction that did not end; no check looks at them.

    Attributes:
        ranges: of offsets that they are for, up to the next one.
        damage: in words.
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
        """Whether what is missing is in one of them."""
        return any(
            start <= hole.start_offset and hole.end_offset <= end for start, end in self.ranges
        )

    def start_offset(self, partition: Partition) -> int:
        """Where the log begins once they have their names."""
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
    def told(self) -> str:
        """As a sentence without its verb."""
        return f"{self.path}: {self.message}: they"


def _of_snapshots(partition: Partition) -> int:
    """The greatest id that producer snapshots know; theirs may have no batch any more."""
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
    """Reads the headers of a log."""

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
                        self._take(table)
            except AccessError:
                pass  # the check has told of it
            self._spans.append(self._ledger.span)
        self._ledger = None
        for each in swaps_of(partition):
            if each.name.kind is FileKind.LOG:
                self._take_ids(each)

    def has_gaps(self, lost: Sequence[_Hole]) -> bool:
        """Tell whether a cleaner has left gaps: those that are not lost are its work."""
        span = joined(self._spans)
        gone = sum(each.end_offset - each.start_offset for each in lost)
        return bool(span.cleaned_end) or sum(last - first + 1 for first, last in span.gaps) > gone

    def _take_ids(self, swap: FileEntry) -> None:
        """Whose segments are gone already that it replaces, it alone knows."""
        try:
            with open_segment(swap.path, base_offset=swap.name.offset or 0) as segment:
                for table in segment.scan_tables(verify_crc=False):
                    self._take(table)
        except (AccessError, FormatError):
            return  # told of as damage

    def _take(self, table: HeaderTable) -> None:
        if not table.row_count:
            return
        given = table.producer_id[table.producer_id < FIRST_LEASED_ID]
        if len(given):
            self.last_producer_id = max(self.last_producer_id, int(given.max()))
        self.last_epoch = max(self.last_epoch, int(table.partition_leader_epoch.max()))
        if self._ledger is not None:
            self._ledger.take(table)


def is_sure_of_keys(partition: Partition) -> bool:
    """Whether every record has a key; a cleaner removes those that have none."""
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
    """What of a copy that is left must not be given out again; -1: none."""

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
