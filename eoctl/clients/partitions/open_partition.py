"""A partition opened for writing: its end, its recovery after a crash, its writer."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from eoctl.change_options import ChangeOptions
from eoctl.clients.partitions.target import resolve_target
from eoctl.clock import NowSource, wall_ms
from eoctl.output import message
from eoctl.plan_actions import how_to_undo
from eoctl.progress import Progress
from recovery.changes.append_journal import AppendJournal
from recovery.changes.apply import close_appends
from recovery.changes.journals.backups import Applied
from recovery.changes.journals.journal import Status
from recovery.changes.journals.listing import ways_out
from recovery.changes.plans.plan import absolute_path, make_plan, source_of
from recovery.changes.plans.preconditions import require_checkpoints
from recovery.replay.recover_state import recovery_price
from storage.counts import counted
from storage.dirs.log_dir import PartitionDir, read_log_dir
from storage.dirs.log_tail import NotClosedError, empty_tail, read_tail
from storage.dirs.partition import Partition
from storage.errors import AccessError, EoctlError, FormatError, RefusedError, UsageError
from storage.file_names import COORDINATOR_TOPICS, PARTITION_METADATA_NAME
from storage.files import fsio
from storage.files.broker_lock import take
from storage.formats.compression import Codec
from storage.formats.partition_metadata import format_uuid, new_topic_id, parse_partition_metadata
from storage.producers.producer_state import DEFAULT_EXPIRATION_MS
from storage.writing.partition_store import FileStore, FlushPolicy, PlannedStore
from storage.writing.writer import PartitionWriter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from eoctl.clients.partitions.target import TargetOptions, WriteTarget
    from eoctl.clock import Now
    from recovery.changes.plans.plan import Plan
    from storage.dirs.log_tail import LogTail
    from storage.dirs.topic_settings import LogConfig
    from storage.writing.partition_store import FileChange


def notes_of(
    opened: Sequence[OpenPartition],
    now: Now,
    *,
    is_applied: bool,
    more: Iterable[str] = (),
) -> Iterator[str]:
    """Yield messages about a run that has ended. `more` are the run's own messages."""
    reported: set[str] = set()
    for each in opened:
        reported.update(each.target.notes)
        yield from each.notes
    yield from sorted(reported)
    yield (
        "verified before: headers and checksums of all batches from the recovery point on;"
        " records were not decompressed"
    )
    yield now.describe()
    yield from more
    if not any(each.store.changes or each.recovery for each in opened):
        yield "nothing to append: nothing is changed"
        return
    if not is_applied:
        yield "this is a plan, nothing was changed: --apply runs it"
    log_dir = opened[0].target.log_dir
    if log_dir is not None:
        yield price_of(log_dir.path) + ("" if is_applied else " and what is appended")
    factors = {each.target.replication_factor for each in opened} - {1}
    if factors:
        copies = ", ".join(sorted("unknown" if each is None else str(each) for each in factors))
        yield f"replication factor {copies}. Other replicas lack the records that are appended here"


def price_of(log_dir_path: str) -> str:
    """Return a message about what the next start of a broker has to recover now.

    Raises:
        AccessError: the log dir cannot be listed.
    """
    # Listed again, because partitions may have been made since.
    partitions_count, log_bytes = recovery_price(read_log_dir(log_dir_path))
    partitions = counted(partitions_count, "partition")
    return (
        "the log dir is without its clean-shutdown marker afterwards; recovery point and high"
        " watermark stay as they are. The next start of the broker recovers"
        f" {partitions}, {log_bytes:,} bytes of log"
    )


# -- a partition that is opened for writing: its end, its recovery after a crash, its writer.
#
# A partition that was not closed is recovered as a broker recovers it
# (`recovery.repair.broker_start`), in the same journal as the append that follows.


LOCAL_CODECS = {each.label: each for each in Codec} | {"uncompressed": Codec.NONE}


class WriteOptions(NamedTuple):
    """The options of writes to a partition. None: the topic's, the log's, or Kafka's value."""

    compression: str | None = None
    leader_epoch: int | None = None
    segment_bytes: int | None = None
    index_interval_bytes: int | None = None
    index_max_bytes: int | None = None
    expiration_ms: int = DEFAULT_EXPIRATION_MS
    flush: FlushPolicy = FlushPolicy.SEGMENT
    change: ChangeOptions = ChangeOptions()


class OpenPartition(NamedTuple):
    """A partition that is open for writing.

    Attributes:
        target: the partition, after all checks.
        config: the topic's settings, with the options of the command line.
        codec: for batches.
        tail: the end of the log at which the writer began.
        store: knows the changes.
        writer: of the partition.
        recovery: the plan that runs first, None if the partition was closed.
        notes: messages for people about the recovery, and about acknowledged offsets that are
            missing and are assigned again.
    """

    target: WriteTarget
    config: LogConfig
    codec: Codec
    tail: LogTail
    store: PlannedStore
    writer: PartitionWriter
    recovery: Plan | None
    notes: tuple[str, ...]


def open_partition(
    target: WriteTarget, options: WriteOptions, now: Now, journal: AppendJournal | None
) -> OpenPartition:
    """Find the end of a partition, recover it if necessary, and make its writer.

    With a `journal` the caller has the lock of the log dir. Without it, nothing changes.

    Raises:
        RefusedError, UsageError, AccessError: nothing was changed, or a recovery is unfinished.
    """
    config = _with_options(target.config, options)
    codec = _codec(config, options)
    tail, plan, notes = _find_tail(target, config, options, now, journal)
    if journal is None:
        store = PlannedStore(target.path, topic_id=target.topic_id)
    else:
        store = FileStore(target.path, journal.fs, topic_id=target.topic_id, keeper=journal)
    writer = PartitionWriter(
        store,
        tail,
        config,
        leader_epoch=_leader_epoch(target, tail, options),
        now_ms=clock_of(now),
        flush=options.flush,
        expiration_ms=options.expiration_ms,
    )
    notes = (*notes, *_given_again(target, tail))
    return OpenPartition(
        target=target,
        config=config,
        codec=codec,
        tail=tail,
        store=store,
        writer=writer,
        recovery=plan,
        notes=notes,
    )


def _given_again(target: WriteTarget, tail: LogTail) -> Iterator[str]:
    """Yield messages about acknowledged offsets that the partition does not have."""
    partition = target.partition
    if partition is None:
        return
    for each in partition.not_given(end_offset=tail.end_offset):
        yield f"{target.path}: {each}"


def clock_of(now: Now) -> Callable[[], int]:
    """Return the clock. Only the wall clock advances, every other clock stands still."""
    if now.source is NowSource.WALL:
        return wall_ms
    return lambda: now.ms


def _find_tail(
    target: WriteTarget,
    config: LogConfig,
    options: WriteOptions,
    now: Now,
    journal: AppendJournal | None,
) -> tuple[LogTail, Plan | None, tuple[str, ...]]:
    interval_bytes = config.index_interval_bytes
    require_checkpoints(target.log_dir, "is unknown")
    if target.partition is None:
        # Only a checkpoint that outlived an earlier directory can have another start.
        directory = PartitionDir(target.path, target.name)
        start = None if target.log_dir is None else target.log_dir.log_start_offset(directory)
        point = None if target.log_dir is None else target.log_dir.recovery_point(directory)
        if (point or 0) > (start or 0):
            raise RefusedError(
                f"{target.path}: is not there, and had its recovery point at {point}. Data that was"
                " flushed is gone, and its offsets must not be given out again [OFS-2]",
                next_step="get the directory back, or take its lines out of the checkpoints",
            )
        return empty_tail(start or 0, interval_bytes), None, ()
    try:
        with Progress("verifying") as progress:
            return read_tail(target.partition, interval_bytes, on_bytes=progress.advance), None, ()
    except NotClosedError as problem:
        if not target.partition.segments:
            raise
        return _recover(target, config, options, now, journal, str(problem))


def _recover(
    target: WriteTarget,
    config: LogConfig,
    options: WriteOptions,
    now: Now,
    journal: AppendJournal | None,
    why: str,
) -> tuple[LogTail, Plan | None, tuple[str, ...]]:
    from recovery.repair.broker_start import plan_recovery
    from recovery.replay.snapshots import Clock

    partition = Partition(PartitionDir(target.path, target.name), target.log_dir)
    with Progress("recovering", partition.files.log_bytes) as progress:
        found = plan_recovery(
            partition,
            Clock(now.ms, options.expiration_ms),
            config.index_interval_bytes,
            on_bytes=progress.advance,
        )
    if not found.steps:
        raise RefusedError(f"{why}; a broker's recovery would change nothing about that")
    price = {"cut_bytes": found.cut_bytes, "log_end_offset": found.tail.end_offset}
    sources = [source_of(path) for path in found.logs]
    arguments = {"partition": absolute_path(target.path)}
    plan = make_plan("recovery", arguments, found.steps, price, sources)
    if journal is not None:
        with Progress("copying") as progress:
            journal.recover(target.path, plan, on_bytes=progress.advance)
    notes = [f"{why}: it is recovered first, as a broker would", *found.notes]
    return found.tail, plan, tuple(notes)


def _leader_epoch(target: WriteTarget, tail: LogTail, options: WriteOptions) -> int:
    epoch = options.leader_epoch
    if epoch is None:
        return max(tail.last_leader_epoch, 0)
    known = target.leader_epoch
    if known is not None and epoch > known:
        raise RefusedError(
            f"{target.path}: leader epoch {epoch} is above {known}, the last epoch that the "
            "cluster's metadata has given. A broker would drop its entry and those after it"
        )
    return epoch


def _with_options(config: LogConfig, options: WriteOptions) -> LogConfig:
    given = {
        name: getattr(options, name)
        for name in ("segment_bytes", "index_interval_bytes", "index_max_bytes")
        if getattr(options, name) is not None
    }
    return config._replace(**given)


def _codec(config: LogConfig, options: WriteOptions) -> Codec:
    """Return the requested codec, or else the topic's codec, or else none."""
    if options.compression is None:
        return LOCAL_CODECS.get(config.compression_type, Codec.NONE)
    codec = LOCAL_CODECS.get(options.compression)
    if codec is None:
        raise UsageError(
            f"--compression {options.compression}: no such codec",
            next_step=" | ".join(each.label for each in Codec),
        )
    return codec


# -- partitions of one log dir that are opened for writing on first use


class OpenPartitions:
    """The partitions that are open for writing.

    The caller has the lock of the log dir if anything is applied.

    Args:
        log_dir_path: the log dir of all these partitions.
        write: the options of writes. A requested leader epoch does not apply to the coordinators'
            topics.
        target: the user's options about the cluster.
        now: the clock.
        journal: of the run that changes them. None: nothing is changed.
    """

    def __init__(
        self,
        log_dir_path: str,
        write: WriteOptions,
        target: TargetOptions,
        now: Now,
        journal: AppendJournal | None,
    ) -> None:
        self._log_dir_path = log_dir_path
        self._write = write
        self._target = target
        self._now = now
        self._journal = journal
        self._opened: dict[tuple[str, int], OpenPartition] = {}

    def __iter__(self) -> Iterator[OpenPartition]:
        """Iterate over all open partitions, in the order in which they were opened."""
        return iter(self._opened.values())

    def open_target(self, target: WriteTarget) -> OpenPartition:
        """Open a partition whose target was resolved already. Raises as `open_at`."""
        opened = open_partition(target, self._write, self._now, self._journal)
        self._opened[target.name.topic, target.name.partition] = opened
        return opened

    def is_here(self, topic: str, partition: int) -> bool:
        """Return whether the partition exists, or will exist after this is applied."""
        is_open = (topic, partition) in self._opened
        return is_open or Path(self._log_dir_path, f"{topic}-{partition}").is_dir()

    def writer(self, topic: str, partition: int) -> PartitionWriter:
        """Return the writer of a partition, see `storage.writing.coordinator.Partitions`."""
        found = self._opened.get((topic, partition))
        if found is None:
            found = self.open_at(topic, partition)
        return found.writer

    def open_at(self, topic: str, partition: int) -> OpenPartition:
        """Open a partition, after a crash with its recovery. It may be a new partition.

        Raises:
            RefusedError, UsageError, AccessError: it must not be written to, or cannot be.
        """
        path = str(Path(self._log_dir_path, f"{topic}-{partition}"))
        is_internal = topic in COORDINATOR_TOPICS
        options = self._target._replace(may_be_internal=is_internal)
        write = self._write
        if is_internal:
            write = write._replace(leader_epoch=None, compression=None)
            options = options._replace(topic_id=self._sibling_id(topic))
        opened = open_partition(resolve_target(path, options), write, self._now, self._journal)
        self._opened[topic, partition] = opened
        return opened

    def create_topic(self, topic: str, partitions_count: int) -> None:
        """Make the partitions of a coordinators' topic, in a log dir without a cluster's metadata.

        The last partition is made first, so that their number is known even after an interruption.
        """
        new_id = new_topic_id()
        note = (
            f"{self._log_dir_path}: {topic} is made here; a KRaft broker whose cluster does not"
            " know the topic by this id sets it aside at its start"
        )
        for number in reversed(range(partitions_count)):
            path = str(Path(self._log_dir_path, f"{topic}-{number}"))
            topic_id = self._sibling_id(topic) or new_id
            options = self._target._replace(may_be_internal=True, topic_id=topic_id)
            target = resolve_target(path, options)
            target = target._replace(notes=(*target.notes, note))
            opened = open_partition(target, self._write, self._now, self._journal)
            opened.store.begin()
            self._opened[topic, number] = opened

    def _sibling_id(self, topic: str) -> str | None:
        """Return the topic id of another partition of the topic in this log dir."""
        for path in sorted(Path(self._log_dir_path).glob(f"{topic}-*/{PARTITION_METADATA_NAME}")):
            try:
                return format_uuid(parse_partition_metadata(path.read_bytes()).topic_id)
            except OSError as exc:
                raise AccessError(exc, str(path)) from exc
            except FormatError as exc:
                raise RefusedError(f"{path}: {exc.message}") from exc
        return None

    @property
    def recoveries(self) -> tuple[Plan, ...]:
        """The recoveries before the append, done or planned."""
        return tuple(each.recovery for each in self if each.recovery is not None)

    @property
    def changes(self) -> tuple[FileChange, ...]:
        """The files that change."""
        return tuple(change for each in self for change in each.store.changes.values())

    def close(self) -> EoctlError | None:
        """Close all partitions, whatever happens. Return the first error."""
        first = None
        for each in self:
            try:
                each.writer.close()
            except EoctlError as exc:
                first = first or exc
        return first


# -- a run that appends: locks, the change of an earlier run, a journal, the undo command


@contextmanager
def appending(
    log_dirs: Sequence[str], change: ChangeOptions, command: str
) -> Iterator[AppendJournal]:
    """Lock log dirs for a run that appends. At the end, print the command that undoes it.

    If an earlier run was killed, its change is closed first, with a message.

    Args:
        log_dirs: in which the run changes anything.
        change: options of the change.
        command: as in the id of a journal: small letters and `-`.

    Raises:
        RefusedError: another process has the lock, or another change is unfinished there.
        AccessError: a directory cannot be locked, or a journal cannot be used.
    """
    with take(log_dirs, broker_is_stopped=change.broker_is_stopped):
        fs = fsio.FileSystem()
        for each in close_appends(fs, log_dirs):
            found = each.journal
            message(
                f"an earlier {found.command} was interrupted. Its records stay, and partitions"
                f" that it left open are recovered; {how_to_undo(each)}"
            )
        journal = AppendJournal(
            fs, log_dirs, command, backup_dir=change.backup_dir, has_backup=not change.no_backup
        )
        try:
            yield journal
        finally:
            closed = journal.close()
            if closed is not None and closed.status is Status.UNFINISHED:
                message(f"the change is unfinished: {ways_out(closed)}")
            elif closed is not None:
                message(how_to_undo(Applied(closed, was_done=False)))
