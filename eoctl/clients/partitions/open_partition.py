"""A partition that is opened for writing: its end found, after a crash also recovered, its writer.

A partition that was not closed is recovered as a broker recovers it
(`recovery.repair.broker_start`), in the same journal as what is appended then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from eoctl.change_options import ChangeOptions
from eoctl.clock import NowSource, wall_ms
from eoctl.progress import Progress
from recovery.changes.plans.changeable import require_checkpoints
from recovery.changes.plans.plan import absolute_path, make_plan, source_of
from storage.dirs.log_dir import PartitionDir
from storage.dirs.log_tail import NotClosedError, empty_tail, read_tail
from storage.dirs.partition import Partition
from storage.errors import RefusedError, UsageError
from storage.formats.compression import Codec
from storage.producers.producer_state import DEFAULT_EXPIRATION_MS
from storage.writing.partition_store import FileStore, FlushPolicy, PlannedStore
from storage.writing.writer import PartitionWriter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from eoctl.clients.partitions.target import WriteTarget
    from eoctl.clock import Now
    from recovery.changes.append_journal import AppendJournal
    from recovery.changes.plans.plan import Plan
    from storage.dirs.log_tail import LogTail
    from storage.dirs.topic_settings import LogConfig

LOCAL_CODECS = {each.label: each for each in Codec} | {"uncompressed": Codec.NONE}


class WriteOptions(NamedTuple):
    """How a partition is written to; None: the topic's, the log's, or Kafka's value."""

    compression: str | None = None
    leader_epoch: int | None = None
    segment_bytes: int | None = None
    index_interval_bytes: int | None = None
    index_max_bytes: int | None = None
    expiration_ms: int = DEFAULT_EXPIRATION_MS
    flush: FlushPolicy = FlushPolicy.SEGMENT
    change: ChangeOptions = ChangeOptions()


class OpenPartition(NamedTuple):
    """What is written to.

    Attributes:
        target: the partition, as it may be written to.
        config: the topic's settings, with what the command line says.
        codec: for batches.
        tail: where the writer began.
        store: knows what changes.
        writer: of the partition.
        recovery: the plan that is carried out first; None if the partition was closed.
        notes: what a person should know of the recovery, and of what was acknowledged and is not
            there: its offsets are given out again.
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
    """Find the end of a partition, recover it if need be, and make its writer.

    With a `journal` the caller holds the lock of the log dir; without, nothing changes.

    Raises:
        RefusedError, UsageError, AccessError: nothing was touched, or a recovery is to be finished.
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
    """Tell what was acknowledged of a partition that is appended to, and is not in it."""
    partition = target.partition
    if partition is None:
        return
    for each in partition.not_given(end_offset=tail.end_offset):
        yield f"{target.path}: {each}"


def clock_of(now: Now) -> Callable[[], int]:
    """The wall clock goes on, every other one stands still."""
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
    require_checkpoints(target.log_dir, "is not known")
    if target.partition is None:
        # Nothing but a checkpoint that outlived an earlier directory can say another start.
        directory = PartitionDir(target.path, target.name)
        start = None if target.log_dir is None else target.log_dir.log_start_offset(directory)
        point = None if target.log_dir is None else target.log_dir.recovery_point(directory)
        if (point or 0) > (start or 0):
            raise RefusedError(
                f"{target.path}: is not there, and had its recovery point at {point}: what was"
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
            f"{target.path}: leader epoch {epoch} is above {known}, the last one that the"
            " cluster's metadata has given: a broker would drop its entry and those after it"
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
    """The codec asked for, else the one that the topic demands of its log, else none."""
    if options.compression is None:
        return LOCAL_CODECS.get(config.compression_type, Codec.NONE)
    codec = LOCAL_CODECS.get(options.compression)
    if codec is None:
        raise UsageError(
            f"--compression {options.compression}: no such codec",
            next_step=" | ".join(each.label for each in Codec),
        )
    return codec
