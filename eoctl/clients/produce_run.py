"""One run of `eoctl produce`: the same steps for a plan and for the real thing."""

from __future__ import annotations

from typing import TYPE_CHECKING, BinaryIO, NamedTuple

from eoctl.clients.producer import Producer, choose_identity, read_lines
from eoctl.clients.target import TargetOptions, resolve_target
from eoctl.clock import NowSource, resolve_now
from recovery.journal import require_finished
from recovery.recovery_price import recovery_price
from storage.broker_lock import take
from storage.errors import EoctlError, RefusedError, UsageError
from storage.formats.compression import Codec
from storage.fsio import FileSystem
from storage.log_dir import PartitionDir
from storage.log_tail import empty_tail, read_tail
from storage.partition_store import FileStore, FlushPolicy, PlannedStore
from storage.producer_state import DEFAULT_EXPIRATION_MS
from storage.record_builder import DEFAULT_BATCH_BYTES, MAX_BATCH_RECORDS, BatchBuilder
from storage.writer import PartitionWriter

if TYPE_CHECKING:
    from collections.abc import Callable

    from eoctl.clients.target import Target
    from eoctl.clock import Now
    from storage.log_config import LogConfig
    from storage.log_tail import LogTail
    from storage.partition_store import FileChange

LOCAL_CODECS = {each.label: each for each in Codec} | {"uncompressed": Codec.NONE}


class ProduceOptions(NamedTuple):
    """What the command line says; None: the topic's, the log's, or Kafka's value."""

    target: TargetOptions = TargetOptions()
    apply: bool = False
    broker_is_stopped: bool = False
    key_separator: bytes | None = None
    compression: str | None = None
    batch_bytes: int = DEFAULT_BATCH_BYTES
    batch_records: int = MAX_BATCH_RECORDS
    timestamp_ms: int | None = None
    now: str | None = None
    producer_id: int | None = None
    producer_epoch: int | None = None
    base_sequence: int | None = None
    leader_epoch: int | None = None
    segment_bytes: int | None = None
    index_interval_bytes: int | None = None
    index_max_bytes: int | None = None
    expiration_ms: int = DEFAULT_EXPIRATION_MS
    flush: FlushPolicy = FlushPolicy.SEGMENT


class ProduceReport(NamedTuple):
    """The row that is printed. Bytes are those of the batches in the log."""

    topic: str
    partition: int
    applied: bool
    records: int
    batches: int
    bytes: int
    duplicates: int
    base_offset: int | None
    last_offset: int | None
    segments_rolled: int
    producer_id: int
    producer_epoch: int
    base_sequence: int | None
    last_sequence: int | None
    leader_epoch: int
    path: str


class ProduceResult(NamedTuple):
    """What came of a run. `error` ended it early; what the report says was done all the same."""

    report: ProduceReport
    changes: tuple[FileChange, ...]
    notes: tuple[str, ...]
    error: BaseException | None


class Source(NamedTuple):
    """The input: an open file, its name for errors, and who is told how much was read."""

    file: BinaryIO
    name: str
    on_bytes: Callable[[int], None]


def produce(path: str, source: Source, options: ProduceOptions) -> ProduceResult:
    """Append the lines of `source` to the partition at `path`, or plan to.

    Raises:
        RefusedError, UsageError, AccessError: nothing was touched.
    """
    target = resolve_target(path, options.target)
    if not options.apply:
        return _Run(target, options).run(source)
    with take([target.log_dir_path], broker_is_stopped=options.broker_is_stopped):
        require_finished([target.log_dir_path])
        # A broker may have run since we looked.
        return _Run(resolve_target(target.path, options.target), options).run(source)


class _Run:
    def __init__(self, target: Target, options: ProduceOptions) -> None:
        self.target = target
        self.options = options
        self.config = _with_options(target.config, options)
        self.codec = _codec(self.config, options)
        # An append happens now, whatever the directory's age.
        self.now = resolve_now(options.now or NowSource.WALL, [target.log_dir_path], is_live=False)
        self.tail = self._read_tail()
        self.store = self._make_store()
        self.writer = PartitionWriter(
            self.store,
            self.tail,
            self.config,
            leader_epoch=self._leader_epoch(),
            now_ms=_clock(self.now),
            flush=options.flush,
            expiration_ms=options.expiration_ms,
        )
        self.producer = Producer(
            self.writer,
            BatchBuilder(
                codec=self.codec,
                batch_bytes=options.batch_bytes,
                batch_records=options.batch_records,
            ),
            choose_identity(
                self.writer.producers,
                self.tail.end_offset,
                producer_id=options.producer_id,
                producer_epoch=options.producer_epoch,
                base_sequence=options.base_sequence,
            ),
            now_ms=_clock(self.now),
            timestamp_ms=options.timestamp_ms,
        )

    def _read_tail(self) -> LogTail:
        from eoctl.progress import Progress

        interval_bytes = self.config.index_interval_bytes
        target = self.target
        if target.partition is None:
            # Nothing but a checkpoint that outlived an earlier directory can say another start.
            directory = PartitionDir(target.path, target.name)
            start = None if target.log_dir is None else target.log_dir.log_start_offset(directory)
            return empty_tail(start or 0, interval_bytes)
        with Progress("verifying") as progress:
            return read_tail(target.partition, interval_bytes, on_bytes=progress.advance)

    def _make_store(self) -> PlannedStore:
        if self.options.apply:
            return FileStore(self.target.path, FileSystem(), topic_id=self.target.topic_id)
        return PlannedStore(self.target.path, topic_id=self.target.topic_id)

    def _leader_epoch(self) -> int:
        epoch = self.options.leader_epoch
        if epoch is None:
            return max(self.tail.last_leader_epoch, 0)
        known = self.target.leader_epoch
        if known is not None and epoch > known:
            raise RefusedError(
                f"{self.target.path}: leader epoch {epoch} is above {known}, the last one that the"
                " cluster's metadata has given: a broker would drop its entry and those after it"
            )
        return epoch

    def run(self, source: Source) -> ProduceResult:
        """Send everything, and close the partition whatever happens."""
        lines = read_lines(
            source.file,
            source.name,
            key_separator=self.options.key_separator,
            needs_keys=self.config.is_compacted,
            on_bytes=source.on_bytes,
        )
        error: BaseException | None = None
        try:
            for key, value in lines:
                self.producer.send(key, value)
            self.producer.flush()
        except (EoctlError, OSError, KeyboardInterrupt) as exc:
            error = exc
        try:
            self.writer.close()
        except EoctlError as exc:
            error = error or exc
        return ProduceResult(
            self._report(), tuple(self.store.changes.values()), tuple(self._notes()), error
        )

    def _report(self) -> ProduceReport:
        outcome = self.producer.outcome
        identity = self.producer.identity
        return ProduceReport(
            topic=self.target.name.topic,
            partition=self.target.name.partition,
            applied=self.options.apply,
            records=outcome.records,
            batches=outcome.batches,
            bytes=self.writer.log_bytes,
            duplicates=outcome.duplicates,
            base_offset=outcome.base_offset,
            last_offset=outcome.last_offset,
            segments_rolled=self.writer.rolled_count,
            producer_id=identity.producer_id,
            producer_epoch=identity.producer_epoch,
            base_sequence=outcome.base_sequence,
            last_sequence=outcome.last_sequence,
            leader_epoch=self.writer.leader_epoch,
            path=self.target.path,
        )

    def _notes(self) -> list[str]:
        """Say what was verified, and what it costs (design 4.5)."""
        notes = list(self.target.notes)
        notes.append(
            "verified before: headers and checksums of all batches from the recovery point on;"
            " records were not decompressed"
        )
        notes.append(self.now.describe())
        if not self.store.changes:
            notes.append("nothing to append: nothing is changed")
            return notes
        if not self.options.apply:
            notes.append("this is a plan, nothing was changed: --apply does it")
        if self.target.log_dir is not None:
            partitions_count, log_bytes = recovery_price(self.target.log_dir)
            notes.append(
                "the log dir is without its clean-shutdown marker afterwards; recovery point and"
                " high watermark stay as they are: the next start of the broker recovers"
                f" {partitions_count} partitions, {log_bytes} bytes of log"
                + ("" if self.options.apply else " and what is appended")
            )
        factor = self.target.replication_factor
        if factor != 1:
            copies = "unknown" if factor is None else str(factor)
            notes.append(f"replication factor {copies}: other replicas lack what is appended here")
        return notes


def _clock(now: Now) -> Callable[[], int]:
    """The wall clock goes on, every other one stands still."""
    if now.source is NowSource.WALL:
        return lambda: resolve_now(NowSource.WALL, (), is_live=True).ms
    return lambda: now.ms


def _with_options(config: LogConfig, options: ProduceOptions) -> LogConfig:
    given = {
        name: getattr(options, name)
        for name in ("segment_bytes", "index_interval_bytes", "index_max_bytes")
        if getattr(options, name) is not None
    }
    return config._replace(**given)


def _codec(config: LogConfig, options: ProduceOptions) -> Codec:
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
