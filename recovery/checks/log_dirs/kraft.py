"""The check of the `__cluster_metadata-0` directory of a KRaft node, with the broker's actions.

    KRF-1  a log that does not begin at 0 has a snapshot that reaches its start    refuses to start
    KRF-2  a snapshot is whole with header, good batches, and footer               `_SNAPSHOT_...`
    KRF-3  quorum-state has the last epoch of the log, or a higher epoch           takes the log's
    KRF-4  records decode (the FRM rules), in the log and in snapshots,            cannot load them
           and the requested release knows them (`kraft_release`)
    KRF-5  metadata transactions neither nest nor end without a beginning          cannot load them
    QST-1  quorum-state parses                                                     refuses to start
    DIR-4  the topic id is the metadata log's own                                  refuses to start

A torn end of the log, or an open metadata transaction, is no finding. Segments are checked like the
segments of any partition.
Sources: KafkaMetadataLog, QuorumState, FileQuorumStateStore, MetadataBatchLoader,
BootstrapDirectory.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from recovery.checks.context.broker_version import (
    DYNAMIC_QUORUM,
    METADATA_VERSION,
    REFUSES,
    is_before,
    passes_over_beginning,
)
from recovery.checks.context.kraft_release import CANNOT_LOAD, ReleaseCheck
from recovery.checks.log_dirs.log_dirs import read_topic_id
from recovery.rules.findings import Severity
from storage.dirs.log_dir import only_begins
from storage.errors import AccessError, FormatError
from storage.file_names import (
    BEGINNING_NAME,
    BOOTSTRAP_NAME,
    PARTITION_METADATA_NAME,
    QUORUM_STATE_NAME,
    FileKind,
    keeps_from_loading,
)
from storage.formats import cluster_metadata as records
from storage.formats.control_record import ControlRecordType, parse_control_key
from storage.formats.message import unknown_tags
from storage.formats.partition_metadata import METADATA_TOPIC_ID, format_uuid
from storage.formats.quorum_state import parse_quorum_state
from storage.formats.quorum_state import problems as quorum_state_problems
from storage.kernels.protocol import VerdictKind
from storage.log.segment import open_segment

if TYPE_CHECKING:
    from recovery.checks.context.broker_version import BrokerVersion
    from recovery.checks.context.collector import Collector
    from storage.dirs.partition import Partition
    from storage.kernels.protocol import ScannedBatch
    from storage.kernels.scan import Scan
    from storage.log.segment import Segment

_SNAPSHOT_NEWEST = CANNOT_LOAD
_SNAPSHOT_OLDER = "nothing: it loads the newest snapshot"
_SNAPSHOT_BOOTSTRAP = "reads it at every start, and does not start with records that do not decode"
_BOOTSTRAP_SERVES = "needs only its metadata.version, which is there"
_OF_BOOTSTRAP = frozenset({_SNAPSHOT_BOOTSTRAP, _BOOTSTRAP_SERVES})

_TRANSACTION_ENDS = (records.END_TRANSACTION, records.ABORT_TRANSACTION)
# A record or a version of a newer release is not damage.
_NEWER_RELEASE = ("FRM-3", "FRM-4")


def check_metadata_log(
    partition: Partition, collector: Collector, version: BrokerVersion | None = None
) -> None:
    """Check a `__cluster_metadata-0` directory, and the `bootstrap.checkpoint` next to it.

    Also check that the release can load them. Unreadable files are added to `partition.problems`.
    """
    release = ReleaseCheck(version, collector)
    topic_id = read_topic_id(partition, collector)
    if topic_id is not None and topic_id != METADATA_TOPIC_ID:
        collector.add(
            "DIR-4",
            _path(partition, PARTITION_METADATA_NAME),
            "the topic id is not the topic id of the metadata log",
            severity=Severity.ERROR,
            expected=format_uuid(METADATA_TOPIC_ID),
            found=format_uuid(topic_id),
            broker_action=REFUSES,
        )
    _check_start(partition, collector)
    # With a bootstrap.checkpoint beside it, the snapshot only has the voters of the quorum.
    others = () if partition.log_dir is None else partition.log_dir.others
    begins = not any(each.file.name == BOOTSTRAP_NAME for each in others)
    if (
        begins
        and only_begins(partition.path)
        and version is not None
        and passes_over_beginning(version)
    ):
        collector.add(
            "KRF-4",
            _path(partition, BEGINNING_NAME),
            f"Kafka {version} does not read the snapshot that the cluster begins with",
            severity=Severity.ERROR,
            broker_action="begins a new cluster, without the topics of this snapshot",
            fix="Start a release that reads it; `eoctl releases` lists these.",
        )
        _check_snapshots(partition, collector, None)
    else:
        _check_snapshots(partition, collector, release)
    last_epoch = _LogCheck(partition, collector, release).run()
    _check_quorum_state(partition, collector, last_epoch, version)


def _path(partition: Partition, name: str) -> str:
    return os.fspath(Path(partition.path, name))


def _snapshot_offset(partition: Partition) -> int | None:
    """Return the end offset of the newest snapshot by name, or None."""
    return max((each.name.offset or 0 for each in partition.files.checkpoints), default=None)


def _check_start(partition: Partition, collector: Collector) -> None:
    if not partition.segments:
        return
    start_offset = partition.segments[0].base_offset
    newest = _snapshot_offset(partition)
    if start_offset > 0 and (newest is None or newest < start_offset):
        collector.add(
            "KRF-1",
            partition.path,
            "the log begins above the end of the newest snapshot",
            base_offset=0 if newest is None else newest,
            last_offset=start_offset - 1,
            expected=f"a snapshot that ends at {start_offset} or above",
            found="none" if newest is None else str(newest),
            broker_action=REFUSES,
        )


def _check_snapshots(
    partition: Partition, collector: Collector, release: ReleaseCheck | None
) -> None:
    for entry in partition.files.others:
        is_snapshot = entry.name.kind is FileKind.CHECKPOINT
        if is_snapshot and keeps_from_loading(entry.name.name, is_metadata=True):
            collector.add(
                "DIR-9",
                entry.path,
                "the name of a snapshot must be an offset and an epoch",
                expected="20 digits, -, 10 digits",
                found=entry.name.name.partition(".")[0],
                broker_action=REFUSES,
            )
    checkpoints = partition.files.checkpoints
    for entry in checkpoints:
        is_newest = entry is checkpoints[-1]
        action = _SNAPSHOT_NEWEST if is_newest else _SNAPSHOT_OLDER
        _check_snapshot(partition, entry.path, action, collector, release if is_newest else None)
    log_dir = partition.log_dir
    if log_dir is not None:
        for other in log_dir.others:
            if other.file.name == BOOTSTRAP_NAME and not other.is_dir:
                reads_it = release is not None and release.reads_bootstrap
                action = _bootstrap_action(other.path)
                if action == REFUSES:
                    message = f"{BOOTSTRAP_NAME} has no metadata.version"
                    collector.add("KRF-2", other.path, message, broker_action=REFUSES)
                _check_snapshot(
                    partition,
                    other.path,
                    action,
                    collector,
                    release if reads_it else None,
                )


def _check_snapshot(
    partition: Partition,
    path: str,
    action: str,
    collector: Collector,
    release: ReleaseCheck | None,
) -> None:
    """Check KRF-2 and KRF-4 of one `.checkpoint`."""
    try:
        with open_segment(path) as segment:
            scan = segment.scan(is_active=False)
            ends = _read_snapshot(partition, segment, scan, action, collector, release)
            end_pos = scan.end_pos
    except AccessError as exc:
        partition.problems.append(exc)
        return
    for verdict in scan.verdicts:
        if verdict.kind is VerdictKind.UNREADABLE:
            error = OSError(verdict.errno, verdict.reason)
            partition.problems.append(AccessError(error, path))
            continue
        collector.add(
            "KRF-2",
            path,
            f"the snapshot is damaged: {verdict.reason or verdict.kind}",
            severity=_severity(action),
            start_pos=verdict.start_pos,
            end_pos=verdict.end_pos,
            broker_action=action,
        )
    if scan.verdicts:
        return  # a damaged range may contain the header or the footer
    wanted = (ControlRecordType.SNAPSHOT_HEADER, ControlRecordType.SNAPSHOT_FOOTER)
    for is_end, (expected, found) in enumerate(zip(wanted, ends, strict=True)):
        if found != expected:
            collector.add(
                "KRF-2",
                path,
                "the snapshot does not end with a footer: it is not complete"
                if is_end
                else "the snapshot does not begin with a header",
                severity=_severity(action),
                start_pos=end_pos if is_end else 0,
                expected=expected.name,
                found="none" if found is None else f"type {found}",
                broker_action=action,
            )


def _bootstrap_action(path: str) -> str:
    """Return the action of a start on a bootstrap.checkpoint.

    A start reads the whole batches in order without their checksums. It stops if there is no
    metadata.version (BootstrapMetadata.fromRecords). A node with a metadata log does not use the
    other records, but it must decode them.
    """
    try:
        with open_segment(path) as segment:
            scan = segment.scan(is_active=False)
            known = [_has_version(segment, batch) for batch in scan]
            is_whole = None not in known and not scan.verdicts
            is_unread = any(each.kind is VerdictKind.UNREADABLE for each in scan.verdicts)
    except AccessError:
        return _SNAPSHOT_BOOTSTRAP
    if True in known:
        return _BOOTSTRAP_SERVES if is_whole else _SNAPSHOT_BOOTSTRAP
    return _SNAPSHOT_BOOTSTRAP if is_unread or None in known else REFUSES


def _has_version(segment: Segment, batch: ScannedBatch) -> bool | None:
    """Return whether a batch has a metadata.version, or None if its records do not decode."""
    if batch.header.is_control:
        return False
    try:
        found = [records.parse_record(each.value) for each in segment.records(batch)]
    except (FormatError, AccessError):
        return None
    return any(
        each.api_key == records.FEATURE_LEVEL and each.data["name"] == METADATA_VERSION
        for each in found
    )


def _severity(action: str) -> Severity:
    """Return the severity of KRF-2. With a metadata log, bootstrap.checkpoint is not used."""
    return Severity.WARNING if action in _OF_BOOTSTRAP else Severity.ERROR


def _read_snapshot(
    partition: Partition,
    segment: Segment,
    scan: Scan,
    action: str,
    collector: Collector,
    release: ReleaseCheck | None,
) -> tuple[int | None, int | None]:
    """Decode all records, and return the first and the last control type of the snapshot."""
    first = last = None
    for count, batch in enumerate(scan):
        if batch.crc_ok is False:
            continue
        last = None
        if not batch.header.is_control:
            _decode_batch(partition, segment, batch, action, collector, release)
            continue
        try:
            types = _control_types(segment, batch, release, action)
        except FormatError as exc:
            message = f"a control record does not decode: {exc.message}"
            _add_batch("KRF-2", message, segment, batch, collector, action, _severity(action))
            continue
        last = types[-1] if types else None
        if count == 0:
            first = types[0] if types else None
    return first, last


def _control_types(
    segment: Segment, batch: ScannedBatch, release: ReleaseCheck | None, action: str
) -> list[int]:
    """Return the types in a control batch. Raises FormatError if a key is not a control key."""
    types = []
    for record in segment.records(batch):
        types.append(parse_control_key(record.key).type)
        if release is not None:
            release.take_control(segment.path, batch, record.offset, types[-1], action)
    return types


def _decode_batch(
    partition: Partition,
    segment: Segment,
    batch: ScannedBatch,
    action: str,
    collector: Collector,
    release: ReleaseCheck | None,
) -> list[tuple[int, int]]:
    """Decode the records of a data batch (KRF-4), and return offset and api key of each."""
    decoded = []
    try:
        for record in segment.records(batch):
            is_known = True
            if release is not None:
                does = REFUSES if action in _OF_BOOTSTRAP else action
                is_known = release.take_record(
                    segment.path, batch, record.offset, record.value, does
                )
            try:
                parsed = records.parse_record(record.value)
                decoded.append((record.offset, parsed.api_key))
                if tags := unknown_tags(parsed.data):
                    found = ", ".join(map(str, sorted({*tags})))
                    message = f"{parsed.name} has unknown tagged fields: {found}"
                    _add_batch("COO-5", message, segment, batch, collector, "", Severity.NOTE)
            except FormatError as exc:
                is_newer = exc.check_id in _NEWER_RELEASE
                if is_newer and not is_known:
                    continue
                collector.add(
                    "KRF-4",
                    segment.path,
                    f"a metadata record does not decode: {exc.message}",
                    severity=Severity.NOTE if is_newer else Severity.ERROR,
                    start_pos=batch.pos,
                    end_pos=batch.pos + batch.header.batch_bytes,
                    base_offset=record.offset,
                    last_offset=record.offset,
                    expected=exc.expected,
                    found=exc.found,
                    broker_action="" if is_newer else action,
                )
    except FormatError as exc:
        message = f"a batch of metadata records does not decode: {exc.message}"
        _add_batch("KRF-4", message, segment, batch, collector, action)
    except AccessError as exc:
        partition.problems.append(exc)
    return decoded


def _add_batch(
    check_id: str,
    message: str,
    segment: Segment,
    batch: ScannedBatch,
    collector: Collector,
    action: str,
    severity: Severity | None = None,
) -> None:
    collector.add(
        check_id,
        segment.path,
        message,
        start_pos=batch.pos,
        end_pos=batch.pos + batch.header.batch_bytes,
        base_offset=batch.header.base_offset,
        last_offset=batch.header.last_offset,
        severity=severity,
        broker_action=action,
    )


class _LogCheck:
    """One pass over the records of the metadata log: KRF-4 and KRF-5."""

    def __init__(
        self, partition: Partition, collector: Collector, release: ReleaseCheck | None
    ) -> None:
        self._partition = partition
        self._collector = collector
        self._release = release
        # Below this offset the snapshot replaces the log, which may begin inside a transaction.
        self._judged_from = _snapshot_offset(partition) or 0
        self._is_open = False

    def run(self) -> int:
        """Walk the log, and return the highest leader epoch in it, or -1."""
        if not self._partition.segments:
            return -1
        last_epoch = -1
        for _, segment, batch in self._partition.read(self._partition.segments[0].base_offset):
            if batch.crc_ok is False:
                continue
            last_epoch = max(last_epoch, batch.header.partition_leader_epoch)
            is_replayed = batch.header.last_offset >= self._judged_from
            release = self._release if is_replayed else None
            if batch.header.is_control:
                if release is not None:
                    with suppress(FormatError):  # `--deep` reports it
                        _control_types(segment, batch, release, CANNOT_LOAD)
                continue
            for offset, api_key in _decode_batch(
                self._partition, segment, batch, CANNOT_LOAD, self._collector, release
            ):
                if offset >= self._judged_from:
                    self._follow(segment, batch, offset, api_key)
        return last_epoch

    def _follow(self, segment: Segment, batch: ScannedBatch, offset: int, api_key: int) -> None:
        is_begin = api_key == records.BEGIN_TRANSACTION
        if not is_begin and api_key not in _TRANSACTION_ENDS:
            return
        if is_begin is self._is_open:
            state = "inside of a transaction" if is_begin else "without a transaction"
            self._collector.add(
                "KRF-5",
                segment.path,
                f"{records.RECORD_NAMES[api_key]} {state}",
                start_pos=batch.pos,
                end_pos=batch.pos + batch.header.batch_bytes,
                base_offset=offset,
                last_offset=offset,
                broker_action=CANNOT_LOAD,
            )
        self._is_open = is_begin


def _check_quorum_state(
    partition: Partition,
    collector: Collector,
    last_epoch: int,
    version: BrokerVersion | None,
) -> None:
    path = _path(partition, QUORUM_STATE_NAME)
    entry = partition.files.other(QUORUM_STATE_NAME)
    data = partition.read_file(entry)
    if entry is not None and data is None:
        return
    epoch = 0  # the epoch of a broker without the file
    if data is not None:
        for error in quorum_state_problems(data):
            action = REFUSES if error.check_id == "QST-1" else ""
            collector.add_error(error, path=path, broker_action=action)
        try:
            state = parse_quorum_state(data)
        except FormatError:
            return
        epoch = state.leader_epoch
        if state.data_version and is_before(version, DYNAMIC_QUORUM):
            collector.add(
                "QST-1",
                path,
                f"Kafka {version} does not know this data_version",
                expected="0",
                found=str(state.data_version),
                broker_action=REFUSES,
            )
    if epoch < last_epoch:
        is_missing = data is None
        collector.add(
            "KRF-3",
            path,
            f"{QUORUM_STATE_NAME} is missing" if is_missing else "the epoch is below the log's",
            expected=f">= {last_epoch}",
            found="none" if is_missing else str(epoch),
            broker_action=f"goes on from epoch {last_epoch}; its vote is forgotten",
        )
