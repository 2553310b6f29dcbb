"""The effects of a broker's next start on a partition directory, from the data of a check (REC).

  1  Leftovers of deletions and of compaction are handled (REC-3, REC-4).
  2  A segment without `.index` is recovered, with or without the clean-shutdown marker (REC-5).
  3  Without the marker, every segment from the recovery point on is recovered (REC-6, REC-7). After
     a truncation, later segments are removed. After a split, recovery begins again (REC-10).
  4  The log end offset comes from the last entry of the last `.index` (REC-11).
  5  If the log start is above it, all segments are removed (REC-9).
  6  Bad and stray snapshots, and snapshots above the end, are removed. A snapshot is written at the
     end (SNAP-3, SNAP-5).
Which files change their bytes is computed only on request (`recovery.start.files`), because that
reads the recovered segments again. Otherwise the prediction is that a start derives indexes and
snapshots again, equal or not.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from recovery.checks.context import broker_version as releases
from recovery.checks.context.broker_version import REFUSES
from recovery.checks.context.kraft_release import CANNOT_LOAD, LOADS_NOTHING
from recovery.checks.log_dirs.log_dirs import DELETES, LOSES_LOG_DIR, SETS_ASIDE
from recovery.checks.log_walk import RecoveryStop
from recovery.checks.partition_check import CheckedSegment
from recovery.cluster.placement import DirFate
from recovery.rebuild.segment_pass import PassEnd, SegmentJob, pass_over
from recovery.replay.recover_state import first_recovered
from recovery.rules.catalogue import rule_of
from recovery.start.files import RecoverStep, RemoveStep, SplitStep, StartAction, StartChange
from recovery.start.segment_recovery import (
    Fate,
    IndexLimits,
    SegmentOutcome,
    open_start_segment,
    recover_segment,
)
from storage.dirs.acknowledged_offsets import next_offset
from storage.dirs.log_dir import StoppedState
from storage.dirs.partition_files import SegmentFiles, all_entries
from storage.errors import AccessError, FormatError
from storage.file_names import METADATA_TOPIC, DirState, FileKind, FileSuffix, keeps_from_loading
from storage.formats.txn_index import parse_entries
from storage.kernels.protocol import VerdictKind
from storage.log.segment import open_segment, size_problem
from storage.producers.producer_state import AppendError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from recovery.checks.context.broker_version import BrokerVersion
    from recovery.checks.partition_check import CheckedPartition
    from recovery.start.files import LoadStep, StartSettings
    from storage.dirs.partition import Partition
    from storage.dirs.partition_files import FileEntry


_INDEX_KINDS = (FileKind.INDEX, FileKind.TIMEINDEX, FileKind.TXNINDEX)

# An exception of a broker's reader: a length that no batch has.
_FRAME_KINDS = frozenset({VerdictKind.CORRUPT, VerdictKind.PREALLOCATED})

DELETES_SOON = "deletes the directory after file.delete.delay.ms"
REPLACES = "removes the directory: its -future directory takes its place"
EMPTIES = "empties the directory, and makes the live directory again"

_STOPPED = frozenset({DirFate.DUPLICATE, DirFate.BLOCKED})
_FATES = {
    **dict.fromkeys(_STOPPED, REFUSES),
    DirFate.REPLACED: REPLACES,
    DirFate.EMPTIED: EMPTIES,
}

# A broker starts without these directories.
STARTS_WITHOUT = frozenset({SETS_ASIDE, DELETES, REPLACES, EMPTIES})

# Findings that keep a broker from loading the log at all.
NOT_LOADED = frozenset(
    {
        SETS_ASIDE,
        DELETES,
        REFUSES,
        LOSES_LOG_DIR,
        f"{REFUSES}, or {LOSES_LOG_DIR}",
        CANNOT_LOAD,
        LOADS_NOTHING,
    }
)


class LoadedSegment(NamedTuple):
    """A segment after the start, and its recovery. None: the start does not recover it."""

    checked: CheckedSegment
    outcome: SegmentOutcome | None

    @property
    def log_bytes(self) -> int:
        """The size of its `.log` after the start."""
        return self.checked.log_bytes if self.outcome is None else self.outcome.valid_bytes


class StartPrediction(NamedTuple):
    """The predicted start.

    Attributes:
        end_offset: the log end offset in the broker. None if it does not load the log.
        refusal: why it does not load the log. "" if it does.
        changes: by path, in the order of the start.
        recovered_bytes: verified bytes of `.log`.
        recovered_count: the number of these segments.
        segments: of the loaded log, in order. Empty: none, or the start creates a segment.
        log_start_line: the entry in the log start checkpoint after the start. None: no entry.
    """

    end_offset: int | None
    refusal: str
    changes: dict[str, StartChange]
    recovered_bytes: int
    log_start_line: int | None = None
    recovered_count: int = 0
    segments: tuple[LoadedSegment, ...] = ()


def predict_start(
    partition: Partition,
    checked: CheckedPartition,
    version: BrokerVersion | None = None,
    settings: StartSettings | None = None,
    limits: IndexLimits = IndexLimits(),  # noqa: B008 - a constant
    fate: DirFate | None = None,
) -> StartPrediction:
    """Predict the effects of a start.

    Without `settings` it reads swap files, the end of the log, and segments with contradicting
    offsets.

    Args:
        partition: the directory.
        checked: the data of its check. If the check skipped checksums, the result is a guess.
        version: the release that starts. None: CHECKED.
        settings: to predict exactly the files whose bytes change.
        limits: of the topic's indexes.
        fate: how a start treats the directory, given the other directories of its node. None: it
            loads it.

    Raises:
        AccessError: a file that has to be read again cannot be read.
    """
    for each in checked.collector.kept:
        if each.broker_action in NOT_LOADED:
            return StartPrediction(
                end_offset=None, refusal=each.broker_action, changes={}, recovered_bytes=0
            )
    if fate in _FATES:
        removed = () if fate in _STOPPED else partition.segments
        changes = {
            each.log.path: StartChange(each.log.path, StartAction.DELETES) for each in removed
        }
        return StartPrediction(
            end_offset=None, refusal=_FATES[fate], changes=changes, recovered_bytes=0
        )
    if partition.directory.name.state is DirState.DELETE and not _foreign_names(partition):
        entries = all_entries(partition.files)
        changes = {each.path: StartChange(each.path, StartAction.DELETES) for each in entries}
        return StartPrediction(
            end_offset=None, refusal=DELETES_SOON, changes=changes, recovered_bytes=0
        )
    return _Predictor(partition, checked, version, settings, limits).predict()


def _foreign_names(partition: Partition) -> str:
    """Return why file names keep a broker from loading a directory, "" if they do not."""
    is_metadata = partition.topic == METADATA_TOPIC
    foreign = [
        entry.path
        for entry in partition.files.others
        if keeps_from_loading(entry.name.name, is_metadata=is_metadata)
    ]
    if not foreign:
        return ""
    return f"{', '.join(foreign)}: no segment has such a name: refuses to start"


class _Predictor:
    def __init__(
        self,
        partition: Partition,
        checked: CheckedPartition,
        version: BrokerVersion | None,
        settings: StartSettings | None,
        limits: IndexLimits,
    ) -> None:
        self._version = version
        self._settings = settings
        self._limits = limits
        self._partition = partition
        self._checked = checked
        self._changes: dict[str, StartChange] = {}
        self._segments = list(checked.segments)
        self._outcomes: dict[int, SegmentOutcome] = {}  # of recovered segments, by base
        self._steps: list[LoadStep] = []
        self._recovered_bytes = 0
        self._without_index: set[int] = set()
        self._blank_indexes: set[int] = set()
        self._gone: set[str] = set()
        self._refusal = ""
        kept = checked.collector.kept
        self._bad_snapshots = {each.path for each in kept if each.check_id == "SNP-1"}
        is_metadata = partition.topic == METADATA_TOPIC
        log_dir = partition.log_dir
        is_clean = log_dir is not None and log_dir.stopped is StoppedState.CLEAN
        self._is_clean = is_clean and not is_metadata
        point, start = (0, 0) if log_dir is None else log_dir.loaded_from(partition.directory)
        self._recovery_point = 0 if is_metadata else point
        self._log_start_offset = start

    def predict(self) -> StartPrediction:
        """Simulate the start."""
        self._pass_leftovers()
        self._gone = {
            Path(each.path).name
            for each in self._changes.values()
            if each.action is StartAction.DELETES
        }
        self._refusal = _foreign_names(self._partition) or self._refusal or self._load_segments()
        if not self._is_clean and not self._refusal:
            self._refusal = self._recover_from_point()
        if self._refusal:
            return StartPrediction(
                end_offset=None,
                refusal=self._refusal,
                changes={},
                recovered_bytes=self._recovered_bytes,
                recovered_count=len(self._outcomes),
            )
        for entry in self._partition.files.orphans:
            self._change(entry.path, StartAction.DELETES)
            self._gone.add(entry.name.name)
        end_offset = self._end_offset()
        is_emptied = False
        if self._segments and self._log_start_offset > end_offset:
            for segment in self._segments:
                self._delete(segment)
            end_offset = self._log_start_offset
            path = f"{self._partition.path}/{end_offset:020d}.log"
            self._change(path, StartAction.CREATES, 0)
            is_emptied = True
        self._pass_snapshots(end_offset)
        refusal = self._refused_read(end_offset) or self._refusal
        if self._settings is not None and not refusal:
            self._changes = self._exact_changes(end_offset, is_emptied=is_emptied)
        return StartPrediction(
            end_offset=None if refusal else end_offset,
            refusal=refusal,
            changes=self._changes,
            recovered_bytes=self._recovered_bytes,
            log_start_line=None if is_emptied else self._log_start_line(),
            recovered_count=len(self._outcomes),
            segments=()
            if is_emptied
            else tuple(
                LoadedSegment(each, self._outcomes.get(each.files.base_offset))
                for each in self._segments
            ),
        )

    def _log_start_line(self) -> int | None:
        """Return the log start for the checkpoint: only if above the first segment, or remote."""
        first_base = self._segments[0].files.base_offset if self._segments else None
        if first_base is None:
            return None
        is_above = self._log_start_offset > first_base
        is_remote = self._settings is not None and self._settings.is_tiered
        return self._log_start_offset if is_above or is_remote else None

    def _exact_changes(self, end_offset: int, *, is_emptied: bool) -> dict[str, StartChange]:
        from recovery.start.files import StartedLog, changed_files

        assert self._settings is not None
        started = StartedLog(
            segments=tuple(self._segments),
            steps=tuple(self._steps),
            blank_indexes=frozenset(self._blank_indexes),
            leftovers=frozenset(self._gone),
            is_emptied=is_emptied,
            end_offset=end_offset,
            is_clean=self._is_clean,
        )
        try:
            return changed_files(self._partition, started, self._settings, self._limits)
        except (AccessError, AppendError, FormatError, OSError):  # the check reports it
            return self._changes

    def _change(self, path: str, action: StartAction, size_bytes: int | None = None) -> None:
        self._changes[path] = StartChange(path, action, size_bytes)

    def _delete(self, segment: CheckedSegment) -> None:
        files = segment.files
        for entry in (files.log, files.offset_index, files.time_index, files.txn_index):
            if entry is not None:
                self._change(entry.path, StartAction.DELETES)

    def _refused_read(self, end_offset: int) -> str:
        """Return why the producers' state cannot be read, from a snapshot on (SNAP-6)."""
        # The recovery of a segment begins with the state at its base (SNAP-9).
        below = min([end_offset, *self._outcomes])
        offsets = [
            entry.name.offset or 0
            for entry in self._partition.files.snapshots
            if entry.path not in self._bad_snapshots
        ]
        usable = [each for each in offsets if self._log_start_offset < each <= below]
        if not usable and self._is_clean and not self._outcomes:
            return ""  # an empty map, and nothing is read (SNP-4)
        start = max(usable, default=0)
        for each in self._checked.refusals:
            if start <= each.offset < end_offset:
                return each.reason
        following = [each.files.base_offset for each in self._segments[1:]]
        for segment, end in zip(self._segments, following, strict=False):
            is_read = end > max(start, self._log_start_offset)
            is_whole = segment.stop is None or segment.files.base_offset in self._outcomes
            if is_read and not is_whole and (reason := _broken_frame(segment)):
                return reason
        return ""

    # -- leftovers

    def _pass_leftovers(self) -> None:
        others = self._partition.files.others
        by_suffix: dict[FileSuffix, list[FileEntry]] = {each: [] for each in FileSuffix}
        for entry in others:
            by_suffix[entry.name.suffix].append(entry)
        for entry in by_suffix[FileSuffix.DELETED]:
            if entry.name.kind is not FileKind.CHECKPOINT:
                self._change(entry.path, StartAction.DELETES)
        cleaned = by_suffix[FileSuffix.CLEANED]
        least = min((each.name.offset or 0 for each in cleaned), default=None)
        swaps = []
        for entry in by_suffix[FileSuffix.SWAP]:
            if least is not None and (entry.name.offset or 0) >= least:
                self._change(entry.path, StartAction.DELETES)
            else:
                swaps.append(entry)
        for entry in cleaned:
            self._change(entry.path, StartAction.DELETES)
        if releases.is_before(self._version, releases.SWAPS_BY_NAME):
            swaps = self._pass_index_swaps(swaps)
        if swaps:
            self._complete_swap(swaps)

    def _pass_index_swaps(self, swaps: list[FileEntry]) -> list[FileEntry]:
        """Apply the first step of 2.8: it verifies each new `.log`, and builds its own indexes.

        An index without the `.log` stays as it is, and the index of its segment is deleted. Returns
        the files of the new segments.
        """
        logs = {each.name.offset for each in swaps if each.name.kind is FileKind.LOG}
        taken = []
        for entry in swaps:
            if entry.name.kind is FileKind.LOG:
                self._recovered_bytes += entry.file_bytes
            if entry.name.offset in logs:
                taken.append(entry)
            elif entry.name.kind in _INDEX_KINDS:
                self._without_index.add(entry.name.offset or 0)
        return taken

    def _complete_swap(self, swaps: list[FileEntry]) -> None:
        """Apply REC-4: remove the replaced segments, then rename the new segments."""
        logs = [each for each in swaps if each.name.kind is FileKind.LOG]
        if logs:
            start = min(each.name.offset or 0 for each in logs)
            end = max(next_offset(each) for each in logs)
            kept, bases = [], {each.name.offset for each in logs}
            for segment in self._segments:
                if start <= segment.files.base_offset < end:
                    self._delete(segment)
                elif segment.files.base_offset not in bases:  # otherwise it is overwritten
                    kept.append(segment)
            self._segments = kept + [self._swapped(each, swaps) for each in logs]
            self._segments.sort(key=lambda each: each.files.base_offset)
            for entry in self._partition.files.snapshots:
                if start <= (entry.name.offset or 0) < end:
                    self._change(entry.path, StartAction.DELETES)
        else:
            self._segments = [
                each._replace(files=_with_swaps(each.files, swaps)) for each in self._segments
            ]
        bases = {each.files.base_offset for each in self._segments}
        for entry in swaps:
            is_orphan = entry.name.kind in _INDEX_KINDS and entry.name.offset not in bases
            self._change(entry.path, StartAction.DELETES if is_orphan else StartAction.RENAMES)

    def _swapped(self, log: FileEntry, swaps: list[FileEntry]) -> CheckedSegment:
        """Read a new segment, which no check has read."""
        base_offset = log.name.offset or 0
        files = SegmentFiles(
            base_offset=base_offset,
            log=log,
            offset_index=None,
            time_index=None,
            txn_index=None,
            snapshot=None,
        )
        stop, end_offset = None, base_offset
        for message in pass_over(SegmentJob(log.path, base_offset, is_last=False)):
            if isinstance(message, PassEnd):
                end_offset = message.next_offset
                if message.is_cut:
                    stop = RecoveryStop(message.valid_bytes, end_offset, message.verdict.check_id)
        found = CheckedSegment(
            files=_with_swaps(files, swaps),
            log_bytes=log.file_bytes,
            stop=stop,
            end_offset=end_offset,
            is_doubtful=True,
        )
        if not releases.is_before(self._version, releases.SWAPS_BY_NAME):
            # The broker reads it to find its end, which creates a full-size index if there is none.
            self._refusal = self._refusal or _broken_frame(found)
            if found.files.offset_index is None:
                self._blank_indexes.add(base_offset)
        return found

    # -- recovery

    def _lacks_index(self, segment: CheckedSegment) -> bool:
        """Apply REC-5: no `.index`, or a `.txnindex` with an entry below the base offset."""
        files = segment.files
        if files.base_offset in self._without_index:
            return True
        if segment.range_bytes is not None or files.base_offset in self._blank_indexes:
            return False
        if files.offset_index is None:
            return True
        aborted = parse_entries(self._partition.read_file(files.txn_index) or b"")
        return any(each.last_offset < files.base_offset for each in aborted)

    def _load_segments(self) -> str:
        """Load the segments in order. Return why the start fails, "" if it does not.

        A broker does not catch exceptions of a recovery here (LogLoader.loadSegmentFiles).
        """
        place = 0
        while place < len(self._segments):
            segment = self._segments[place]
            path = segment.files.log.path
            if too_large := size_problem(path, segment.files.log.file_bytes):
                return f"{path}: {too_large.message}: refuses to start"
            if self._lacks_index(segment):
                outcome = self._recover(segment, self._segments[:place])
                if outcome.fate in {Fate.EMPTIED, Fate.FATAL}:
                    is_reported = outcome.fate is Fate.FATAL
                    return outcome.reason if is_reported else f"{outcome.reason}: refuses to start"
                if outcome.fate is Fate.SPLIT:
                    self._split(segment, outcome)
                    continue
            place += 1
        return ""

    def _recover_from_point(self) -> str:
        """Recover from the recovery point on. Return why the start fails, "" if it does not."""
        while self._segments:
            first = first_recovered([each.files for each in self._segments], self._recovery_point)
            for place in range(first, len(self._segments)):
                segment = self._segments[place]
                was_cut = self._is_cut(segment)
                outcome = self._recover(segment, self._segments)
                if outcome.fate is Fate.FATAL:
                    return outcome.reason
                if outcome.fate is Fate.SPLIT:
                    self._split(segment, outcome)
                    break  # and begin again
                if self._is_cut(segment) and not was_cut:
                    for each in self._segments[place + 1 :]:
                        self._delete(each)
                        self._steps.append(RemoveStep(each.files))
                    self._segments = self._segments[: place + 1]
                    return ""
            else:
                break
        return ""

    def _is_cut(self, segment: CheckedSegment) -> bool:
        outcome = self._outcomes.get(segment.files.base_offset)
        return outcome is not None and outcome.fate in {Fate.CUT, Fate.EMPTIED}

    def _recover(self, segment: CheckedSegment, known: Sequence[CheckedSegment]) -> SegmentOutcome:
        """Recover one segment, perhaps for the second time. `known` are the loaded segments."""
        files, base_offset = segment.files, segment.files.base_offset
        outcome = self._outcomes.get(base_offset)
        if outcome is None:
            self._recovered_bytes += segment.log_bytes
            outcome = recover_segment(segment, self._limits)
        is_emptied = outcome.fate is Fate.EMPTIED
        self._steps.append(RecoverStep(segment, tuple(known), is_emptied=is_emptied))
        self._outcomes[base_offset] = outcome
        for entry in (files.offset_index, files.time_index, files.txn_index):
            if entry is not None:
                self._change(entry.path.removesuffix(FileSuffix.SWAP), StartAction.REBUILDS)
        if outcome.fate in {Fate.CUT, Fate.EMPTIED} and segment.range_bytes is None:
            path = files.log.path.removesuffix(FileSuffix.SWAP)
            self._change(path, StartAction.TRUNCATES, outcome.valid_bytes)
        return outcome

    def _split(self, source: CheckedSegment, outcome: SegmentOutcome) -> None:
        """Apply REC-10: the parts replace the segment, and any segment with their base offset."""
        parts = outcome.parts
        del self._outcomes[source.files.base_offset]
        bases = {each.files.base_offset for each in parts}
        replaced = [each for each in self._segments if each.files.base_offset in bases]
        for each in (each for each in replaced if each is not source):
            self._change(each.files.log.path, StartAction.REWRITES, 0)
            self._outcomes.pop(each.files.base_offset, None)
        kept = [each for each in self._segments if each not in (source, *replaced)]
        self._segments = sorted([*kept, *parts], key=lambda each: each.files.base_offset)
        self._steps.append(SplitStep(source, parts))
        self._change(source.files.log.path.removesuffix(FileSuffix.SWAP), StartAction.SPLITS)
        for each in parts:
            path = f"{self._partition.path}/{each.files.base_offset:020d}.log"
            if path not in self._changes:
                self._change(path, StartAction.CREATES, each.log_bytes)

    # -- the end

    def _end_offset(self) -> int:
        """Return the log end by the last index entry (REC-11). A recovered index is right."""
        if not self._segments:
            return self._log_start_offset
        last = self._segments[-1]
        base_offset = last.files.base_offset
        if base_offset in self._outcomes:
            return self._outcomes[base_offset].end_offset
        if last.range_bytes is not None:
            return last.end_offset  # of a split segment, which has an index
        entries = self._partition.index_entries(last.files)
        start_pos = end_pos = 0
        indexed_offset = base_offset
        if entries:
            start_pos = max(entries[-1].segment_pos, 0)
            indexed_offset = base_offset + entries[-1].relative_offset
        end_offset = most = base_offset
        with open_segment(last.files.log.path, base_offset=base_offset) as segment:
            scan = segment.scan(start_pos=start_pos, verify_crc=False, resume=False)
            for batch in scan:
                end_offset = batch.header.last_offset + 1
                most = max(most, end_offset)
                end_pos = batch.pos + batch.header.batch_bytes
            stops = [each for each in scan.verdicts if each.start_pos >= end_pos]
        if any(each.kind in _FRAME_KINDS for each in stops):
            # No batch has such a length. The reader raises, and nobody catches the exception.
            self._refusal = f"{last.files.log.path}: {stops[0].reason}: refuses to start"
        return base_offset if indexed_offset >= most else end_offset

    def _pass_snapshots(self, end_offset: int) -> None:
        bases = {each.files.base_offset for each in self._segments}
        last_base = max(bases, default=0)
        first_recovered_base = min(self._outcomes, default=end_offset)
        strays = []
        for entry in self._partition.files.snapshots:
            offset = entry.name.offset or 0
            if (
                offset <= self._log_start_offset
                or offset > end_offset
                or entry.path in self._bad_snapshots
            ):
                self._change(entry.path, StartAction.DELETES)
            elif offset > first_recovered_base and offset not in {*bases, end_offset}:
                # Recovery drops state above a segment's base, and takes its own snapshots (SNAP-9).
                self._change(entry.path, StartAction.DELETES)
            elif offset not in bases:
                strays.append((offset, entry))
        for place, (offset, entry) in enumerate(sorted(strays)):
            if place < len(strays) - 1 or offset < last_base:
                self._change(entry.path, StartAction.DELETES)


def _broken_frame(segment: CheckedSegment) -> str:
    """Return why a broker's reader fails in a `.log`, "" if it does not."""
    path = segment.files.log.path
    end_pos = 0
    with open_start_segment(segment) as opened:
        scan = opened.scan_tables(verify_crc=False, resume=False)
        for table in scan:
            end_pos = table.end_pos
    for each in scan.verdicts:
        if each.start_pos >= end_pos and each.kind in _FRAME_KINDS:
            return f"{path}: {each.reason}: refuses to start"
    return ""


def _with_swaps(files: SegmentFiles, swaps: list[FileEntry]) -> SegmentFiles:
    """Return a segment with the indexes that are renamed for it."""
    of_segment = {each.name.kind: each for each in swaps if each.name.offset == files.base_offset}
    return files._replace(
        offset_index=of_segment.get(FileKind.INDEX, files.offset_index),
        time_index=of_segment.get(FileKind.TIMEINDEX, files.time_index),
        txn_index=of_segment.get(FileKind.TXNINDEX, files.txn_index),
    )


def action_on(
    path: str, check_id: str, prediction: StartPrediction, *, becomes_leader: bool = False
) -> str:
    """Return in words what a start does about a finding, "nothing" if it ignores it.

    `becomes_leader`: it adds its epoch to the file, and contradicting epochs are removed.
    """
    change = prediction.changes.get(path)
    rule = rule_of(check_id)
    if rule.stops_start and path in prediction.refusal:
        return "refuses to start"
    is_known = prediction.end_offset is not None or "{}" not in rule.at_start
    if rule.at_start and change is None and is_known:
        return rule.at_start.format(prediction.end_offset)
    if change is None and becomes_leader and rule.family == "EPC":
        return str(StartAction.REWRITES)
    return "nothing" if change is None else str(change)
