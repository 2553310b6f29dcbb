"""`eoctl lease-pid`: producer ids on lease, from a durable sequence that many processes share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, NamedTuple

from eoctl import options
from eoctl.clients.coordinators.producer_id_topic import inspect_ids, opened_ids
from eoctl.output import OutputFormat
from eoctl.parameters import advanced_option, argument, option
from recovery.replay.recover_state import known_state, known_states
from storage.errors import EXIT_OK, EXIT_SKIPPED, UsageError
from storage.file_names import DirState, TopicPartition
from storage.formats.producer_id_record import FIRST_ID, MAX_GENERATION
from storage.formats.record_batch import increment_sequence
from storage.limits import INT16_MAX, INT32_MAX
from storage.producers.producer_state import NO_EPOCH

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eoctl.clients.coordinators.producer_id_topic import IdOptions, OpenIds
    from recovery.replay.recover_state import KnownState
    from recovery.replay.snapshots import Clock
    from storage.files.fsio import FileSystem
    from storage.formats.producer_id_record import Lease
    from storage.formats.producer_snapshot import ProducerEntry


LogDir = Annotated[str, argument(metavar="LOG_DIR", help="One of a broker's log.dirs.")]
AppId = Annotated[str, option(metavar="ID", help="Application that the producer id is leased to.")]
ExpiryMs = Annotated[
    int, option(min=1, max=2**53, metavar="MS", help="Duration of the lease from now on.")
]
Generation = Annotated[
    int, option(min=0, max=INT16_MAX, metavar="N", help="Generation that acquire returned.")
]
WaitMs = Annotated[int, advanced_option(min=0, metavar="MS", help="How long to wait for the lock.")]
TopicId = Annotated[
    str | None,
    advanced_option(metavar="ID", help="Topic id, if the cluster does not know the topic."),
]
BlockSize = Annotated[
    int,
    advanced_option(min=1, max=1_000_000, metavar="N", help="Ids taken from the sequence at once."),
]
Now = Annotated[
    str | None,
    advanced_option(metavar="TIME|wall|dir", help="The clock for leases.", show_default="wall"),
]


def acquire(
    log_dir: LogDir,
    app_id: AppId,
    expiry_ms: ExpiryMs,
    topic: Annotated[
        list[str] | None,
        option(metavar="TOPIC", help="Topic of a partition to write to. Repeatable."),
    ] = None,
    partition: Annotated[
        list[int] | None,
        option(min=0, max=INT32_MAX, metavar="N", help="Partition number, one for each --topic."),
    ] = None,
    block_size: BlockSize = 1000,
    wait_ms: WaitMs = 5000,
    metadata_dir: options.MetadataDir = None,
    topic_id: TopicId = None,
    single_copy: options.SingleCopy = False,
    now: Now = None,
    producer_expiry_ms: options.ProducerExpiryMs = None,
    broker_is_stopped: options.BrokerIsStopped = False,
    output: options.Output = OutputFormat.TEXT,
) -> int:
    """Lease a producer id. An app id gets its own id again, and the former holder is fenced.

    It cannot be undone: a producer id that was leased may be in use.
    """
    from eoctl.clients.partitions.target import require_legal
    from storage.files.fsio import FileSystem

    topics, numbers = topic or [], partition or []
    for each in topics:
        require_legal(each)
    chosen = _options(
        metadata_dir,
        topic_id,
        single_copy,
        broker_is_stopped,
        wait_ms,
        now,
        producer_expiry_ms,
    )._replace(block_size=block_size)
    if len(topics) != len(numbers):
        raise UsageError(
            f"{len(topics)} --topic and {len(numbers)} --partition",
            next_step="--topic T --partition P for each partition",
        )
    partitions = tuple(zip(topics, numbers, strict=True))
    if len(set(partitions)) < len(partitions):
        raise UsageError("a partition is named twice")
    answer = acquire_lease(log_dir, app_id, expiry_ms, partitions, chosen, FileSystem())
    return _print("lease", LeaseRow._fields, answer, output)


def renew(
    log_dir: LogDir,
    app_id: AppId,
    generation: Generation,
    expiry_ms: ExpiryMs,
    wait_ms: WaitMs = 5000,
    metadata_dir: options.MetadataDir = None,
    topic_id: TopicId = None,
    single_copy: options.SingleCopy = False,
    now: Now = None,
    producer_expiry_ms: options.ProducerExpiryMs = None,
    broker_is_stopped: options.BrokerIsStopped = False,
    output: options.Output = OutputFormat.TEXT,
) -> int:
    """Extend a lease. A former holder is refused.

    It cannot be undone: a producer id that was leased may be in use.
    """
    from storage.files.fsio import FileSystem

    chosen = _options(
        metadata_dir,
        topic_id,
        single_copy,
        broker_is_stopped,
        wait_ms,
        now,
        producer_expiry_ms,
    )
    answer = renew_lease(log_dir, app_id, generation, expiry_ms, chosen, FileSystem())
    return _print("lease", LeaseRow._fields, answer, output)


def release(
    log_dir: LogDir,
    app_id: AppId,
    generation: Generation,
    wait_ms: WaitMs = 5000,
    metadata_dir: options.MetadataDir = None,
    topic_id: TopicId = None,
    single_copy: options.SingleCopy = False,
    now: Now = None,
    broker_is_stopped: options.BrokerIsStopped = False,
    output: options.Output = OutputFormat.TEXT,
) -> int:
    """Give a lease up. A former holder is refused.

    It cannot be undone: a producer id that was leased may be in use.
    """
    from storage.files.fsio import FileSystem

    chosen = _options(metadata_dir, topic_id, single_copy, broker_is_stopped, wait_ms, now, None)
    answer = release_lease(log_dir, app_id, generation, chosen, FileSystem())
    return _print("released", ListRow._fields, answer, output)


def list_leases(
    log_dir: LogDir, now: Now = None, output: options.Output = OutputFormat.TEXT
) -> int:
    """List all leases, and the state of the id sequence, without a lock."""
    from eoctl.output import Report, emit, line

    answer, sequence = show_leases(log_dir, now)
    status = _print("lease", ListRow._fields, answer, output)
    if output is OutputFormat.TEXT:
        line("")
    emit(Report("sequence", SequenceRow._fields, [sequence]), output)
    return status


def expire(
    log_dir: LogDir,
    producer_expiry_ms: options.ProducerExpiryMs = None,
    wait_ms: WaitMs = 5000,
    metadata_dir: options.MetadataDir = None,
    topic_id: TopicId = None,
    single_copy: options.SingleCopy = False,
    now: Now = None,
    broker_is_stopped: options.BrokerIsStopped = False,
    output: options.Output = OutputFormat.TEXT,
) -> int:
    """Free the ids of leases that nobody holds and that no producer state knows any more.

    It cannot be undone: a producer id that was leased may be in use.
    """
    from storage.files.fsio import FileSystem

    chosen = _options(
        metadata_dir,
        topic_id,
        single_copy,
        broker_is_stopped,
        wait_ms,
        now,
        producer_expiry_ms,
    )
    answer = expire_leases(log_dir, chosen, FileSystem())
    return _print("expired", ExpireRow._fields, answer, output)


def _options(
    metadata_dir: str | None,
    topic_id: str | None,
    single_copy: bool,
    broker_is_stopped: bool,
    wait_ms: int,
    now: str | None,
    producer_expiry_ms: int | None,
) -> IdOptions:
    from eoctl.clients.coordinators.producer_id_topic import IdOptions

    chosen = IdOptions(
        metadata_dir=metadata_dir,
        topic_id=topic_id,
        single_copy=single_copy,
        broker_is_stopped=broker_is_stopped,
        wait_ms=wait_ms,
        now=now,
    )
    if producer_expiry_ms is not None:
        chosen = chosen._replace(expiration_ms=producer_expiry_ms)
    return chosen


def _print(kind: str, columns: Sequence[str], answer: LeaseAnswer, output: OutputFormat) -> int:
    from eoctl.output import Report, emit

    emit(Report(kind=kind, columns=tuple(columns), rows=answer.rows, notes=answer.notes), output)
    return answer.status


SUBCOMMANDS = {
    "acquire": acquire,
    "renew": renew,
    "release": release,
    "list": list_leases,
    "expire": expire,
}


# -- the operations of `eoctl lease-pid`, and their output


NONE = "NONE"  # Kafka's name for no error
MAX_APP_ID_BYTES = 4096

TopicPartitions = tuple[tuple[str, int], ...]


class LeaseRow(NamedTuple):
    """A lease and one of its partitions. The partition fields are None if it has none."""

    error: str
    app_id: str
    producer_id: int
    generation: int
    next_sequence: int | None
    expires_at_ms: int
    topic: str | None = None
    partition: int | None = None


class ListRow(NamedTuple):
    """A lease."""

    app_id: str
    state: str
    producer_id: int
    generation: int
    expiry_ms: int
    expires_at_ms: int
    partitions: tuple[str, ...]


class SequenceRow(NamedTuple):
    """The state of the sequence of producer ids."""

    first_id: int
    next_block_id: int
    lease_ids_left: int
    free_ids: tuple[int, ...]


class ExpireRow(NamedTuple):
    """A lease without a holder.

    `outcome` is one of these:

    - freed
    - retired: freed, but its generations are used up
    - known: a producer state has the id until `reusable_at_ms`, None during an open transaction
    - unknown: some partitions could not be read
    """

    app_id: str
    outcome: str
    producer_id: int
    generation: int
    reusable_at_ms: int | None
    known_in: tuple[str, ...]


class LeaseAnswer(NamedTuple):
    """Rows to print, notes for people, and the exit status."""

    rows: Sequence[tuple[object, ...]]
    notes: list[str]
    status: int = EXIT_OK


def require_app_id(app_id: str) -> None:
    """Check that an app id can be stored. Raises UsageError."""
    try:
        size_bytes = len(app_id.encode())
    except UnicodeEncodeError:
        raise UsageError(f"--app-id {app_id!r}: not UTF-8") from None
    if not 0 < size_bytes <= MAX_APP_ID_BYTES:
        raise UsageError(f"--app-id: has {size_bytes} bytes, not 1 to {MAX_APP_ID_BYTES}")


def acquire_lease(
    path: str,
    app_id: str,
    expiry_ms: int,
    partitions: TopicPartitions,
    options: IdOptions,
    fs: FileSystem,
) -> LeaseAnswer:
    """Lease a producer id. Raises as `ProducerIds.acquire` and `opened_ids`."""
    require_app_id(app_id)
    with opened_ids(path, options, fs) as opened:
        states = _states(opened, partitions)

        def last_epoch(producer_id: int) -> int:
            entries = (each.entry_of(producer_id) for each in states if each is not None)
            return max((each.producer_epoch for each in entries if each), default=NO_EPOCH)

        lease = opened.ids.acquire(app_id, expiry_ms, partitions=partitions, last_epoch=last_epoch)
        return _answer(opened, lease, states)


def renew_lease(
    path: str, app_id: str, generation: int, expiry_ms: int, options: IdOptions, fs: FileSystem
) -> LeaseAnswer:
    """Extend a lease. Raises as `ProducerIds.renew` and `opened_ids`."""
    require_app_id(app_id)
    with opened_ids(path, options, fs) as opened:
        lease = opened.ids.renew(app_id, generation, expiry_ms)
        return _answer(opened, lease, _states(opened, lease.partitions))


def release_lease(
    path: str, app_id: str, generation: int, options: IdOptions, fs: FileSystem
) -> LeaseAnswer:
    """Give a lease up. Raises as `ProducerIds.release` and `opened_ids`."""
    require_app_id(app_id)
    with opened_ids(path, options, fs) as opened:
        lease = opened.ids.release(app_id, generation)
        return LeaseAnswer([_list_row(lease, opened.clock.now_ms)], opened.notes)


def show_leases(path: str, now: str | None) -> tuple[LeaseAnswer, SequenceRow]:
    """Return all leases. Raises as `inspect_ids`."""
    opened = inspect_ids(path, now)
    ids, lease_ids = opened.ids.ids, opened.ids
    rows = [_list_row(each, opened.clock.now_ms) for each in lease_ids.leases()]
    sequence = SequenceRow(
        first_id=FIRST_ID,
        next_block_id=ids.next_block_id,
        lease_ids_left=ids.lease_end_id - ids.next_lease_id,
        free_ids=tuple(each.producer_id for each in lease_ids.free_ids()),
    )
    return LeaseAnswer(rows, [*opened.notes, opened.now.describe()]), sequence


def expire_leases(path: str, options: IdOptions, fs: FileSystem) -> LeaseAnswer:
    """Free the ids without a holder that no producer state has. Raises as `opened_ids`."""
    with opened_ids(path, options, fs) as opened:
        now_ms = opened.clock.now_ms
        lapsed = [each for each in opened.ids.leases() if not each.is_held(now_ms)]
        states = list(known_states(opened.log_dir, opened.clock)) if lapsed else []
        unknown = [each.unknown for each in states if each.unknown]
        found = {
            each.producer_id: _knowing(states, each.producer_id, opened.clock) for each in lapsed
        }
        unused = {each for each, knowing in found.items() if not knowing and not unknown}
        freed = {each.app_id for each in opened.ids.free(unused)}
        rows = [
            ExpireRow(
                app_id=each.app_id,
                outcome=_outcome(
                    each, is_freed=each.app_id in freed, is_known=bool(found[each.producer_id])
                ),
                producer_id=each.producer_id,
                generation=each.generation,
                reusable_at_ms=_reusable_at_ms(found[each.producer_id], opened.clock.expiration_ms),
                known_in=tuple(name for name, _ in found[each.producer_id]),
            )
            for each in lapsed
        ]
        notes = [f"{each}: whether an id is known there is unknown" for each in unknown]
        status = EXIT_SKIPPED if unknown else EXIT_OK
        return LeaseAnswer(rows, [*opened.notes, *notes, opened.now.describe()], status)


# --- the state of partitions ---


def _states(opened: OpenIds, partitions: TopicPartitions) -> list[KnownState | None]:
    """Return the state of each partition, None for a partition that does not exist."""
    live = {
        each.topic_partition: each
        for each in opened.log_dir.partitions
        if each.name.state is DirState.LIVE
    }
    directories = [live.get(TopicPartition(*each)) for each in partitions]
    return [
        None if each is None else known_state(each, opened.log_dir, opened.clock)
        for each in directories
    ]


def _knowing(
    states: Sequence[KnownState], producer_id: int, clock: Clock
) -> list[tuple[str, ProducerEntry]]:
    found = (
        (str(each.directory.topic_partition), each.live_entry_of(producer_id, clock))
        for each in states
    )
    return [(name, entry) for name, entry in found if entry is not None]


def _reusable_at_ms(knowing: Sequence[tuple[str, ProducerEntry]], expiration_ms: int) -> int | None:
    if not knowing or any(each.current_txn_first_offset >= 0 for _, each in knowing):
        return None
    return max(each.timestamp_ms for _, each in knowing) + expiration_ms


def _outcome(lease: Lease, *, is_freed: bool, is_known: bool) -> str:
    if not is_freed:
        return "known" if is_known else "unknown"
    return "freed" if lease.generation < MAX_GENERATION else "retired"


# --- rows -----------------------------------------------------------------------------------------


def _answer(opened: OpenIds, lease: Lease, states: Sequence[KnownState | None]) -> LeaseAnswer:
    """Return a row for each partition with its error, or one row without partitions."""
    row = LeaseRow(
        error=NONE,
        app_id=lease.app_id,
        producer_id=lease.producer_id,
        generation=lease.generation,
        next_sequence=None,
        expires_at_ms=lease.expires_at_ms,
    )
    notes = opened.notes
    if not lease.partitions:
        return LeaseAnswer([row], notes)
    rows = []
    for (topic, number), state in zip(lease.partitions, states, strict=True):
        error, sequence = NONE, None
        if state is None:
            error = "UNKNOWN_TOPIC_OR_PARTITION"
        elif state.unknown:
            error = "KAFKA_STORAGE_ERROR"
            notes.append(state.unknown)
        else:
            sequence = _next_sequence(state, lease)
        rows.append(
            row._replace(error=error, next_sequence=sequence, topic=topic, partition=number)
        )
    is_whole = all(each.error == NONE for each in rows)
    return LeaseAnswer(rows, notes, EXIT_OK if is_whole else EXIT_SKIPPED)


def _next_sequence(state: KnownState, lease: Lease) -> int:
    entry = state.entry_of(lease.producer_id)
    if entry is None or entry.producer_epoch != lease.generation or not entry.has_batch:
        return 0
    return increment_sequence(entry.last_sequence, 1)


def _list_row(lease: Lease, now_ms: int) -> ListRow:
    state = "held" if lease.is_held(now_ms) else "released" if lease.is_released else "lapsed"
    return ListRow(
        app_id=lease.app_id,
        state=state,
        producer_id=lease.producer_id,
        generation=lease.generation,
        expiry_ms=lease.expiry_ms,
        expires_at_ms=lease.expires_at_ms,
        partitions=tuple(f"{topic}-{number}" for topic, number in lease.partitions),
    )
