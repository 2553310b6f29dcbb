"""The rows of a report, by kind. Everything that its page shows is in a row.

`--output jsonl` gives programs the same rows. A row has the file and the position of its subject,
if there is one, and a command that shows it. None is unknown, never 0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


class VerdictMark(NamedTuple):
    """A sentence of the verdict. `severity` is `ok` if nothing is wrong."""

    label: str
    severity: str
    text: str


class SourceMark(NamedTuple):
    """A fact about the making of the report: the request, what was read and what was not."""

    what: str
    value: str
    severity: str = ""


class PartitionMark(NamedTuple):
    """A partition directory.

    `errors` to `unreadable` and `start` are as in `eoctl check`. The offsets are as in `eoctl
    describe`, except `end_offset`. It is the offset after the last batch that was read, which is
    the log end offset only if `is_end_read`. Otherwise the log may continue, and the last stable
    offset is unknown.
    """

    topic: str
    partition: int | None
    broker: int | None
    log_start_offset: int | None
    local_log_start_offset: int | None
    recovery_point: int | None
    high_watermark: int | None
    last_stable_offset: int | None
    end_offset: int | None
    is_end_read: bool | None
    start_end_offset: int | None
    segments_count: int | None
    batches: int | None
    log_bytes: int | None
    first_timestamp_ms: int | None
    last_timestamp_ms: int | None
    producers_count: int | None
    committed_transactions: int | None
    aborted_transactions: int | None
    open_transactions: int | None
    errors: int | None
    warnings: int | None
    notes: int | None
    unreadable: int
    start: str
    path: str


class VolumeMark(NamedTuple):
    """The batches in a bin of time or of offsets.

    `goes_back`: a bin of lower offsets has a later timestamp.
    """

    path: str
    axis: str
    start: int
    end: int
    batches: int
    records: int
    log_bytes: int
    first_offset: int
    last_offset: int
    first_timestamp_ms: int | None
    last_timestamp_ms: int | None
    goes_back: bool


class SegmentMark(NamedTuple):
    """A segment. Only batches with a right checksum are counted."""

    topic: str
    partition: int | None
    base_offset: int
    last_offset: int | None
    first_timestamp_ms: int | None
    last_timestamp_ms: int | None
    batches: int
    records: int | None
    log_bytes: int
    file: str
    path: str


class EpochMark(NamedTuple):
    """The first batch of another leader epoch."""

    topic: str
    partition: int | None
    leader_epoch: int
    first_offset: int
    timestamp_ms: int | None
    file: str
    position: int
    path: str
    command: str


class TransactionMark(NamedTuple):
    """A transaction, or several consecutive committed transactions.

    `state`, `last_offset` and `verdict` are as in `eoctl txn list`.

    Attributes:
        transactions: number of transactions. Several have the first and the last offset of all, and
            may have no producer.
        first_timestamp_ms: of its first batch.
        last_timestamp_ms: of its marker, or of its last batch if it is open.
        holds_last_stable_offset: it is the oldest open transaction.
        held_offsets_count: number of offsets from its first offset to the log end.
    """

    topic: str
    partition: int | None
    producer_id: int | None
    producer_epoch: int | None
    transactional_id: str | None
    state: str
    verdict: str | None
    transactions: int
    first_offset: int
    last_offset: int | None
    first_timestamp_ms: int | None
    last_timestamp_ms: int | None
    batches: int | None
    records: int | None
    log_bytes: int | None
    holds_last_stable_offset: bool
    held_offsets_count: int | None
    age_ms: int | None
    reason: str
    file: str
    position: int | None
    path: str
    command: str
    fix: str


class TornMark(NamedTuple):
    """A transaction whose partitions contradict each other, as in `eoctl txn torn`.

    `path` is the directory of the first partition in the finding.
    """

    why: str
    transactional_id: str | None
    producer_id: int
    producer_epoch: int | None
    topic: str | None
    partition: int | None
    offset: int | None
    committed_in: tuple[str, ...]
    aborted_in: tuple[str, ...]
    open_in: tuple[str, ...]
    without_marker: tuple[str, ...]
    not_here: tuple[str, ...]
    detail: str | None
    path: str
    command: str


class HeldMark(NamedTuple):
    """The offsets of a partition that read_committed consumers cannot read, and the cause.

    Attributes:
        first_offset, end_offset: the blocked offsets, the end excluded. If `is_end_read` is False,
            the log may continue there, and the transaction may have ended there.
        since_timestamp_ms, until_timestamp_ms: of its first batch, and of the newest in the log.
        is_late: the transaction is older than any transaction may be.
        open_count: number of open transactions.
    """

    topic: str
    partition: int | None
    first_offset: int
    end_offset: int | None
    is_end_read: bool
    held_offsets_count: int | None
    since_timestamp_ms: int | None
    until_timestamp_ms: int | None
    producer_id: int | None
    transactional_id: str | None
    verdict: str | None
    is_late: bool
    open_count: int
    path: str
    command: str


class FindingMark(NamedTuple):
    """A finding of `eoctl check`, whose fields come first.

    Attributes:
        timestamp_ms: approximate time, by the batches around it. None: unknown.
        is_consequence: another finding explains it.
        path: directory of the partition, "" for a log dir's finding.
        command: shows it, or repairs it.
    """

    check_id: str
    severity: str
    file: str
    message: str
    topic: str
    partition: int | None
    start_pos: int | None
    end_pos: int | None
    base_offset: int | None
    last_offset: int | None
    expected: str
    found: str
    broker_action: str
    fix: str
    timestamp_ms: int | None
    is_consequence: bool
    path: str
    command: str


class DuplicateMark(NamedTuple):
    """A duplicate, as in `eoctl duplicates`."""

    kind: str
    topic: str
    partition: int | None
    first_base_offset: int
    first_last_offset: int
    repeat_base_offset: int
    repeat_last_offset: int
    records_count: int | None
    first_timestamp_ms: int
    repeat_timestamp_ms: int
    repeat_producer_id: int
    repeat_producer_epoch: int
    is_same_payload: bool | None
    first_outcome: str
    repeat_outcome: str
    file: str
    path: str
    command: str


class StateMark(NamedTuple):
    """A record of a coordinator about a transactional id.

    Attributes:
        event: the difference from the previous record. An epoch was raised, so that older instances
            are fenced, the producer id is another, or the coordinator aborted a transaction.
        due_at_ms: the time at which an ongoing transaction times out.
    """

    transactional_id: str
    status: str
    producer_id: int | None
    producer_epoch: int | None
    timestamp_ms: int | None
    timeout_ms: int | None
    partitions_count: int | None
    event: str
    due_at_ms: int | None
    coordinator_partition: int
    record_offset: int
    command: str


class ProducerMark(NamedTuple):
    """A producer id in a partition.

    `expires_at_ms`: the time at which its state expires (PROD-10).
    """

    topic: str
    partition: int | None
    producer_id: int
    transactional_id: str | None
    first_epoch: int
    last_epoch: int
    batches: int
    records: int
    log_bytes: int
    transactional_batches: int
    first_offset: int
    last_offset: int
    first_timestamp_ms: int | None
    last_timestamp_ms: int | None
    expires_at_ms: int | None
    is_expired: bool | None
    path: str
    command: str


class CommitMark(NamedTuple):
    """A committed offset of a group, as in `eoctl groups describe`."""

    group: str
    topic: str
    partition: int
    status: str
    committed_offset: int | None
    log_end_offset: int | None
    lag_offsets: int | None
    place: str | None
    is_expired: bool
    commit_timestamp_ms: int | None
    client_id: str | None
    host: str | None
    path: str | None
    command: str


class ReplicaMark(NamedTuple):
    """A replica of a partition, as in `eoctl replicas compare`.

    `should_lead`: the command advises to make it the leader.
    """

    topic: str
    partition: int | None
    broker: int | None
    log_start_offset: int
    log_end_offset: int
    high_watermark: int | None
    sound_end_offset: int
    leader_epochs: str | None
    should_lead: bool
    reason: str
    path: str
    command: str


class ComparisonMark(NamedTuple):
    """Two replicas, and the offset at which they diverge.

    `divergence_offset`: the end of the shorter replica if they are equal up to there.
    """

    topic: str
    partition: int | None
    likeness: str
    divergence_offset: int | None
    path: str
    other_path: str
    command: str


class ChangeMark(NamedTuple):
    """A change in the cluster's metadata: a leader, an ISR, a fenced broker."""

    what: str
    topic: str | None
    partition: int | None
    broker: int | None
    timestamp_ms: int | None
    metadata_offset: int
    leader: int | None
    leader_epoch: int | None
    replicas: str | None
    isr: str | None
    elr: str | None
    is_unclean: bool
    is_under_min_isr: bool
    text: str
    path: str
    command: str


class Model(NamedTuple):
    """All rows of a report.

    Attributes:
        title: of the page.
        now_ms: the clock. `version`: of eoctl.
        status: exit status.
        left_out: sentences about everything that is summed up or left out to save room.
    """

    title: str
    version: str
    now_ms: int
    status: int
    verdict: tuple[VerdictMark, ...] = ()
    next_command: str = ""
    partitions: tuple[PartitionMark, ...] = ()
    held: tuple[HeldMark, ...] = ()
    findings: tuple[FindingMark, ...] = ()
    transactions: tuple[TransactionMark, ...] = ()
    torn: tuple[TornMark, ...] = ()
    duplicates: tuple[DuplicateMark, ...] = ()
    segments: tuple[SegmentMark, ...] = ()
    epochs: tuple[EpochMark, ...] = ()
    volume: tuple[VolumeMark, ...] = ()
    states: tuple[StateMark, ...] = ()
    producers: tuple[ProducerMark, ...] = ()
    replicas: tuple[ReplicaMark, ...] = ()
    comparisons: tuple[ComparisonMark, ...] = ()
    commits: tuple[CommitMark, ...] = ()
    changes: tuple[ChangeMark, ...] = ()
    sources: tuple[SourceMark, ...] = ()
    left_out: tuple[str, ...] = ()

    def tables(self) -> Iterator[tuple[str, tuple[str, ...], Sequence[Any]]]:
        """Yield kind, columns and rows of each table."""
        for kind, (field, row) in TABLES.items():
            yield kind, row._fields, getattr(self, field)


# Kind of a row -> the field of the model, and its columns.
TABLES: dict[str, tuple[str, Any]] = {
    "verdict": ("verdict", VerdictMark),
    "partition": ("partitions", PartitionMark),
    "held": ("held", HeldMark),
    "finding": ("findings", FindingMark),
    "transaction": ("transactions", TransactionMark),
    "torn_transaction": ("torn", TornMark),
    "duplicate": ("duplicates", DuplicateMark),
    "segment": ("segments", SegmentMark),
    "leader_epoch": ("epochs", EpochMark),
    "volume": ("volume", VolumeMark),
    "id_state": ("states", StateMark),
    "producer": ("producers", ProducerMark),
    "replica": ("replicas", ReplicaMark),
    "comparison": ("comparisons", ComparisonMark),
    "commit": ("commits", CommitMark),
    "change": ("changes", ChangeMark),
    "source": ("sources", SourceMark),
}
