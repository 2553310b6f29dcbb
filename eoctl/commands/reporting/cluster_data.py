"""Data beyond the partitions: coordinators, groups, replicas, and changes of the cluster.

Absent data is not read, and the modules that would read it are not loaded.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from eoctl.commands.reporting import report_options
from eoctl.replica_paths import node_id_of
from eoctl.report.model import (
    ChangeMark,
    CommitMark,
    ComparisonMark,
    DuplicateMark,
    ReplicaMark,
    StateMark,
)
from recovery.cluster.history import BrokerChange, PartitionChange, Unread
from storage.dirs.partition import Partition
from storage.errors import EoctlError
from storage.file_names import GROUPS_TOPIC, METADATA_TOPIC, DirState
from storage.formats.transaction_state import TransactionStatus

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from eoctl.clock import Now
    from eoctl.commands.reporting.report_options import ReportRequest
    from recovery.cluster.coordinator_log import IdRecord
    from recovery.cluster.history import BrokerWhy, Why
    from recovery.duplicates.spill import DuplicateKind
    from storage.dirs.cluster_image import PartitionImage
    from storage.dirs.discovery import Discovery, Selected
    from storage.formats.transaction_state import TransactionState


MAX_STATES = 2000  # the newest, per transactional id
MAX_CHANGES = 20_000  # the newest, of a cluster
FORGOTTEN = "forgotten"
EPOCH_BUMPS = 2  # transaction version whose ends raise the epoch (TXN-7)
MEMORY_BYTES = 64 << 20


# --- coordinators ---------------------------------------------------------------------------------


class StatesSeen:
    """The newest MAX_STATES states of each transactional id, record by record."""

    def __init__(self) -> None:
        self._states: dict[str, deque[IdRecord]] = {}
        self.dropped_count = 0

    def add(self, record: IdRecord) -> None:
        """Take a record. A record from a second replica of the partition is skipped."""
        known = self._states.setdefault(record.transactional_id, deque(maxlen=MAX_STATES))
        if known and known[-1].partition == record.partition and known[-1].offset >= record.offset:
            return
        self.dropped_count += len(known) == MAX_STATES
        known.append(record)

    def rows(self, request: ReportRequest) -> Iterator[StateMark]:
        """Yield a row for each state, by id and offset."""
        for name in sorted(self._states):
            if request.transactional_ids and name not in request.transactional_ids:
                continue
            command = report_options.transactional_id(name, request)
            before = None
            for each in self._states[name]:
                row = _state_row(each, before, command)
                before = each.state
                if request.is_within(row.timestamp_ms, row.timestamp_ms):
                    yield row


def _state_row(record: IdRecord, before: TransactionState | None, command: str) -> StateMark:
    state = record.state
    if state is None:
        return StateMark(
            transactional_id=record.transactional_id,
            status=FORGOTTEN,
            producer_id=None,
            producer_epoch=None,
            timestamp_ms=None,
            timeout_ms=None,
            partitions_count=None,
            event="",
            due_at_ms=None,
            coordinator_partition=record.partition,
            record_offset=record.offset,
            command=command,
        )
    return StateMark(
        transactional_id=record.transactional_id,
        status=TransactionStatus(state.transaction_status).label,
        producer_id=state.producer_id,
        producer_epoch=state.producer_epoch,
        timestamp_ms=state.last_update_timestamp_ms,
        timeout_ms=state.timeout_ms,
        partitions_count=len(state.partitions or ()),
        event="" if before is None else _event(before, state),
        due_at_ms=_due_ms(state) if state.transaction_status == TransactionStatus.ONGOING else None,
        coordinator_partition=record.partition,
        record_offset=record.offset,
        command=command,
    )


def _due_ms(state: TransactionState) -> int | None:
    return None if state.start_timestamp_ms < 0 else state.start_timestamp_ms + state.timeout_ms


def _event(before: TransactionState, state: TransactionState) -> str:
    """Return the event between two records of an id, "" if the next state says it.

    With transaction version 2 each end raises the epoch, whether the producer or the coordinator
    requested it.
    """
    if state.producer_id != before.producer_id:
        return "another producer id"
    if state.producer_epoch <= before.producer_epoch:
        return ""
    status = state.transaction_status
    if status == TransactionStatus.PREPARE_ABORT:
        due_ms = _due_ms(before)
        if due_ms is not None and state.last_update_timestamp_ms >= due_ms:
            return "timed out: aborted by the coordinator"
        # The coordinator's own records have version 2, whatever the client's version is.
        return "" if before.client_transaction_version >= EPOCH_BUMPS else "fenced: aborted"
    if status == TransactionStatus.PREPARE_COMMIT:
        return ""
    return "new epoch: older instances are fenced"


# --- duplicates -----------------------------------------------------------------------------------


def duplicate_rows(
    selected: Sequence[Selected], kinds: Iterable[DuplicateKind], request: ReportRequest
) -> tuple[list[DuplicateMark], list[str]]:
    """Find duplicate records in some directories. Reads them again."""
    from recovery.duplicates.search import DuplicateOptions, DuplicateSearch
    from recovery.duplicates.spill import spill_space

    space = spill_space(None, MEMORY_BYTES)
    search = DuplicateSearch(selected, DuplicateOptions(kinds=frozenset(kinds)), space)
    rows = [
        DuplicateMark(
            kind=str(each.kind),
            topic=each.topic,
            partition=each.partition,
            first_base_offset=each.first_base_offset,
            first_last_offset=each.first_last_offset,
            repeat_base_offset=each.repeat_base_offset,
            repeat_last_offset=each.repeat_last_offset,
            records_count=each.records_count,
            first_timestamp_ms=each.first_timestamp_ms,
            repeat_timestamp_ms=each.repeat_timestamp_ms,
            repeat_producer_id=each.repeat_producer_id,
            repeat_producer_epoch=each.repeat_producer_epoch,
            is_same_payload=each.is_same_payload,
            first_outcome=each.first_outcome,
            repeat_outcome=each.repeat_outcome,
            file=each.path,
            path=directory,
            command=report_options.duplicates(directory, str(each.kind)),
        )
        for each in search.duplicates()
        for directory in [each.path.rpartition("/")[0]]
        if request.is_within(each.first_timestamp_ms, each.repeat_timestamp_ms)
    ]
    return rows, search.notes


# --- groups ---------------------------------------------------------------------------------------


def commit_rows(found: Discovery, request: ReportRequest) -> tuple[list[CommitMark], list[str]]:
    """Read the groups, if `__consumer_offsets` is among the given paths."""
    if not any(each.partition.name.topic == GROUPS_TOPIC for each in found.selected):
        return [], [f"groups: no {GROUPS_TOPIC} was given"]
    from eoctl.commands.groups.group_context import GroupContext, WantedGroups
    from eoctl.commands.groups.inspect_groups import offset_rows

    paths = [each.path for each in found.log_dirs]
    wanted = WantedGroups(topics=request.topics, metadata_dir=request.metadata_dir, now=request.now)
    try:
        context = GroupContext(paths, wanted)
        rows = offset_rows(context)
    except EoctlError as exc:
        return [], [f"groups were not read: {exc}"]
    commits = [
        CommitMark(
            group=each.group,
            topic=each.topic,
            partition=each.partition,
            status=each.status,
            committed_offset=each.committed_offset,
            log_end_offset=each.log_end_offset,
            lag_offsets=each.lag_offsets,
            place=each.place,
            is_expired=each.is_expired,
            commit_timestamp_ms=each.commit_timestamp_ms,
            client_id=each.client_id,
            host=each.host,
            path=each.path,
            command=report_options.group(each.group, request),
        )
        for each in rows
        if request.is_within(each.commit_timestamp_ms, each.commit_timestamp_ms)
    ]
    return commits, [f"groups: {each}" for each in context.notes]


# --- replicas -------------------------------------------------------------------------------------


class Copies(NamedTuple):
    """The replicas of partitions on several nodes, and their comparison."""

    replicas: list[ReplicaMark]
    comparisons: list[ComparisonMark]
    notes: list[str]


def copies_of(found: Discovery, request: ReportRequest, moment: Now) -> Copies:
    """Compare the replicas of each partition. Reads them again."""
    groups: dict[tuple[str, int], list[str]] = {}
    for each in found.selected:
        name = each.partition.name
        is_wanted = not request.topics or name.topic in request.topics
        if name.state is DirState.LIVE and name.topic != METADATA_TOPIC and is_wanted:
            groups.setdefault((name.topic, name.partition), []).append(each.partition.path)
    copies = Copies([], [], [])
    if all(len(paths) < 2 for paths in groups.values()):
        return copies
    from eoctl.commands.shared.replica_rows import CompareRun

    for (topic, partition), paths in sorted(groups.items()):
        if len(paths) < 2:
            continue
        try:
            run = CompareRun(
                paths, now=request.now, expiration_ms=request.expiration_ms, moment=moment
            )
        except EoctlError as exc:
            copies.notes.append(f"{topic}-{partition}: copies were not compared: {exc}")
            continue
        command = report_options.compare(paths)
        advised = {each.leader: each.reason for each in run.recommendations}
        copies.replicas.extend(
            ReplicaMark(
                topic=topic,
                partition=partition,
                broker=each.broker,
                log_start_offset=each.log_start_offset,
                log_end_offset=each.log_end_offset,
                high_watermark=each.high_watermark,
                sound_end_offset=each.sound_end_offset,
                leader_epochs=each.leader_epochs,
                should_lead=each.path in advised,
                reason=advised.get(each.path, ""),
                path=each.path,
                command=command,
            )
            for each in run.replicas
        )
        copies.comparisons.extend(
            ComparisonMark(
                topic=topic,
                partition=partition,
                likeness=each.likeness,
                divergence_offset=each.divergence_offset,
                path=each.one,
                other_path=each.other,
                command=command,
            )
            for each in run.comparisons
        )
        copies.notes.extend(run.notes)
    return copies


def brokers_of(selected: Iterable[Selected]) -> dict[str, int | None]:
    """Return the node of each directory, None if unknown."""
    return {each.partition.path: node_id_of(each) for each in selected}


# --- the cluster over time ------------------------------------------------------------------------


def change_rows(found: Discovery, request: ReportRequest) -> tuple[list[ChangeMark], list[str]]:
    """Read the changes of the cluster, from the metadata that reach furthest."""
    sources: list[Partition] = []
    for each in found.selected:
        if each.partition.name.topic == METADATA_TOPIC:
            try:
                sources.append(Partition.of(each))
            except EoctlError as exc:
                return [], [f"cluster: {exc}"]
    if not sources:
        return [], [
            (f"cluster: no {METADATA_TOPIC} was given. The leaders and the ISRs are unknown")
        ]
    from recovery.cluster.history import read_history

    source = max(sources, key=_reach)
    history = read_history(source)
    rows: deque[ChangeMark] = deque(maxlen=MAX_CHANGES)
    count = 0
    for change in history:
        row = None
        if isinstance(change, PartitionChange):
            if not request.topics or change.topic in request.topics:
                row = _partition_change(change, source.path)
        elif isinstance(change, BrokerChange):
            row = _broker_change(change, source.path)
        elif isinstance(change, Unread):
            row = _unread(change, source.path)
        if row is not None and request.is_within(row.timestamp_ms, row.timestamp_ms):
            rows.append(row)
            count += 1
    notes = [f"cluster: {each}" for each in history.problems]
    if history.went_back_offset is not None:
        notes.append(
            "cluster: the clocks of controllers differ: metadata offset "
            f"{history.went_back_offset} has an older time than an earlier offset"
        )
    if count > len(rows):
        notes.append(f"cluster: the newest {len(rows):,} of {count:,} changes are shown")
    return list(rows), notes


def _reach(source: Partition) -> int:
    try:
        end = source.log_end()
    except EoctlError:
        return -1
    return -1 if end is None else end.offset


def _partition_change(change: PartitionChange, path: str) -> ChangeMark | None:
    after = change.after
    why = ", ".join(_words(change.why))
    return ChangeMark(
        what="partition",
        topic=change.topic,
        partition=change.partition,
        broker=None,
        timestamp_ms=None if change.timestamp_ms < 0 else change.timestamp_ms,
        metadata_offset=change.offset,
        leader=None if after is None else after.leader,
        leader_epoch=None if after is None else after.leader_epoch,
        replicas=_nodes(after, "replicas"),
        isr=_nodes(after, "isr"),
        elr=_nodes(after, "elr"),
        is_unclean=change.is_unclean,
        is_under_min_isr=change.is_under_min_isr,
        text=why,
        path=path,
        command=report_options.locate(path, change.offset),
    )


def _broker_change(change: BrokerChange, path: str) -> ChangeMark:
    mark = _of_no_partition(change, "broker", path)
    return mark._replace(
        broker=change.broker_id,
        text=", ".join(_words(change.why)),
        command=report_options.locate(path, change.offset),
    )


def _unread(change: Unread, path: str) -> ChangeMark:
    end = "an unknown end" if change.end_offset is None else str(change.end_offset)
    text = f"offsets {change.offset} to {end} were not read: {change.reason}"
    return _of_no_partition(change, "unread", path)._replace(
        text=text, command=report_options.check(path)
    )


def _of_no_partition(change: BrokerChange | Unread, what: str, path: str) -> ChangeMark:
    return ChangeMark(
        what=what,
        topic=None,
        partition=None,
        broker=None,
        timestamp_ms=None if change.timestamp_ms < 0 else change.timestamp_ms,
        metadata_offset=change.offset,
        leader=None,
        leader_epoch=None,
        replicas=None,
        isr=None,
        elr=None,
        is_unclean=False,
        is_under_min_isr=False,
        text="",
        path=path,
        command="",
    )


def _words(why: Iterable[Why | BrokerWhy]) -> list[str]:
    return [str(each) for each in why]


def _nodes(image: PartitionImage | None, name: str) -> str | None:
    return None if image is None else ",".join(map(str, getattr(image, name)))
