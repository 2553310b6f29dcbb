"""The verdict of a check: whether the broker starts, what the start removes, what is lost."""

from __future__ import annotations

from bisect import bisect_left
from enum import StrEnum
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from recovery.checks.context.broker_version import REFUSES
from recovery.checks.context.kraft_release import CANNOT_LOAD, LOADS_NOTHING
from recovery.checks.log_dirs.log_dirs import DELETES, LOSES_LOG_DIR, SETS_ASIDE
from recovery.fsck.start_loss import WHOLE_DIRECTORY
from recovery.rules.catalogue import rule_of
from recovery.rules.findings import Severity
from recovery.start.prediction import DELETES_SOON, EMPTIES, REPLACES
from storage.dirs.log_dir import StoppedState, only_begins
from storage.file_names import (
    METADATA_TOPIC,
    DirState,
    FileKind,
    classify,
    is_below,
    parse_partition_name,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from recovery.forecast.one_forecast import LogForecast
    from recovery.fsck.one_pass import PartitionRow
    from recovery.fsck.start_loss import StartLoss
    from recovery.rules.findings import Finding
    from storage.dirs.cluster_image import ClusterImage
    from storage.dirs.log_dir import LogDir
    from storage.formats.meta_properties import MetaProperties


# -- findings that are consequences of others, such as an index beyond the log end.
#
# After damage or an early end, indexes, snapshots, epochs and checkpoints do not fit the log. They
# are no problems of their own, and the repair of the log repairs them. Absent acknowledged records
# (OFS-3) stay separate: they are a loss, not a consequence.


# A log that is damaged, or ends before its other files.
CAUSES = frozenset(
    {"SEG-5", "SEG-6", "BAT-1", "BAT-2", "BAT-3", "OFS-1", "OFS-3", "SEG-4", "SEG-11"}
)
# The files that then do not fit: entries beyond the log, snapshots and checkpoints of its old end.
CONSEQUENCES = frozenset(
    {
        *("IDX-3", "IDX-4", "TIM-2", "TIM-3", "TIM-4", "TXI-2", "TXI-3", "TXI-7"),
        *("SNP-2", "SNP-3", "SNP-4", "SNP-6", "EPC-2", "OFS-2", "OFS-6"),
        *("PRD-1", "TXO-2"),
    }
)


class PlacedFinding(NamedTuple):
    """A finding and the checked partition directory. The directory is "" for a log dir."""

    directory: str
    finding: Finding


class Folded(NamedTuple):
    """A finding, its directory as above, and its consequences, in the order of finding."""

    finding: Finding
    directory: str
    consequences: tuple[Finding, ...] = ()


def fold(findings: Iterable[PlacedFinding]) -> list[Folded]:
    """Put consequences under their cause. Sort by severity, else keep the order."""
    listed = list(findings)
    causes: dict[str, list[Finding]] = {}
    for directory, each in listed:
        if each.check_id in CAUSES and each.severity is not Severity.NOTE:
            causes.setdefault(directory, []).append(each)
    known = {directory: _Causes(found) for directory, found in causes.items()}
    folded: dict[int, list[Finding]] = {}
    roots = []
    for directory, each in listed:
        of_directory = known.get(directory) if each.check_id in CONSEQUENCES else None
        cause = None if of_directory is None else of_directory.nearest(each)
        if cause is None:
            roots.append(PlacedFinding(directory, each))
        else:
            folded.setdefault(id(cause), []).append(each)
    roots.sort(key=lambda each: -each.finding.severity.rank)
    return [
        Folded(each.finding, each.directory, tuple(folded.get(id(each.finding), ())))
        for each in roots
    ]


class _Causes:
    """The causes of one directory. Finds the nearest fast, even among many thousands."""

    def __init__(self, found: Iterable[Finding]) -> None:
        # Damage before absent records, and the nearest damage first.
        ordered = sorted(found, key=lambda one: (one.check_id == "OFS-3", -(one.base_offset or 0)))
        self._ordered = [(one, segment_of(one.path)) for one in ordered]
        self._negated = [-(one.base_offset or 0) for one in ordered if one.check_id != "OFS-3"]
        self._known: dict[tuple[int | None, int | None], Finding | None] = {}

    def nearest(self, finding: Finding) -> Finding | None:
        """Return the nearest cause of a finding of the same partition.

        None if all causes are at higher offsets, or in later segments.
        """
        offset = finding.base_offset if finding.base_offset is not None else finding.last_offset
        place = segment_of(finding.path), offset
        if place not in self._known:
            self._known[place] = self._find(*place)
        return self._known[place]

    def _find(self, segment: int | None, offset: int | None) -> Finding | None:
        # Skip causes above the offset.
        start = 0 if offset is None else bisect_left(self._negated, -offset)
        for cause, damaged in islice(self._ordered, start, None):
            base = cause.base_offset
            is_behind = segment is not None and damaged is not None and segment < damaged
            if not is_behind and (offset is None or base is None or offset >= base):
                return cause
        return None


def segment_of(path: str) -> int | None:
    """Return the base offset of the segment that a file belongs to by its name, else None."""
    name = classify(Path(path).name)
    if name.kind in {FileKind.LOG, FileKind.INDEX, FileKind.TIMEINDEX, FileKind.TXNINDEX}:
        return name.offset
    return None


# -- the verdict: whether the broker starts, what is removed, lost or blocked, what to do.
#
# Values only, nothing is printed: `eoctl.commands.shared.check_verdict` makes lines of them. Every
# number is one of the findings and rows of the same check, or is counted in the bytes they name.
#
# A start is predicted only if the check covered everything. The verdict lists obstacles to a yes:
# an absent log dir or metadata log of the node, unreadable files, unchecked checksums, another
# release, a running broker.


UNKNOWN_START = "unknown"  # of a partition that could not be read
# The broker starts without these: it does not serve the replica, or has removed it already.
NOT_SERVED = frozenset({SETS_ASIDE, DELETES})
_APART = WHOLE_DIRECTORY | {UNKNOWN_START, REPLACES, EMPTIES}
_REFUSING = frozenset({REFUSES, CANNOT_LOAD, LOADS_NOTHING})
_OFFLINE = frozenset({LOSES_LOG_DIR, f"{REFUSES}, or {LOSES_LOG_DIR}"})
_LOG_DAMAGE = frozenset({"BAT", "SEG"})
# Absent offsets: below the high watermark, of a whole directory, between two batches.
_MISSING = frozenset({"OFS-3", "DIR-8", "SEG-4"})


class Answer(StrEnum):
    """The answer to whether a broker starts."""

    YES = "yes"
    NO = "no"
    UNKNOWN = "unknown"


class Obstacle(NamedTuple):
    """An obstacle to a start, or to its prediction.

    Attributes:
        path: of the file or directory, "" if it concerns the whole command.
        what: the reason.
        check_id: the rule, "" if there is none.
        command: the command that removes it, "" if no command does.
        fix: what to do otherwise, in words, "" if unknown.
    """

    path: str
    what: str
    check_id: str = ""
    command: str = ""
    fix: str = ""


class NodeStart(NamedTuple):
    """The next start of one node.

    Attributes:
        node_id: None if unknown.
        obstacles: for NO, why the start fails. For UNKNOWN, why eoctl cannot predict it.
        offline: log dirs that it continues without, and why.
    """

    node_id: int | None
    log_dirs: tuple[str, ...]
    answer: Answer
    obstacles: tuple[Obstacle, ...] = ()
    offline: tuple[Obstacle, ...] = ()


class NodeFacts(NamedTuple):
    """The facts about a node, for `node_start`.

    Attributes:
        log_dirs: its log dirs that were given.
        whole_paths: the log dirs that were checked as a whole.
        rows: of its partitions.
        findings: in its log dirs and partitions.
        image: of its cluster. None without metadata.
        release_problems: why the assumed release does not fit these log dirs.
        gaps: what the whole command did not check, in words.
        refused: why the given release does not start.
    """

    log_dirs: tuple[LogDir, ...]
    whole_paths: frozenset[str]
    rows: tuple[PartitionRow, ...]
    findings: tuple[PlacedFinding, ...]
    image: ClusterImage | None
    release_problems: tuple[Obstacle, ...] = ()
    gaps: tuple[str, ...] = ()
    refused: tuple[Obstacle, ...] = ()


class Held(NamedTuple):
    """A partition whose read_committed readers wait for an open transaction.

    Attributes:
        first_offset: of the oldest transaction: the last stable offset.
        end_offset: one above the last good batch. None if unknown.
        since_ms: timestamp of its first batch. None if it has none, or cannot be read.
        is_late: older than any transaction may be.
        open_count: open transactions here. With `is_least` a lower bound.
    """

    topic: str
    partition: int
    path: str
    first_offset: int
    end_offset: int | None
    since_ms: int | None
    is_late: bool
    open_count: int
    is_least: bool = False


class Checked(NamedTuple):
    """The extent of a check.

    Attributes:
        partitions_count: with or without findings. `clean_count` of them have none at all.
        unread_count: files, or parts of files, that could not be read.
        unlisted_count: findings that were counted, but not listed.
        log_bytes: bytes of logs that were read.
        is_deep, is_fast: how.
        skipped_count: partitions of the same PATHs that options left out.
        unmarked_count: partitions without a checkpointed high watermark, so the acknowledged
            records are unknown.
    """

    partitions_count: int
    clean_count: int
    unread_count: int
    unlisted_count: int
    log_bytes: int
    is_deep: bool
    is_fast: bool
    skipped_count: int = 0
    unmarked_count: int = 0


class NextCommand(NamedTuple):
    """The first thing to do: a command, by its words, or a sentence, and the reason."""

    words: tuple[str, ...]
    sentence: str
    why: str
    reads_bytes: int = 0


class DirectoryVerdict(NamedTuple):
    """The whole verdict. Build it by name.

    Attributes:
        release: the release whose start is predicted.
        `cuts`: the records that the start removes, per partition.
        not_served: partitions that it sets aside or deletes as none of its own.
        deleted: -delete directories, which it deletes: the replicas are deleted already.
        missing: findings of acknowledged records that are absent, and of absent partitions.
        damaged: findings of damaged logs.
        suspected: findings of sequences that no batch has, though no offset is missing.
        by_changes: findings of records that changes of eoctl removed from the logs.
        takes: logs of which retention deletes records at its first run.
        listed: all findings, consequences under their causes, by severity.
    """

    release: str
    starts: tuple[NodeStart, ...]
    cuts: tuple[StartLoss, ...]
    not_served: tuple[PartitionRow, ...]
    deleted: tuple[PartitionRow, ...]
    missing: tuple[Finding, ...]
    damaged: tuple[Finding, ...]
    suspected: tuple[Finding, ...]
    by_changes: tuple[Finding, ...]
    held: tuple[Held, ...]
    listed: tuple[Folded, ...]
    checked: Checked
    call: NextCommand | None
    takes: tuple[LogForecast, ...] = ()

    @property
    def answer(self) -> Answer:
        """The answer for all nodes: no if one does not start, yes only if all do."""
        answers = {each.answer for each in self.starts}
        if Answer.NO in answers:
            return Answer.NO
        return Answer.YES if answers == {Answer.YES} else Answer.UNKNOWN


def node_start(facts: NodeFacts) -> NodeStart:
    """Predict whether a node starts."""
    meta = _known_meta(facts)
    refusals, doubts = _of_findings(facts)
    refusals += facts.refused
    offline = _offline(facts)
    lost_dirs = {each.path for each in facts.log_dirs} & set(offline)
    others = _not_given(facts, lost_dirs)
    if offline and len(lost_dirs) == len(facts.log_dirs):
        (doubts if others else refusals).extend(offline.values())
    gone_on_without = () if refusals else tuple(offline.values())
    doubts += [*facts.release_problems, *(Obstacle("", each) for each in facts.gaps), *others]
    answer = Answer.NO if refusals else Answer.UNKNOWN if doubts else Answer.YES
    return NodeStart(
        node_id=None if meta is None else meta.node_id,
        log_dirs=tuple(each.path for each in facts.log_dirs),
        answer=answer,
        obstacles=_once(refusals or doubts),
        offline=gone_on_without,
    )


def _of_findings(facts: NodeFacts) -> tuple[list[Obstacle], list[Obstacle]]:
    """Return the certain and the possible causes of a failed start.

    For a loaded partition the prediction is more exact than a rule.
    """
    refusals, doubts = [], []
    loaded = {row.path for row in facts.rows if row.start_end_offset is not None}
    for directory, each in facts.findings:
        action = each.broker_action
        if directory in loaded and is_below(each.path, directory):
            continue
        if action in _REFUSING:
            what = each.message if action == REFUSES else f"{action}: {each.message}"
            refusals.append(_obstacle(each, what))
        elif action not in _OFFLINE and ("refuse" in action or "does not start" in action):
            doubts.append(_obstacle(each, f"{each.message}: it {action}"))
    for row in facts.rows:
        if row.start == UNKNOWN_START:
            doubts.append(Obstacle(row.path, "cannot be read"))
        elif ends_start(row) and not any(is_below(each.path, row.path) for each in refusals):
            what = row.start.removeprefix(f"{row.path}/")
            fix = "" if is_live(row.path) else f"Move {row.path} away."
            refusals.append(Obstacle(row.path, what, fix=fix))
    return refusals, doubts


def ends_start(row: PartitionRow) -> bool:
    """Return whether a broker fails to start because of a partition directory."""
    return row.start_end_offset is None and row.start not in {*_APART, *_OFFLINE}


def is_live(path: str) -> bool:
    """Return whether a directory has the name of a live partition, which commands change."""
    name = parse_partition_name(Path(path).name)
    return name is None or name.state is DirState.LIVE


def _offline(facts: NodeFacts) -> dict[str, Obstacle]:
    """Return the log dirs that a start takes offline, and why."""
    found: dict[str, Obstacle] = {}
    for _, each in facts.findings:
        if each.broker_action not in _OFFLINE:
            continue
        for log_dir in facts.log_dirs:
            if is_below(each.path, log_dir.path):
                found.setdefault(log_dir.path, _obstacle(each, each.message))
    return found


def _not_given(facts: NodeFacts, lost_dirs: Collection[str]) -> list[Obstacle]:
    """List what the check did not cover of the node. It starts without its `lost_dirs`."""
    found = []
    for each in facts.log_dirs:
        if each.path not in facts.whole_paths:
            found.append(Obstacle(each.path, "only some of its partitions were checked"))
        if each.stopped is StoppedState.LIVE:
            found.append(Obstacle(each.path, "a broker is running on it"))
        elif each.stopped is StoppedState.UNKNOWN:
            found.append(Obstacle(each.path, "it is unknown how it was stopped"))
        elif each.meta is None and each.path not in lost_dirs:
            found.append(Obstacle(each.path, "its node is unknown"))
    meta = _known_meta(facts)
    is_kraft = meta is not None and meta.version == 1
    if _begins(facts):
        return found
    if is_kraft and not any(row.topic == METADATA_TOPIC for row in facts.rows):
        found.append(Obstacle("", f"its {METADATA_TOPIC}-0 was not given"))
    elif meta is not None and facts.image is not None and meta.node_id is not None:
        broker = facts.image.brokers.get(meta.node_id)
        given = {each.meta.directory_id for each in facts.log_dirs if each.meta is not None}
        if not facts.image.end_offset or not facts.image.is_complete:
            # A broker that starts without these records takes the replicas that they assign for
            # strays.
            what = f"its {METADATA_TOPIC}-0 is not whole: may set replicas aside"
            found.append(Obstacle("", what))
        absent = [] if broker is None else [each for each in broker.log_dirs if each not in given]
        # A start gives an id to a log dir that does not have an id.
        absent_count = len(absent) - sum(
            each.meta is None or each.meta.directory_id is None for each in facts.log_dirs
        )
        if absent_count > 0:
            found.append(Obstacle("", f"{absent_count} of its log dirs not given"))
    return found


def _known_meta(facts: NodeFacts) -> MetaProperties | None:
    """Return the first meta.properties that names the node, else the first."""
    known = [each.meta for each in facts.log_dirs if each.meta is not None]
    return next((each for each in known if each.node_id is not None), next(iter(known), None))


def _begins(facts: NodeFacts) -> bool:
    """Return whether the controller has no metadata log yet, and begins with the first records."""
    image = facts.image
    has_log = any(row.topic == METADATA_TOPIC and not only_begins(row.path) for row in facts.rows)
    has_bootstrap = any(each.has_bootstrap for each in facts.log_dirs)
    return has_bootstrap and not has_log and image is not None and not image.end_offset


def _obstacle(finding: Finding, what: str) -> Obstacle:
    return Obstacle(
        path=finding.path,
        what=what,
        check_id=finding.check_id,
        command=finding.fix if is_command(finding.fix) else "",
        fix=remedy_of(finding),
    )


def is_command(fix: str) -> bool:
    """Return whether a fix is a command of eoctl. Otherwise it is a sentence."""
    return fix.startswith("eoctl ")


def remedy_of(finding: Finding) -> str:
    """Return the remedy of a finding in words, else the remedy of its rule."""
    has_own = finding.fix and not is_command(finding.fix)
    return finding.fix if has_own else rule_of(finding.check_id).fix


def _once(obstacles: Iterable[Obstacle]) -> tuple[Obstacle, ...]:
    return tuple(dict.fromkeys(obstacles))


def is_missing(finding: Finding) -> bool:
    """Return whether a finding names acknowledged records that are absent or not served."""
    if finding.severity is not Severity.ERROR:
        return False
    is_blocked = finding.check_id == "DIR-6" and finding.base_offset is not None
    return is_blocked or finding.check_id in _MISSING


def is_suspected(finding: Finding) -> bool:
    """Return whether records of a producer seem to be lost. `loss` suspects them too."""
    is_gap = finding.check_id == "PRD-1" and finding.severity is not Severity.NOTE
    return is_gap or finding.check_id == "PRD-6"


def is_log_damage(finding: Finding) -> bool:
    """Return whether records of a log are damaged, or cannot be read."""
    return (
        not is_missing(finding)
        and finding.severity is Severity.ERROR
        and rule_of(finding.check_id).family in _LOG_DAMAGE
    )


def verdict_of(
    *,
    release: str,
    starts: Sequence[NodeStart],
    findings: Sequence[PlacedFinding],
    rows: Sequence[PartitionRow],
    cuts: Sequence[StartLoss],
    held: Sequence[Held],
    checked: Checked,
    call: NextCommand | None,
    takes: Sequence[LogForecast] = (),
) -> DirectoryVerdict:
    """Build the verdict from findings and rows. Reads no files."""
    plain = [each.finding for each in findings]
    return DirectoryVerdict(
        release=release,
        starts=tuple(starts),
        cuts=tuple(sorted(cuts, key=lambda each: -each.records_count)),
        not_served=tuple(row for row in rows if row.start in NOT_SERVED),
        deleted=tuple(row for row in rows if row.start == DELETES_SOON),
        missing=tuple(filter(is_missing, plain)),
        damaged=tuple(filter(is_log_damage, plain)),
        suspected=tuple(filter(is_suspected, plain)),
        by_changes=tuple(each for each in plain if each.check_id == "JNL-3"),
        held=tuple(sorted(held, key=lambda each: (not each.is_late, each.since_ms or 0))),
        listed=tuple(fold(findings)),
        checked=checked,
        call=call,
        takes=tuple(takes),
    )
