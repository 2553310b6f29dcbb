"""`eoctl txn run`: consume, transform and produce in transactions."""

from __future__ import annotations

import os
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

from eoctl import options
from eoctl.change_options import PLAN_ONLY, ChangeOptions, with_change
from eoctl.clients.coordinators.log_dir_coordinator import (
    GroupCommits,
    Transactional,
    TransactionalOptions,
)
from eoctl.clients.log.consumer import ConsumeOptions, Consumer, Start, require_in_log
from eoctl.clients.partitions.identity import Identities
from eoctl.clients.partitions.interrupts import Interrupts
from eoctl.clients.partitions.open_partition import (
    OpenPartitions,
    WriteOptions,
    appending,
    clock_of,
    notes_of,
)
from eoctl.clients.partitions.target import TargetOptions, resolve_target, target_paths
from eoctl.clients.producing.producer import PartitionProducer
from eoctl.clients.producing.topic_producer import StickyPartitions, partition_for_key
from eoctl.clients.record_formats.inputs import BytesAs, InputFormat
from eoctl.clients.user_programs.program import Filter
from eoctl.clock import resolve_now
from eoctl.commands.shared.append_result import AppendAnswer, places_text
from eoctl.commands.shared.consume_notes import report_limits
from eoctl.commands.shared.consume_program import hand_overs
from eoctl.commands.txn.readers import Now
from eoctl.options import Output
from eoctl.output import PLACE, Columns, OutputFormat
from eoctl.parameters import advanced_option, argument, option, records_option
from recovery.transactions.isolation import Isolation
from storage.counts import counted
from storage.dirs.discovery import select_partition
from storage.dirs.partition import Partition
from storage.errors import EXIT_OK, EXIT_SKIPPED, EoctlError, RefusedError, UsageError, pasted
from storage.file_names import GROUPS_TOPIC, TopicPartition
from storage.producers.transaction_metadata import ProducerIdAndEpoch
from storage.writing.record_builder import DEFAULT_BATCH_BYTES, BatchBuilder, ProducerIdentity

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from eoctl.clients.partitions.target import WriteTarget
    from eoctl.clients.record_formats.inputs import InputRecord
    from eoctl.commands.shared.consume_program import HandOver
    from recovery.changes.append_journal import AppendJournal
    from recovery.changes.plans.plan import Plan
    from storage.dirs.acknowledged_offsets import Missing
    from storage.writing.partition_store import FileChange


@with_change(without=("save_plan",))
def run(
    sources: Annotated[
        list[str], argument(metavar="SOURCE...", help="Partition directories to consume.")
    ],
    target: Annotated[
        str,
        option(
            "--to", metavar="PARTITION", help="Target partition, or its log dir with --to-topic."
        ),
    ],
    program: Annotated[
        str,
        option(
            "--exec", metavar="CMD", help="Filter program. It reads records and writes records."
        ),
    ],
    transactional_id: Annotated[
        str, option(metavar="ID", help="transactional.id of the transactions.")
    ],
    group: Annotated[
        str, option(metavar="GROUP", help="Consumer group whose offsets are committed.")
    ],
    topics: Annotated[
        list[str] | None,
        option(
            "--to-topic",
            metavar="TOPIC",
            help="Write to all partitions of this topic. If repeated, records name their topic.",
        ),
    ] = None,
    partitions: options.PartitionsCount = None,
    txn_records: Annotated[
        int, option(min=1, metavar="N", help="Most records in a transaction.")
    ] = 500,
    max_transactions: Annotated[
        int | None,
        records_option(
            min=1, metavar="N", help="Most transactions for each source.", show_default="to its end"
        ),
    ] = None,
    start: Annotated[
        str,
        records_option(
            "--from",
            metavar="WHERE",
            help="Start of a new group: earliest, latest, an offset or a time.",
        ),
    ] = "earliest",
    isolation: Annotated[
        Isolation, records_option(help="Isolation level for reading the sources.")
    ] = Isolation.READ_COMMITTED,
    input_format: Annotated[
        InputFormat,
        option("--format", metavar="lines|jsonl", help="Format that the filter reads and writes."),
    ] = InputFormat.LINES,
    bytes_as: Annotated[
        BytesAs, option("--bytes", help="How strings of jsonl are read.")
    ] = BytesAs.TEXT,
    transaction_timeout_ms: options.TransactionTimeoutMs = 60_000,
    transaction_version: Annotated[
        int | None,
        advanced_option(
            min=0, max=2, metavar="0|1|2", help="transaction.version.", show_default="the cluster's"
        ),
    ] = None,
    fsync: options.FsyncChoice = options.Fsync.BATCH,
    single_copy: options.SingleCopy = False,
    topic_id: options.TopicId = None,
    metadata_dir: options.MetadataDir = None,
    now: Now = None,
    change: ChangeOptions = PLAN_ONLY,
    output: Output = OutputFormat.TEXT,
) -> int:
    """Consume, transform, produce: each batch of records and its offsets in one transaction."""
    from eoctl.clients.coordinators.log_dir_coordinator import TransactionalOptions
    from eoctl.clients.log.consumer import parse_start
    from eoctl.clients.partitions.open_partition import WriteOptions
    from eoctl.clients.partitions.target import TargetOptions
    from eoctl.commands.shared.append_result import AppendedRows, show_appended
    from eoctl.output import Report
    from storage.writing.partition_store import FlushPolicy

    wanted = TransformOptions(
        command=program,
        group=group,
        transactional=TransactionalOptions(
            transactional_id, transaction_timeout_ms, version=transaction_version
        ),
        topics=tuple(topics or ()),
        partitions_count=partitions,
        start=parse_start(start),
        isolation=isolation,
        txn_records=txn_records,
        max_transactions=max_transactions,
        input_format=input_format,
        bytes_as=bytes_as,
        now=now,
        target=TargetOptions(metadata_dir, topic_id, single_copy),
        write=WriteOptions(flush=FlushPolicy(fsync), change=change),
    )
    result = transform(sources, target, wanted)
    reports = [Report("transform", TRANSFORM_COLUMNS, result.reports)]
    if result.sinks:
        reports.append(Report("sink", SinkReport._fields, result.sinks))
    show_appended(
        AppendedRows(
            reports=reports,
            recoveries=result.recoveries,
            changes=result.changes,
            notes=result.notes,
            error=result.error,
            answer=answer_of(result.reports),
            journal=result.journal,
            has_backup=not change.no_backup,
        ),
        output,
    )
    return result.status


# -- `eoctl txn run`: consume, transform, produce, and commit the offsets in the same transaction
#
# Each transaction passes a number of records of one source partition through the filter. The
# answers are sent to the target, or to several topics as each record says. The next offset of the
# source is committed for the group, in the same transaction. No transaction begins before the
# filter has answered. A killed run leaves a transaction that its coordinator finishes or aborts
# when the next run opens it. The next run continues at the committed offset.


GONE = "another --group begins where --from says"
DEFAULT_TXN_RECORDS = 500  # the default of Kafka's consumer


class TransformOptions(NamedTuple):
    """The command line options. None: the topic's value, or Kafka's default."""

    command: str
    group: str
    transactional: TransactionalOptions
    topics: tuple[str, ...] = ()
    partitions_count: int | None = None
    start: Start = Start()
    isolation: Isolation = Isolation.READ_COMMITTED
    txn_records: int = DEFAULT_TXN_RECORDS
    max_transactions: int | None = None
    input_format: InputFormat = InputFormat.LINES
    bytes_as: BytesAs = BytesAs.TEXT
    batch_bytes: int = DEFAULT_BATCH_BYTES
    now: str | None = None
    target: TargetOptions = TargetOptions()
    write: WriteOptions = WriteOptions()


class TransformReport(NamedTuple):
    """The row of a source partition. The group continues at `next_offset`.

    `records_out` is None in a plan, which does not run the filter.
    """

    topic: str
    partition: int
    applied: bool
    first_offset: int
    next_offset: int
    records_in: int
    records_out: int | None
    transactions: int
    path: str


class SinkReport(NamedTuple):
    """A row of a run with several topics: a target partition, and the number of its records."""

    topic: str
    partition: int
    records: int
    path: str


TRANSFORM_COLUMNS = Columns(TransformReport._fields, answers=(
    *PLACE, "applied", "records_in", "records_out", "next_offset",
))  # fmt: skip


class TransformResult(NamedTuple):
    """The result of a run. `error` ended it early, and the rows show the committed part.

    `sinks`: the target partitions of an applied run with several topics, else ().
    `status`: the exit status without an error, as `consume` of the same sources.
    """

    reports: tuple[TransformReport, ...]
    sinks: tuple[SinkReport, ...]
    recoveries: tuple[Plan, ...]
    changes: tuple[FileChange, ...]
    notes: tuple[str, ...]
    error: BaseException | None
    status: int = EXIT_OK
    journal: AppendJournal | None = None


def answer_of(reports: Sequence[TransformReport]) -> AppendAnswer:
    """Sum up a run."""
    read = [each for each in reports if each.records_in]
    verbs = ("process", "processed")
    if not read:
        return AppendAnswer(verbs, ())
    records = counted(sum(each.records_in for each in read), "record")
    transactions = counted(sum(each.transactions for each in read), "transaction")
    place = places_text([f"{each.topic}-{each.partition}" for each in read])
    short = f"{records} in {transactions}"
    return AppendAnswer(verbs, (f"{records} of {place} in {transactions}", short))


def transform(sources: Sequence[str], target: str, options: TransformOptions) -> TransformResult:
    """Run the transactions, or only plan them.

    Raises:
        RefusedError: source and target are not of one cluster, or as `produce`.
        UsageError, AccessError: as `produce` and `consume`.
    """
    paths = _paths_of(target, options)
    targets = [resolve_target(each, options.target) for each in paths]
    named: set[object] = set()
    for each in sources:
        partition = Partition.of(select_partition(each))
        _require_source(each, partition, targets)
        what = {(partition.topic, partition.partition), os.path.realpath(partition.path)}
        if named & what:
            raise UsageError(f"{each}: {partition.topic}-{partition.partition} is a source twice")
        named |= what
    log_dir = targets[0].log_dir_path
    if not options.write.change.apply:
        return _TransformRun(sources, targets, options, None).run()
    with appending([log_dir], options.write.change, "txn-run") as journal:
        # A broker may have run since the plan was shown.
        targets = [resolve_target(each, options.target) for each in paths]
        return _TransformRun(sources, targets, options, journal).run()._replace(journal=journal)


def _paths_of(target: str, options: TransformOptions) -> list[str]:
    """Return all partitions that are written to.

    Raises:
        UsageError: a topic twice, or one id for several topics, or as `target_paths`.
    """
    topics = options.topics
    twice = next((each for each in topics if topics.count(each) > 1), None)
    if twice is not None:
        raise UsageError(f"--to-topic {twice}: is given twice")
    if len(topics) > 1 and options.target.topic_id is not None:
        raise UsageError(
            "--topic-id belongs to one topic, and there are several",
            next_step="make them first: eoctl init makes topics with ids, or a run with each alone",
        )
    return [
        path
        for topic in topics or (None,)
        for path in target_paths(
            target, topic, options.target.metadata_dir, options.partitions_count
        )
    ]


def _require_source(path: str, partition: Partition, targets: Sequence[WriteTarget]) -> None:
    """Refuse a source of another cluster, since a coordinator has only its own cluster's offsets.

    Raises:
        RefusedError: the source is of another cluster, or of an unknown cluster.
        UsageError: it is a target.
    """
    for target in targets:
        if os.path.realpath(partition.path) == os.path.realpath(target.path):
            raise UsageError(f"{path}: is source and target")
        around = Path(os.path.realpath(partition.path)).parent
        if around == Path(os.path.realpath(target.log_dir_path)):
            continue
        clusters = [
            None if each is None or each.meta is None else each.meta.cluster_id
            for each in (partition.log_dir, target.log_dir)
        ]
        if clusters[0] is None or clusters[0] != clusters[1]:
            names = ["an unknown cluster" if each is None else each for each in clusters]
            raise RefusedError(
                f"{path}: is of {names[0]}, {target.path} of {names[1]}: a transaction is of one"
                " cluster",
                next_step=f"copy {pasted(path)} there with eoctl copy, and run it on that",
            )
        if (partition.topic, partition.partition) == target.name[:2]:
            raise UsageError(f"{path}: is another replica of {target.path}: source and target")


class _SourceConsumer(Consumer):
    """A consumer that raises an error for missing records, whose effect would be missing."""

    def _meet_truncation(self, offset: int, end_offset: int) -> None:
        raise RefusedError(
            f"{self.partition.path}: was truncated to offset {end_offset}, and read up to {offset}",
            next_step=GONE,
        )

    def _meet_deletion(self, offset: int, first_offset: int) -> None:
        raise RefusedError(
            f"{self.partition.path}: offsets {offset} to {first_offset - 1} were deleted before"
            f" they were read: its log starts at {first_offset} now",
            next_step=GONE,
        )


class _SourcePartition:
    """A source partition, and the group's progress in it."""

    def __init__(self, path: str, options: TransformOptions, report: Callable[[str], None]) -> None:
        consume = ConsumeOptions(start=options.start, isolation=options.isolation)
        self.consumer = _SourceConsumer(path, consume, report)
        partition = self.consumer.partition
        self.path = path
        self.place = TopicPartition(partition.topic, partition.partition)
        self.first_offset = self.next_offset = 0
        self.is_new = False
        self.is_at_end = False
        self.records_in = self.records_out = self.transactions = 0

    def start(self, committed: int | None, group: str) -> None:
        """Start at the committed offset, or without it where the options say."""
        if committed is None:
            self.first_offset = self.next_offset = self.consumer.start()
            self.is_new = True
            return
        require_in_log(self.consumer, committed, f"{self.path}: group {group}")
        self.consumer.start(committed)
        self.first_offset = self.next_offset = committed

    def not_given(self) -> list[Missing]:
        """Return acknowledged records that were not passed, up to the end if it was reached."""
        return self.consumer.not_given() if self.is_at_end else []

    def report(self, *, is_applied: bool) -> TransformReport:
        """Return its row."""
        return TransformReport(
            topic=self.place.topic,
            partition=self.place.partition,
            applied=is_applied,
            first_offset=self.first_offset,
            next_offset=self.next_offset,
            records_in=self.records_in,
            records_out=self.records_out if is_applied else None,
            transactions=self.transactions,
            path=self.path,
        )


class _TransformRun:
    def __init__(
        self,
        sources: Sequence[str],
        targets: Sequence[WriteTarget],
        options: TransformOptions,
        journal: AppendJournal | None,
    ) -> None:
        self.options = options
        self.notes: list[str] = []
        log_dir = targets[0].log_dir_path
        self.now = resolve_now(options.now, [log_dir])
        self.partitions = OpenPartitions(log_dir, options.write, options.target, self.now, journal)
        with ExitStack() as stack:
            stack.callback(self.partitions.close)  # a session starts with complete topics
            self._begin(sources, targets)
            stack.pop_all()

    def _begin(self, sources: Sequence[str], targets: Sequence[WriteTarget]) -> None:
        """Open the partitions, begin the session, and find the group's offsets."""
        options, log_dir = self.options, targets[0].log_dir_path
        opened = [self.partitions.open_target(each) for each in targets]
        self.filter = Filter(
            options.command,
            options.input_format,
            options.bytes_as,
            needs_keys={each.target.name.topic: each.config.is_compacted for each in opened},
        )
        self.offsets = GroupCommits(options.group, log_dir, options.target.metadata_dir)
        now_ms = clock_of(self.now)
        # Damage to them is refused before a writer is opened, whose recovery would truncate it.
        self.offsets.committed(TopicPartition(*opened[0].target.name[:2]))
        self.transactional = Transactional(
            log_dir, options.target.metadata_dir, self.partitions, options.transactional, now_ms
        )
        self.notes += self.transactional.notes
        # The coordinator has finished an earlier run, so these are its offsets.
        self.sources = [_SourcePartition(each, options, self.notes.append) for each in sources]
        # Checks that they can be committed, before anything is sent.
        self.offsets.create_topic(self.partitions)
        self.partitions.writer(GROUPS_TOPIC, self.offsets.partition)
        for each in self.sources:
            each.start(self.offsets.committed(each.place), options.group)
        self.places = [(each.target.name.topic, each.target.name.partition) for each in opened]
        self.paths = [each.target.path for each in opened]
        self.counts = Counter[int]()  # committed records by target partition
        self.producer_ids = [self.transactional.producer.producer_id]
        first = ProducerIdentity(*self.transactional.producer, base_sequence=0)
        self.producers = [
            PartitionProducer(
                each.writer,
                BatchBuilder(codec=each.codec, batch_bytes=options.batch_bytes),
                Identities(
                    first, self.producer_ids, is_per_transaction=self.transactional.version >= 2
                ),
                now_ms=now_ms,
                is_transactional=True,
            )
            for each in opened
        ]
        self.sinks = {
            topic: _Sink(
                {place[1]: n for n, place in enumerate(self.places) if place[0] == topic},
                self.producer_ids[0],
                options.batch_bytes,
            )
            for topic, _ in self.places
        }

    def run(self) -> TransformResult:
        """Run all transactions, and close the partitions whatever happens."""
        error: BaseException | None = None
        with Interrupts() as interrupts:
            try:
                for source in self.sources:
                    self._pass(source, interrupts)
            except (EoctlError, OSError, KeyboardInterrupt) as exc:
                error = exc
            not_closed: BaseException | None = None
            try:
                with interrupts.held():
                    not_closed = self.partitions.close()
            except KeyboardInterrupt as exc:
                not_closed = not_closed or exc
            error = error or not_closed
        is_applied = self.options.write.change.apply
        opened = [*self.partitions]
        if not is_applied:
            self.notes.append("the filter was not run: what it would add is not among the files")
        for each in self.sources:
            self.notes += each.consumer.reported(each.not_given())
        found = {each.consumer.status(each.not_given()) for each in self.sources}
        status = EXIT_SKIPPED if EXIT_SKIPPED in found else max(found)
        notes = notes_of(opened, self.now, is_applied=is_applied, more=self.notes)
        return TransformResult(
            reports=tuple(each.report(is_applied=is_applied) for each in self.sources),
            sinks=tuple(self._sink_reports()) if is_applied and len(self.sinks) > 1 else (),
            recoveries=self.partitions.recoveries,
            changes=self.partitions.changes,
            notes=tuple(dict.fromkeys(notes)),
            error=error,
            status=status,
        )

    def _sink_reports(self) -> Iterator[SinkReport]:
        for number, (topic, partition) in enumerate(self.places):
            yield SinkReport(
                topic=topic,
                partition=partition,
                records=self.counts[number],
                path=self.paths[number],
            )

    def _pass(self, source: _SourcePartition, interrupts: Interrupts) -> None:
        is_applied, limit = self.options.write.change.apply, self.options.max_transactions
        report_limits(source.consumer)
        for batch in hand_overs(source.consumer.records(), self.options.txn_records):
            if batch is None:
                continue
            if limit is not None and source.transactions >= limit:
                return
            if is_applied:
                records = [*self.filter.run(batch.parts, source.path)]
                with interrupts.held():
                    self._transact(source, records, batch.next_offset)
                    source.records_out += len(records)
                    _count(source, batch)
            else:
                _count(source, batch)
        source.is_at_end = True
        next_offset = source.consumer.consumed.next_offset
        # A group continues where it has begun, even if --from latest means another offset by then.
        is_new = source.is_new and not source.transactions
        if (next_offset > source.next_offset or is_new) and is_applied:
            # Markers and aborted records are consumed, without records for the filter.
            with interrupts.held():
                self._transact(source, [], next_offset)
        source.next_offset = max(next_offset, source.next_offset)

    def _transact(
        self,
        source: _SourcePartition,
        records: Sequence[tuple[str, InputRecord]],
        next_offset: int,
    ) -> None:
        """Run one transaction. An error before its end aborts it."""
        transactional = self.transactional
        try:
            touched = self._send(records)
            transactional.commit_offsets(self.offsets, {source.place: next_offset})
        except EoctlError:
            transactional.abort()
            raise
        transactional.end(is_commit=True)
        for each in self.producers:
            each.next_transaction()
        self.counts += touched
        for number in touched:
            self.producers[number].note_end(is_commit=True)
        if self.producers[0].identities.lacks_id(self.producers[0].transaction):
            self.producer_ids.append(transactional.producer.producer_id)

    def _send(self, records: Sequence[tuple[str, InputRecord]]) -> Counter[int]:
        """Send records, and return the number for each target partition."""
        numbers = [self.sinks[topic].choose(each) for topic, each in records]
        touched = Counter(numbers)
        for number in sorted(touched):
            who = self.producers[number].identities.at(self.producers[number].transaction, 0)
            sender = ProducerIdAndEpoch(who.producer_id, who.producer_epoch)
            self.transactional.add([self.places[number]], sender)
        for number, (_, each) in zip(numbers, records, strict=True):
            self.producers[number].add(each.key, each.value, each.headers, each.timestamp_ms)
        for number in touched:
            self.producers[number].flush()
        return touched


class _Sink:
    """The partitions of one target topic: the number of the producer of each."""

    def __init__(self, producers: Mapping[int, int], seed: int, batch_bytes: int) -> None:
        self._producers = producers
        self._numbers = [*producers.values()]
        self._sticky = StickyPartitions(len(producers), seed, batch_bytes)

    def choose(self, record: InputRecord) -> int:
        """Return the partition of a record: the named partition, else by its key, else in turn.

        Raises:
            UsageError: it names a partition that is not written to.
        """
        if record.partition is not None:
            if record.partition not in self._producers:
                known = ", ".join(map(str, self._producers))
                raise UsageError(f"partition: expected {known}, found {record.partition}")
            return self._producers[record.partition]
        if len(self._numbers) == 1:
            return self._numbers[0]
        if record.key is not None:
            return self._numbers[partition_for_key(record.key, len(self._numbers))]
        return self._numbers[self._sticky.next_partition(len(record.value or b""))]


def _count(source: _SourcePartition, batch: HandOver) -> None:
    source.records_in += batch.records_count
    source.next_offset = batch.next_offset
    source.transactions += 1
