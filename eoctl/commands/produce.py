"""`eoctl produce`: append records to a partition directory, as a producer and its broker would."""

from __future__ import annotations

import os
from contextlib import ExitStack
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO, NamedTuple

from eoctl import options
from eoctl.change_options import PLAN_ONLY, ChangeOptions, with_change
from eoctl.clients.partitions.identity import NOWHERE, OwnIds
from eoctl.clients.partitions.interrupts import run_held
from eoctl.clients.partitions.open_partition import OpenPartitions, appending, clock_of
from eoctl.clients.partitions.target import resolve_target, target_paths
from eoctl.clients.producing.produce_session import SessionPartition
from eoctl.clients.producing.producer import AckFile, PartitionProducer, Sending
from eoctl.clients.producing.session_keeper import (
    NEW_EPOCHS_VERSION,
    ProduceSessionKeeper,
    first_identities,
    session_identities,
)
from eoctl.clients.producing.topic_producer import (
    CheckedInput,
    CoordinatorCalls,
    SentRecords,
    SessionCalls,
    StickyPartitions,
    TopicProducer,
    count_by_epoch,
    find_place,
)
from eoctl.clients.record_formats.inputs import (
    BytesAs,
    InputFormat,
    InterruptibleInput,
    read_line_blocks,
    read_records,
)
from eoctl.clock import resolve_now
from eoctl.commands.shared.append_result import AppendAnswer, places_text
from eoctl.output import PLACE, Columns, OutputFormat
from eoctl.parameters import advanced_option, argument, option
from storage.counts import counted
from storage.dirs.partition import Partition
from storage.errors import EoctlError, UsageError
from storage.limits import INT16_MAX, INT32_MAX, INT64_MAX
from storage.writing.record_builder import BatchBuilder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from eoctl.clients.coordinators.log_dir_coordinator import Transactional
    from eoctl.clients.partitions.interrupts import Interrupts
    from eoctl.clients.partitions.open_partition import OpenPartition
    from eoctl.clients.partitions.target import WriteTarget
    from eoctl.clients.producing.produce_session import ProduceSession
    from eoctl.clients.producing.topic_producer import ProduceOptions
    from recovery.changes.append_journal import AppendJournal
    from recovery.changes.plans.plan import Plan
    from storage.files.fsio import FileSystem
    from storage.writing.partition_store import FileChange


ALL_RECORDS = 2**62  # the whole input is one transaction


class Compression(StrEnum):
    """The values of `--compression`."""

    NONE = "none"
    GZIP = "gzip"
    SNAPPY = "snappy"
    LZ4 = "lz4"
    ZSTD = "zstd"


@with_change(without=("save_plan",))
def command(
    path: Annotated[
        str,
        argument(
            metavar="PARTITION",
            help="A directory TOPIC-N, which may not exist yet, or a log dir with --to-topic.",
        ),
    ],
    file: Annotated[
        str, argument(metavar="[FILE]", help="Records to append. - is the standard input.")
    ] = "-",
    topic: options.TargetTopic = None,
    partitions: options.PartitionsCount = None,
    input_format: Annotated[
        InputFormat, option("--format", help="Format of the input.")
    ] = InputFormat.LINES,
    bytes_as: Annotated[
        BytesAs, option("--bytes", help="How strings of jsonl and msgpack are read.")
    ] = BytesAs.TEXT,
    key_separator: Annotated[
        str | None, option(metavar="TEXT", help="Separates key and value of each line.")
    ] = None,
    compression: Annotated[
        Compression | None,
        option(help="Compression codec.", show_default="the topic's, or none"),
    ] = None,
    batch_bytes: Annotated[
        int,
        advanced_option(
            min=1, max=INT32_MAX, metavar="N", help="Largest batch, before compression."
        ),
    ] = 16_384,
    batch_records: Annotated[
        int | None,
        advanced_option(min=1, max=INT32_MAX, metavar="N", help="Most records in a batch."),
    ] = None,
    timestamp: Annotated[
        str | None,
        option(metavar="TIME", help="Timestamp of all records.", show_default="the clock"),
    ] = None,
    now: options.WriteNow = None,
    producer_id: Annotated[
        int | None,
        advanced_option(
            min=-1,
            max=INT64_MAX,
            metavar="ID",
            help="Producer id. -1 is not idempotent.",
            show_default="a new id",
        ),
    ] = None,
    producer_epoch: Annotated[
        int | None,
        advanced_option(
            min=0, max=INT16_MAX, metavar="N", help="Producer epoch.", show_default="as in the log"
        ),
    ] = None,
    base_sequence: Annotated[
        int | None,
        advanced_option(
            min=0,
            max=INT32_MAX,
            metavar="N",
            help="First sequence number.",
            show_default="what the log expects",
        ),
    ] = None,
    lease: Annotated[
        str | None,
        option(
            metavar="APP", help="Use the producer id leased to this application (eoctl lease-pid)."
        ),
    ] = None,
    leader_epoch: options.LeaderEpoch = None,
    segment_bytes: options.SegmentBytes = None,
    index_interval_bytes: options.IndexIntervalBytes = None,
    index_max_bytes: options.IndexMaxBytes = None,
    producer_expiry_ms: Annotated[
        int, advanced_option(min=1, metavar="MS", help="producer.id.expiration.ms of the broker.")
    ] = 86_400_000,
    fsync: options.FsyncChoice = options.Fsync.SEGMENT,
    txn_records: Annotated[
        int | None,
        option(min=1, metavar="N", help="Records in each transaction."),
    ] = None,
    abort_every: Annotated[
        int | None, option(min=1, metavar="N", help="Abort every Nth transaction.")
    ] = None,
    transactional_id: Annotated[
        str | None,
        option(
            metavar="ID", help="Run transactions with the coordinator of this id in the log dir."
        ),
    ] = None,
    transaction_timeout_ms: options.TransactionTimeoutMs = 60_000,
    transaction_version: Annotated[
        int | None,
        advanced_option(
            min=0,
            max=2,
            metavar="0|1|2",
            help="transaction.version. 2 is a new epoch for each transaction.",
            show_default="2",
        ),
    ] = None,
    coordinator_epoch: Annotated[
        int,
        advanced_option(
            min=0, max=INT32_MAX, metavar="N", help="Coordinator epoch of the markers."
        ),
    ] = 0,
    producer_session: Annotated[
        str | None,
        option(metavar="FILE", help="Keep the position in FILE, so that a second run continues."),
    ] = None,
    acks_to: Annotated[
        str | None,
        advanced_option(metavar="FILE", help="Append a line to FILE for each acknowledged batch."),
    ] = None,
    in_flight: Annotated[
        int, advanced_option(min=1, max=5, metavar="N", help="Most unacknowledged batches.")
    ] = 1,
    fault: Annotated[
        str | None,
        advanced_option(
            metavar="FAULTS", help="Simulate network faults: drop=P,reorder=P,lost-ack=P,seed=N."
        ),
    ] = None,
    topic_id: options.TopicId = None,
    metadata_dir: options.MetadataDir = None,
    single_copy: options.SingleCopy = False,
    change: ChangeOptions = PLAN_ONLY,
    output: options.Output = OutputFormat.TEXT,
) -> None:
    """Append records to a partition directory, as a producer and its broker would.

    Each line of the input is the value of a record. A partition that was not stopped cleanly is
    recovered first. By default the plan is shown. --apply runs it, while no broker is running.
    """
    from eoctl.clients.partitions.open_partition import WriteOptions
    from eoctl.clients.partitions.target import TargetOptions
    from eoctl.clients.producing.producer import parse_faults
    from eoctl.clients.producing.topic_producer import ProduceOptions, Transactions
    from eoctl.clients.record_formats.inputs import open_input, separator_bytes
    from eoctl.clock import parse_time_ms
    from eoctl.progress import Progress
    from storage.errors import UsageError
    from storage.writing.partition_store import FlushPolicy

    if txn_records is None and transactional_id is not None:
        txn_records = ALL_RECORDS
    if abort_every is not None and txn_records is None:
        raise UsageError("--abort-every: there are no transactions", next_step="--txn-records N")
    transactions = None
    if txn_records is not None:
        if producer_id == -1:
            raise UsageError("--txn-records: a transaction needs a producer id")
        transactions = Transactions(
            records=txn_records,
            abort_every=abort_every,
            version=2 if transaction_version is None else transaction_version,
            coordinator_epoch=coordinator_epoch,
        )
    transactional = None
    if transactional_id is not None:
        from eoctl.clients.coordinators.log_dir_coordinator import TransactionalOptions

        transactional = TransactionalOptions(
            transactional_id, transaction_timeout_ms, version=transaction_version
        )
    chosen = ProduceOptions(
        target=TargetOptions(metadata_dir, topic_id, single_copy),
        write=WriteOptions(
            compression=compression,
            leader_epoch=leader_epoch,
            segment_bytes=segment_bytes,
            index_interval_bytes=index_interval_bytes,
            index_max_bytes=index_max_bytes,
            expiration_ms=producer_expiry_ms,
            flush=FlushPolicy(fsync),
            change=change,
        ),
        topic=topic,
        partitions_count=partitions,
        now=now,
        input_format=input_format,
        bytes_as=bytes_as,
        key_separator=None if key_separator is None else separator_bytes(key_separator),
        batch_bytes=batch_bytes,
        timestamp_ms=None if timestamp is None else parse_time_ms(timestamp),
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        transactions=transactions,
        transactional=transactional,
        lease=lease,
        session=producer_session,
        in_flight=in_flight,
        faults=None if fault is None else parse_faults(fault),
        acks_to=acks_to,
    )
    if batch_records is not None:
        chosen = chosen._replace(batch_records=batch_records)
    with ExitStack() as stack:
        opened = open_input(file, stack)
        progress = stack.enter_context(Progress("producing"))
        result = produce(path, ProduceInput(opened, file, progress.advance), chosen)
    _report(result, output, has_backup=not change.no_backup)


def _report(result: ProduceResult, output: OutputFormat, *, has_backup: bool) -> None:
    from eoctl.commands.shared.append_result import AppendedRows, show_appended
    from eoctl.output import Report

    reports = [Report("append", COLUMNS, result.reports)]
    if result.link is not None:
        reports.append(Report("link", tuple(result.link), [tuple(result.link.values())]))
    show_appended(
        AppendedRows(
            reports=reports,
            recoveries=result.recoveries,
            changes=result.changes,
            notes=result.notes,
            error=result.error,
            answer=answer_of(result.reports),
            journal=result.journal,
            has_backup=has_backup,
        ),
        output,
    )


# -- the checks before `eoctl produce` changes anything, and the fixed arguments of a session


def check_call(input_name: str, options: ProduceOptions, paths: Sequence[str]) -> None:
    """Refuse contradictory options before anything is changed.

    Raises:
        UsageError: options contradict each other, or one file is given for two purposes.
    """
    if options.input_format is not InputFormat.LINES and options.key_separator is not None:
        raise UsageError("--key-separator is for lines. Other formats have a field for the key")
    if options.timestamp_ms is not None and options.timestamp_ms < 0:
        raise UsageError(f"--timestamp: {options.timestamp_ms} ms is before 1970")
    transactions = options.transactions
    if options.transactional is not None:
        _check_transactional(options)
    if options.lease is not None and options.producer_id is not None:
        raise UsageError("--lease and --producer-id: the lease says which id it is")
    has_epochs = transactions is not None and transactions.version >= NEW_EPOCHS_VERSION
    if options.lease is not None and has_epochs:
        raise UsageError(
            "--lease: the generation is the epoch, and each transaction would take another epoch",
            next_step="--transaction-version 1",
        )
    if options.base_sequence and has_epochs:
        raise UsageError("--base-sequence: with transaction version 2 all begin at 0")
    named = {"--acks-to": options.acks_to, "--producer-session": options.session}
    if input_name != "-":
        named["FILE"] = input_name
        place = os.path.realpath(input_name)
        if any(Path(place).is_relative_to(os.path.realpath(each)) for each in paths):
            raise UsageError(f"{input_name}: lies in the directory that is written to")
    seen: dict[str, str] = {}
    for name, path in named.items():
        other = seen.setdefault(os.path.realpath(path), name) if path is not None else name
        if other != name:
            raise UsageError(f"{name} and {other} are the same file: {path}")


def _check_transactional(options: ProduceOptions) -> None:
    given = {
        "--producer-id": options.producer_id,
        "--producer-epoch": options.producer_epoch,
        "--base-sequence": options.base_sequence,
        "--producer-session": options.session,
        "--lease": options.lease,
    }
    for name, value in given.items():
        if value is not None:
            raise UsageError(
                f"{name} and --transactional-id exclude each other. Its coordinator says who the"
                " producer is, and fences whoever was that before"
            )
    if options.transactions is not None and options.transactions.coordinator_epoch:
        raise UsageError(
            "--coordinator-epoch and --transactional-id exclude each other. Markers have the leader"
            " epoch of its coordinator's partition"
        )


def as_holder(
    targets: Sequence[WriteTarget], options: ProduceOptions, fs: FileSystem | None = None
) -> ProduceOptions:
    """Complete the options with id and epoch of a lease. With `fs` the caller holds the lock.

    An epoch in the options, or in the session, must equal the epoch of the lease.

    Raises:
        LeaseError: the lease has no holder, or another holder.
        RefusedError: the log of the leases is damaged.
    """
    if options.lease is None:
        return options
    from eoctl.clients.coordinators.producer_id_topic import inspect_ids
    from eoctl.clients.producing.produce_session import load_session

    generation = options.producer_epoch
    if generation is None and options.session is not None:
        session = load_session(options.session)
        generation = None if session is None else session.producer_epoch
    opened = inspect_ids(targets[0].log_dir_path, options.now, fs)
    lease = opened.ids.require_held(options.lease, generation)
    return options._replace(producer_id=lease.producer_id, producer_epoch=lease.generation)


def session_arguments(targets: Sequence[WriteTarget], options: ProduceOptions) -> dict[str, Any]:
    """Return the arguments that must be equal in every run of a session, as read from its file."""
    transactions = options.transactions
    return {
        "partitions": tuple(Path(each.path).name for each in targets),
        "--format": options.input_format.value,
        "--bytes": options.bytes_as.value,
        "--key-separator": options.key_separator,
        # Records without key are distributed by it.
        "--batch-bytes": options.batch_bytes if len(targets) > 1 else None,
        "--txn-records": None if transactions is None else transactions.records,
        "--abort-every": None if transactions is None else transactions.abort_every,
        "--transaction-version": None if transactions is None else transactions.version,
    }


# -- the results of a run of `eoctl produce`, as printed


class ProduceReport(NamedTuple):
    """The printed row of a partition. Bytes are the bytes of its batches in the log."""

    topic: str
    partition: int
    applied: bool
    records: int
    batches: int
    bytes: int
    duplicates: int
    skipped: int
    committed: int
    aborted: int
    base_offset: int | None
    last_offset: int | None
    segments_rolled: int
    producer_id: int
    producer_epoch: int
    base_sequence: int | None
    last_sequence: int | None
    leader_epoch: int
    path: str


COLUMNS = Columns(ProduceReport._fields, answers=(
    *PLACE, "applied", "records", "bytes", "base_offset", "last_offset",
))  # fmt: skip


class ProduceResult(NamedTuple):
    """The result of a run. `error` ended it early, and the report covers the work before it.

    `link` counts the faults of batches on a faulty link by name, None without faults.
    """

    reports: tuple[ProduceReport, ...]
    recoveries: tuple[Plan, ...]
    changes: tuple[FileChange, ...]
    link: dict[str, int] | None
    notes: tuple[str, ...]
    error: BaseException | None
    journal: AppendJournal | None = None


def answer_of(reports: Sequence[ProduceReport]) -> AppendAnswer:
    """Sum up an append."""
    filled = [each for each in reports if each.records]
    verbs = ("append", "appended")
    if not filled:
        return AppendAnswer(verbs, ())
    aborted_count = sum(each.aborted for each in filled)
    records = counted(sum(each.records for each in filled), "record")
    aborted = f", {counted(aborted_count, 'transaction')} aborted" if aborted_count else ""
    short = f"{records} to {places_text([f'{each.topic}-{each.partition}' for each in filled])}"
    if len(filled) > 1:
        return AppendAnswer(verbs, (f"{short}{aborted}", short))
    (only,) = filled
    where = f"{short}, offsets {only.base_offset}..{only.last_offset}"
    return AppendAnswer(verbs, (f"{where}{aborted}", where, short))


def report_of(
    opened: OpenPartition, producer: PartitionProducer, *, is_applied: bool
) -> ProduceReport:
    """Return the row of a partition."""
    target, writer, outcome = opened.target, opened.writer, producer.outcome
    first = producer.identities.first
    return ProduceReport(
        topic=target.name.topic,
        partition=target.name.partition,
        applied=is_applied,
        records=outcome.records,
        batches=outcome.batches,
        bytes=writer.log_bytes,
        duplicates=outcome.duplicates,
        skipped=outcome.skipped,
        committed=outcome.committed,
        aborted=outcome.aborted,
        base_offset=outcome.base_offset,
        last_offset=outcome.last_offset,
        segments_rolled=writer.rolled_count,
        producer_id=first.producer_id,
        producer_epoch=first.producer_epoch,
        base_sequence=outcome.base_sequence,
        last_sequence=outcome.last_sequence,
        leader_epoch=writer.leader_epoch,
        path=target.path,
    )


def link_counts(producers: Sequence[PartitionProducer]) -> dict[str, int]:
    """Count the faults of batches on a faulty link, by name."""
    stats = [each.sender.stats._asdict() for each in producers]
    return {name: sum(each[name] for each in stats) for name in stats[0]}


# -- one run of `eoctl produce`, with the same steps for a plan and for --apply


class ProduceInput(NamedTuple):
    """The input: an open file, its name for errors, and a callback for the bytes read."""

    file: BinaryIO
    name: str
    on_bytes: Callable[[int], None]


def produce(path: str, source: ProduceInput, options: ProduceOptions) -> ProduceResult:
    """Append the records of `source` to the partition or topic at `path`, or plan the append.

    Raises:
        RefusedError, UsageError, AccessError: nothing was changed, or only a recovery was done.
    """
    paths = target_paths(path, options.topic, options.target.metadata_dir, options.partitions_count)
    check_call(source.name, options, paths)
    targets = [resolve_target(each, options.target) for each in paths]
    if not options.write.change.apply:
        return _ProduceRun(targets, as_holder(targets, options), None, source).run()
    log_dirs = sorted({each.log_dir_path for each in targets})
    with appending(log_dirs, options.write.change, "produce") as journal:
        # A broker may have run since the plan was shown.
        targets = [resolve_target(each.path, options.target) for each in targets]
        held = as_holder(targets, options, journal.fs)
        return _ProduceRun(targets, held, journal, source).run()._replace(journal=journal)


class _ProduceRun:
    def __init__(
        self,
        targets: Sequence[WriteTarget],
        options: ProduceOptions,
        journal: AppendJournal | None,
        source: ProduceInput,
    ) -> None:
        self.options = options
        self.source = source
        log_dirs = sorted({each.log_dir_path for each in targets})
        # An append happens now, even if the directory is old.
        self.now = resolve_now(options.now, log_dirs)
        self.keeper: ProduceSessionKeeper | None = None
        if options.session is not None:
            self.keeper = ProduceSessionKeeper(
                journal,
                options.session,
                session_arguments(targets, options),
                options.producer_id,
                options.producer_epoch,
            )
        self.acks: AckFile | None = None
        if options.acks_to is not None and journal is not None:
            self.acks = AckFile(journal.fs, options.acks_to)
        self.partitions = OpenPartitions(
            log_dirs[0], options.write, options.target, self.now, journal
        )
        self.opened = [self.partitions.open_target(each) for each in targets]
        self.id_notes: list[str] = []
        self.own_ids = OwnIds(log_dirs, targets[0].next_broker_id, self.id_notes)
        self.transactional = self._transactional(log_dirs[0])
        self.producer_ids = self._first_ids()
        if self.session is not None:
            self.identities = session_identities(
                self.session, self.producer_ids, self.options.transactions
            )
        else:
            self.identities = first_identities(
                self.opened,
                self.producer_ids,
                self.options.transactions,
                producer_epoch=self.options.producer_epoch,
                base_sequence=self.options.base_sequence,
            )
        self.producers = [self._producer(number) for number in range(len(self.opened))]
        if self.keeper is not None and self.keeper.session is None:
            self._begin(self.keeper)
        self.topic = self._topic_producer()

    # -- producer identity

    @property
    def session(self) -> ProduceSession | None:
        """The session of an earlier run, or of this run."""
        return None if self.keeper is None else self.keeper.session

    def _transactional(self, log_dir: str) -> Transactional | None:
        """Begin a session of the transactional id, which sets the version of its transactions."""
        options = self.options
        if options.transactional is None or options.transactions is None:
            return None
        from eoctl.clients.coordinators.log_dir_coordinator import Transactional

        begun = Transactional(
            log_dir,
            options.target.metadata_dir,
            self.partitions,
            options.transactional,
            clock_of(self.now),
        )
        transactions = options.transactions._replace(version=begun.version)
        self.options = options._replace(
            transactions=transactions,
            producer_id=begun.producer.producer_id,
            producer_epoch=begun.producer.producer_epoch,
        )
        return begun

    def _first_ids(self) -> list[int]:
        if self.session is not None:
            return list(self.session.producer_ids)
        if self.options.producer_id is not None:
            return [self.options.producer_id]
        return [self._new_id()]

    def _new_id(self) -> int:
        if self.transactional is not None:  # it has a new id by now
            return self.transactional.producer.producer_id
        writers = [each.writer for each in self.opened]
        known = {number for each in writers for number in each.producers.producers}
        if self.keeper is not None:
            return self.own_ids.random_id(known)
        end_offset = max(each.end_offset for each in writers)
        names = (Path(each.store.directory).name for each in writers)
        return self.own_ids.id_of_run(known, names, end_offset)

    def _add_id(self) -> None:
        """Add a producer id. The session records it before it is used."""
        self.producer_ids.append(self._new_id())
        if self.keeper is not None:
            self.keeper.add_producer_ids(self.producer_ids)

    def _producer(self, number: int) -> PartitionProducer:
        options, opened = self.options, self.opened[number]
        identities = self.identities[number]
        in_log, counts = NOWHERE, None
        if self.session is not None:
            partition, start = self._readable(number), self.session.partitions[number].start_offset
            in_log = find_place(partition, opened.tail, identities, start)
            if identities.is_per_transaction and partition is not None:
                end_offset = opened.tail.end_offset
                counts = count_by_epoch(partition, self.producer_ids, start, end_offset)
        faults = options.faults
        if faults is not None:  # every partition has its own connection
            faults = faults._replace(seed=faults.seed + number)
        return PartitionProducer(
            opened.writer,
            BatchBuilder(
                codec=opened.codec,
                batch_bytes=options.batch_bytes,
                batch_records=options.batch_records,
            ),
            identities,
            now_ms=clock_of(self.now),
            timestamp_ms=options.timestamp_ms,
            is_transactional=options.transactions is not None,
            in_log=in_log,
            counts=counts,
            sending=Sending(
                options.in_flight, faults, None if self.acks is None else self.acks.write
            ),
        )

    def _readable(self, number: int) -> Partition | None:
        """Return the partition in its state after recovery."""
        target = self.opened[number].target
        if target.partition is None:
            return None
        return Partition(target.partition.directory, target.log_dir)

    def _begin(self, keeper: ProduceSessionKeeper) -> None:
        partitions = [
            SessionPartition(
                name=Path(each.target.path).name,
                base_sequence=producer.identities.first.base_sequence,
                start_offset=each.tail.end_offset,
                end_offset=each.tail.end_offset,
            )
            for each, producer in zip(self.opened, self.producers, strict=True)
        ]
        epoch = self.producers[0].identities.first.producer_epoch
        keeper.begin(self.producer_ids, epoch, partitions)

    # -- sending

    def _topic_producer(self) -> TopicProducer:
        session, checked = self.session, None
        if session is not None:
            sent = [
                SentRecords(partition, self.producer_ids, known.end_offset, opened.tail.end_offset)
                if (partition := self._readable(number)) is not None
                else None
                for number, (known, opened) in enumerate(
                    zip(session.partitions, self.opened, strict=True)
                )
            ]
            checked = CheckedInput(
                input_name=self.source.name,
                pos=session.input_pos,
                last_sha256=session.last_sha256,
                sent=sent,
            )
        sticky = None
        if len(self.opened) > 1:
            # Seeded by the id, so that a session chooses the same partitions.
            sticky = StickyPartitions(
                len(self.opened), self.producer_ids[0], self.options.batch_bytes
            )
        return TopicProducer(
            self.producers,
            sticky=sticky,
            transactions=self.options.transactions,
            early_ends=() if session is None else session.ends,
            checked=checked,
            session=None
            if self.keeper is None
            else SessionCalls(self.keeper.pass_over, self._save),
            coordinator=self._coordinator_calls(),
            add_producer_id=self._add_id,
        )

    def _coordinator_calls(self) -> CoordinatorCalls | None:
        transactional = self.transactional
        if transactional is None:
            return None
        from storage.producers.transaction_metadata import ProducerIdAndEpoch

        names = [each.target.name for each in self.opened]
        places = [(each.topic, each.partition) for each in names]

        def add(number: int) -> None:
            """Add a partition as a client does, with the id and epoch it believes to have."""
            producer = self.producers[number]
            who = producer.identities.at(producer.transaction, producer.count)
            sender = ProducerIdAndEpoch(who.producer_id, who.producer_epoch)
            transactional.add([places[number]], sender)

        return CoordinatorCalls(
            add,
            lambda is_commit: transactional.end(is_commit=is_commit),
            transactional.abort,
        )

    def _save(self) -> None:
        if self.keeper is not None:
            end_offsets = [each.writer.end_offset for each in self.opened]
            self.keeper.note_sent(self.topic.input_pos, self.topic.last_record, end_offsets)

    def run(self) -> ProduceResult:
        """Send everything, and close the partitions whatever happens.

        An interrupt is handled during a wait for input, or at the end. A batch, a transaction and a
        close are always completed.
        """
        return run_held(self._run)

    def _run(self, interrupts: Interrupts) -> ProduceResult:
        error: BaseException | None = None
        try:
            self._send(interrupts)
        except (EoctlError, OSError, KeyboardInterrupt) as exc:
            error = exc
        if error is not None and self.keeper is None:
            error = first_error(error, self.topic.abort)
        not_closed = self.partitions.close()
        error = error or not_closed
        if error is None:
            error = first_error(error, self._save)
        if self.acks is not None:
            error = first_error(error, self.acks.close)
        is_applied = self.options.write.change.apply
        pairs = zip(self.opened, self.producers, strict=True)
        return ProduceResult(
            reports=tuple(report_of(*each, is_applied=is_applied) for each in pairs),
            recoveries=self.partitions.recoveries,
            changes=self.partitions.changes,
            link=None if self.options.faults is None else link_counts(self.producers),
            notes=tuple(self._notes()),
            error=error,
        )

    def _send(self, interrupts: Interrupts) -> None:
        options, source, keeper = self.options, self.source, self.keeper
        if options.topic is not None:
            for each in self.opened:  # so that the next run finds the same number
                if each.target.partition is None:
                    each.store.begin()
        file: Any = InterruptibleInput(source.file, interrupts)
        if keeper is not None:
            end_offsets = [each.tail.end_offset for each in self.opened]
            file = keeper.checked_input(file, source.name, end_offsets)
        needs_keys = any(each.config.is_compacted for each in self.opened)
        is_plain = options.input_format is InputFormat.LINES and options.key_separator is None
        if is_plain and len(self.opened) == 1 and not needs_keys:
            blocks = read_line_blocks(file, source.name, on_bytes=source.on_bytes)
            self.topic.send_lines(blocks)
        else:
            records = read_records(
                file,
                source.name,
                options.input_format,
                key_separator=options.key_separator,
                bytes_as=options.bytes_as,
                needs_keys=needs_keys,
                partitions=[each.target.name.partition for each in self.opened],
                on_bytes=source.on_bytes,
            )
            self.topic.send_all(records)
        self.topic.finish(None if keeper is None else keeper.note_early_end)

    # -- printing

    def _notes(self) -> Iterator[str]:
        from eoctl.clients.partitions.open_partition import notes_of

        more = self.id_notes if self.transactional is None else self.transactional.notes
        is_applied = self.options.write.change.apply
        yield from notes_of(
            [*self.partitions], self.now, is_applied=is_applied, more=[*more, *self._open_end()]
        )

    def _open_end(self) -> Iterator[str]:
        path = self.options.session
        if self.topic.open_count and path is not None:
            left = f"a transaction of {self.topic.open_count} records has no end"
            yield f"{left}: another run with --producer-session {path} goes on with it"


def first_error(error: BaseException | None, call: Callable[[], None]) -> BaseException | None:
    """Call a function without stopping at its error, and return the earliest error."""
    try:
        call()
    except EoctlError as exc:
        return error or exc
    return error
