"""The check: what is wrong in partition directories, and how a broker will react.

Each partition is checked by itself, so several processes may share the work. The results can be
kept for a later run that resumes an interrupted run.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NamedTuple

from recovery.checks.context.broker_version import REFUSES, is_passed_over, unsupported_features
from recovery.checks.log_dirs.log_dirs import SETS_ASIDE
from recovery.checks.partition_check import CheckOptions, check_partition
from recovery.cluster.placement import DirFate
from recovery.forecast.started_log import StartedLog, started_log
from recovery.replay.snapshots import Clock
from recovery.rules.catalogue import fix_of, rule_of
from recovery.rules.findings import Finding, Severity
from recovery.start.files import StartAction, StartChange, StartSettings
from recovery.start.prediction import StartPrediction, action_on, predict_start
from recovery.start.segment_recovery import IndexLimits
from recovery.transactions.unknown_ends import find_ends, log_files_of
from storage.counts import counted
from storage.dirs.acknowledged_offsets import is_tiered
from storage.dirs.compaction import is_compacted
from storage.dirs.partition import Partition
from storage.dirs.topic_settings import read_log_config
from storage.errors import AccessError
from storage.file_names import METADATA_TOPIC, DirState

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from recovery.checks.partition_check import CheckedPartition, Watch
    from storage.dirs.cluster_image import ClusterImage
    from storage.dirs.discovery import Selected


class CheckJob(NamedTuple):
    """One partition directory, and how to check it.

    Attributes:
        bytes_per_second: the most to read. 0: no limit.
        fate: how a start treats the directory, given the other directories of its node. None: it
            loads it.
    """

    selected: Selected
    image: ClusterImage | None
    options: CheckOptions
    bytes_per_second: int = 0
    fate: DirFate | None = None


class PartitionRow(NamedTuple):
    """The result of one partition.

    Attributes:
        errors, warnings, notes: the numbers of findings, including unlisted findings.
        end_offset: one above the last good batch.
        start_end_offset: the log end offset after the next start. None: the start does not load it.
        recovered_bytes: bytes of `.log` that this start verifies.
        start: the outcome of the start, in words.
        unreadable: what could not be read.
    """

    topic: str
    partition: int
    errors: int | None
    warnings: int | None
    notes: int | None
    batches: int | None
    log_bytes: int | None
    end_offset: int | None
    start_end_offset: int | None
    recovered_bytes: int | None
    start: str
    unreadable: int
    path: str


class CheckResult(NamedTuple):
    """The findings of one directory.

    `problems` are unreadable files and transactions of unknown outcome, in words. `log_start_line`
    is as in `StartPrediction`. `log` is the loaded log, from which `recovery.forecast` derives what
    the broker's tasks do after the start. None: the start does not load it.
    """

    findings: tuple[Finding, ...]
    row: PartitionRow
    changes: tuple[StartChange, ...]
    problems: tuple[str, ...]
    log_start_line: int | None = None
    log: StartedLog | None = None


def check_one(
    job: CheckJob,
    *,
    on_bytes: Callable[[int], None] | None = None,
    watch: Watch | None = None,
) -> CheckResult:
    """Check one partition directory. Errors become part of the result."""
    selected = job.selected
    becomes_leader = False
    log = None
    pace = _Pace(job.bytes_per_second, on_bytes)
    try:
        partition = Partition.of(selected, job.image)
        checked = check_partition(
            partition, job.image, job.options, on_bytes=pace.advance, watch=watch
        )
        reason = _not_started(job)
        if reason:
            prediction = StartPrediction(
                end_offset=None, refusal=reason, changes={}, recovered_bytes=0
            )
        else:
            settings, limits = _start_settings(partition, job)
            exact = settings if job.options.predicts and job.options.verify_crc else None
            prediction = predict_start(
                partition, checked, job.options.broker_version, exact, limits, job.fate
            )
            becomes_leader = bool(settings.leader_epochs)
            log = _loaded_log(partition, checked, prediction, job)
    except AccessError as error:
        return _unlisted(selected, error)
    is_metadata = partition.topic == METADATA_TOPIC  # no command changes it
    findings = tuple(
        each._replace(
            broker_action=each.broker_action
            or (
                "nothing"
                if reason
                else action_on(each.path, each.check_id, prediction, becomes_leader=becomes_leader)
            ),
            fix=each.fix or ("" if is_metadata else _fix_of(each, partition)),
        )
        for each in checked.collector.kept
    )
    counts = checked.collector.severity_counts()
    start = prediction.refusal or _start_words(prediction, is_exact=job.options.predicts)
    row = PartitionRow(
        topic=partition.topic,
        partition=partition.partition,
        errors=counts[Severity.ERROR],
        warnings=counts[Severity.WARNING],
        notes=counts[Severity.NOTE],
        batches=checked.batches_count,
        log_bytes=checked.log_bytes,
        end_offset=checked.end_offset,
        start_end_offset=prediction.end_offset,
        recovered_bytes=prediction.recovered_bytes,
        start=start,
        unreadable=len(checked.unreadable),
        path=partition.path,
    )
    return CheckResult(
        findings=findings,
        row=row,
        changes=(*prediction.changes.values(), *_renamed(row, job.fate)),
        problems=(*checked.unreadable, *_unknown(partition, row)),
        log_start_line=prediction.log_start_line,
        log=log,
    )


def _loaded_log(
    partition: Partition, checked: CheckedPartition, prediction: StartPrediction, job: CheckJob
) -> StartedLog | None:
    """Return the log after the start, for a forecast."""
    compacts = is_compacted(partition, job.image)
    return started_log(
        partition,
        checked,
        prediction,
        now_ms=job.options.now_ms,
        is_verified=job.options.verify_crc,
        is_promoted=job.fate is DirFate.PROMOTED,
        is_compacted=compacts,
    )


def _fix_of(finding: Finding, partition: Partition) -> str:
    """Return the remedy of a finding. No repair changes a directory with a suffix."""
    command = fix_of(finding.check_id, partition.path)
    if partition.directory.name.state is DirState.LIVE or not command.startswith("eoctl repair"):
        return command
    is_fatal = finding.broker_action == REFUSES or rule_of(finding.check_id).stops_start
    return f"Move {partition.path} away." if is_fatal else ""


def _unknown(partition: Partition, row: PartitionRow) -> Iterator[str]:
    """Yield transactions whose end marker may be in damaged or absent bytes."""
    if row.errors or row.unreadable:
        for each in find_ends(log_files_of(partition)).unknown:
            yield f"{partition.path}: {each}"


def _renamed(row: PartitionRow, fate: DirFate | None) -> Iterator[StartChange]:
    """Yield the change if a start renames the directory: without a suffix, or to -stray."""
    is_promoted = fate is DirFate.PROMOTED and row.start_end_offset is not None
    if is_promoted or row.start == SETS_ASIDE:
        yield StartChange(row.path, StartAction.RENAMES)


def _start_settings(partition: Partition, job: CheckJob) -> tuple[StartSettings, IndexLimits]:
    """Return what the next start depends on besides the directory."""
    log_dir, image = partition.log_dir, job.image
    node_id = None if log_dir is None or log_dir.meta is None else log_dir.meta.node_id
    config = read_log_config(image, partition.topic, broker_id=node_id)
    leader_epochs: tuple[int, ...] = ()
    placed = None if image is None else image.partition(partition.topic, partition.partition)
    is_served = partition.directory.name.state is DirState.LIVE or job.fate is DirFate.PROMOTED
    if placed is not None and placed.replicas == (node_id,) and is_served:
        known = placed.leader_epoch
        # After a crash the replica leads as before, until the controller has removed and restored
        # its leadership. Of several replicas, the next leader is unknown.
        leader_epochs = (known + 1,) if placed.leader < 0 else (known, known + 2)
    settings = StartSettings(
        Clock(job.options.now_ms, job.options.limits.expiration_ms),
        leader_epochs,
        is_tiered=image is not None and is_tiered(image, partition.topic),
    )
    return settings, IndexLimits(config.index_interval_bytes, config.index_max_bytes)


def _not_started(job: CheckJob) -> str:
    """Return why the assumed release does not start in this cluster, "" if it does."""
    version, image = job.options.broker_version, job.image
    if image is None or is_passed_over(image, version):
        return ""
    features = image.features
    unknown = unsupported_features(features, version)
    return f"Kafka {version} does not start with {unknown[0]}" if unknown else ""


def _unlisted(selected: Selected, error: AccessError) -> CheckResult:
    name = selected.partition.name
    row = PartitionRow(
        topic=name.topic,
        partition=name.partition,
        errors=None,
        warnings=None,
        notes=None,
        batches=None,
        log_bytes=None,
        end_offset=None,
        start_end_offset=None,
        recovered_bytes=None,
        start="unknown",
        unreadable=1,
        path=selected.partition.path,
    )
    return CheckResult(findings=(), row=row, changes=(), problems=(str(error),))


def _start_words(prediction: StartPrediction, *, is_exact: bool) -> str:
    """Summarise a prediction: `recovers 1 segment, truncates 1 file`.

    Which derived files change is known only if the prediction is exact.
    """
    counts: dict[str, int] = {}
    for each in prediction.changes.values():
        if is_exact or each.action is not StartAction.REBUILDS:
            counts[each.action] = counts.get(each.action, 0) + 1
    words = [f"{what} {counted(count, 'file')}" for what, count in counts.items()]
    recovered = prediction.recovered_count
    if recovered:
        words.insert(0, f"recovers {counted(recovered, 'segment')}")
    return ", ".join(words) or ("changes nothing" if is_exact else "recovers nothing")


class _Pace:
    """A limit for the bytes that a reader reads per second."""

    def __init__(self, bytes_per_second: int, on_bytes: Callable[[int], None] | None) -> None:
        self._bytes_per_second = bytes_per_second
        self._on_bytes = on_bytes
        self._started_s = time.monotonic()
        self._done_bytes = 0

    def advance(self, count_bytes: int) -> None:
        self._done_bytes += count_bytes
        if self._on_bytes is not None:
            self._on_bytes(count_bytes)
        if self._bytes_per_second:
            due_s = self._done_bytes / self._bytes_per_second
            early_s = due_s - (time.monotonic() - self._started_s)
            if early_s > 0:
                time.sleep(early_s)
