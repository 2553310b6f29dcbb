"""`eoctl copy`: append the records of a partition to another partition, exactly once."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

from eoctl import options
from eoctl.change_options import PLAN_ONLY, ChangeOptions, with_change
from eoctl.clients.copying.copier import ComparisonOutcome, Copier, CopyComparison, compare
from eoctl.clients.copying.session import CopySessionKeeper, PartitionOf, default_path
from eoctl.clients.log.batch_reader import BatchConsumer
from eoctl.clients.log.consumer import ConsumeOptions
from eoctl.clients.log.log_walk import POLL_S
from eoctl.clients.partitions.identity import OwnIds
from eoctl.clients.partitions.interrupts import run_held
from eoctl.clients.partitions.open_partition import (
    WriteOptions,
    appending,
    notes_of,
    open_partition,
)
from eoctl.clients.partitions.target import (
    TargetOptions,
    require_apart,
    require_legal,
    resolve_target,
)
from eoctl.clock import resolve_now
from eoctl.commands.produce import first_error
from eoctl.commands.shared.append_result import AppendAnswer, places_text
from eoctl.options import Compare
from eoctl.output import PLACE, Columns, OutputFormat
from eoctl.parameters import advanced_option, argument, option, records_option
from eoctl.progress import Progress
from recovery.cluster.clusters import Clusters
from recovery.cluster.placement import lost_partitions, not_understood
from recovery.replay.recover_state import exposed_text
from recovery.transactions.isolation import Isolation
from storage.counts import counted
from storage.dirs.discovery import select_partition
from storage.dirs.log_dir import read_log_dir
from storage.dirs.partition import Partition
from storage.errors import EXIT_FINDINGS, EXIT_OK, EXIT_SKIPPED, EoctlError, UsageError
from storage.file_names import DirState
from storage.limits import INT64_MAX

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from eoctl.clients.partitions.interrupts import Interrupts
    from eoctl.clients.partitions.target import WriteTarget
    from recovery.changes.append_journal import AppendJournal
    from recovery.changes.plans.plan import Plan
    from storage.writing.partition_store import FileChange


@with_change(without=("save_plan",))
def command(
    source: Annotated[
        str, argument(metavar="SRC", help="A directory TOPIC-N, or a log dir with --to-topic.")
    ],
    destination: Annotated[
        str, argument(metavar="DST", help="Target partition. It need not exist yet.")
    ],
    topic: Annotated[
        str | None,
        option(
            "--to-topic",
            metavar="TOPIC",
            help="Copy each partition of this topic to the same number.",
        ),
    ] = None,
    isolation: Annotated[
        Isolation, records_option(help="Isolation level for reading the source.")
    ] = Isolation.READ_COMMITTED,
    start: Annotated[
        str,
        records_option(
            "--from",
            metavar="WHERE",
            help="Start of a new session: earliest, latest, an offset or a time.",
        ),
    ] = "earliest",
    until: Annotated[
        str, records_option(metavar="WHERE", help="Stop before log-end, hw, lso or an offset.")
    ] = "log-end",
    follow: Annotated[
        bool, option("--follow", "-f", help="Wait for new records of the source.")
    ] = False,
    session: Annotated[
        str | None,
        option(
            metavar="FILE",
            help="Save the position in FILE.",
            show_default="in LOG-DIR.eoctl/copies",
        ),
    ] = None,
    producer_id: Annotated[
        int | None,
        advanced_option(
            min=0,
            max=INT64_MAX,
            metavar="ID",
            help="Producer id of the copy.",
            show_default="its own",
        ),
    ] = None,
    compare: Annotated[
        Compare,
        advanced_option(help="Compare at the end what this run copied, everything, or nothing."),
    ] = Compare.RUN,
    no_compare: Annotated[
        bool, advanced_option("--no-compare", help="Same as --compare none.")
    ] = False,
    fsync: options.FsyncChoice = options.Fsync.SEGMENT,
    now: options.WriteNow = None,
    leader_epoch: options.LeaderEpoch = None,
    segment_bytes: options.SegmentBytes = None,
    index_interval_bytes: options.IndexIntervalBytes = None,
    index_max_bytes: options.IndexMaxBytes = None,
    topic_id: options.TopicId = None,
    metadata_dir: options.MetadataDir = None,
    single_copy: options.SingleCopy = False,
    change: ChangeOptions = PLAN_ONLY,
    output: options.Output = OutputFormat.TEXT,
) -> int:
    """Append the records of a partition to another partition, exactly once, and compare the two.

    Batches are copied as bytes, under a producer id of the copier. A second run continues after the
    last copied record. eoctl shows the plan, and runs it with --apply. DST must have no broker
    then. A broker may be running on SRC, which is only read.
    """
    from eoctl.clients.log.consumer import ConsumeOptions, EndKind, parse_end, parse_start
    from eoctl.clients.partitions.open_partition import WriteOptions
    from eoctl.clients.partitions.target import TargetOptions
    from storage.errors import UsageError
    from storage.writing.partition_store import FlushPolicy

    end = parse_end(until)
    if follow and end.kind is EndKind.OFFSET:
        raise UsageError("--follow has no end, and --until OFFSET is one")
    if no_compare and compare is Compare.ALL:
        raise UsageError("--no-compare and --compare all: one of them")
    chosen = CopyOptions(
        consume=ConsumeOptions(parse_start(start), end, isolation, follow=follow),
        target=TargetOptions(metadata_dir, topic_id, single_copy),
        write=WriteOptions(
            leader_epoch=leader_epoch,
            segment_bytes=segment_bytes,
            index_interval_bytes=index_interval_bytes,
            index_max_bytes=index_max_bytes,
            flush=FlushPolicy(fsync),
            change=change,
        ),
        topic=topic,
        now=now,
        session=session,
        producer_id=producer_id,
        compare=Compare.NONE if no_compare else compare,
    )
    result = copy(source, destination, chosen)
    _report(result, output, has_backup=not change.no_backup)
    return result.status


def _report(result: CopyResult, output: OutputFormat, *, has_backup: bool) -> None:
    from eoctl.commands.shared.append_result import AppendedRows, show_appended
    from eoctl.output import Report

    report = Report("copy", COLUMNS, result.reports)
    show_appended(
        AppendedRows(
            reports=[report],
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


# -- one run of `eoctl copy`, with the same steps for a plan and for --apply


SHOWN_TRANSACTIONS = 10


class CopyOptions(NamedTuple):
    """The command line options. None: the value of the session, the topic or the log."""

    consume: ConsumeOptions = ConsumeOptions()
    target: TargetOptions = TargetOptions()
    write: WriteOptions = WriteOptions()
    topic: str | None = None
    now: str | None = None
    session: str | None = None
    producer_id: int | None = None
    compare: Compare = Compare.RUN


class CopyReport(NamedTuple):
    """The printed row of a partition.

    Attributes:
        source_start_offset, source_end_offset: the range of the source that was read, half open.
        base_offset, last_offset: the range in the destination.
        bytes: the bytes of the batches in the destination.
        encoded_batches: the batches that could not be copied as bytes.
        verified_records: records that the destination had already, compared again.
        open_transactions: transactions without an end in the source, None if not checked.
        compared: the result of the comparison, None without a comparison.
    """

    topic: str
    partition: int
    applied: bool
    source_start_offset: int
    source_end_offset: int
    base_offset: int | None
    last_offset: int | None
    records: int
    batches: int
    bytes: int
    compared: str | None
    compared_records: int | None
    aborted_batches: int
    aborted_records: int
    control_batches: int
    open_transactions: int | None
    encoded_batches: int
    verified_records: int
    segments_rolled: int
    producer_id: int
    producer_epoch: int | None
    source: str
    path: str
    session: str


COLUMNS = Columns(CopyReport._fields, answers=(
    *PLACE, "applied", "records", "bytes", "base_offset", "last_offset", "compared",
))  # fmt: skip


class DifferenceError(EoctlError):
    """The destination differs from the source."""

    exit_status = EXIT_FINDINGS


class CopyResult(NamedTuple):
    """The result of a run. `error` ended it early, and the report covers the work before it.

    `status`: the exit status without an error, as `consume` of the same sources.
    """

    reports: tuple[CopyReport, ...]
    recoveries: tuple[Plan, ...]
    changes: tuple[FileChange, ...]
    notes: tuple[str, ...]
    error: BaseException | None
    status: int = EXIT_OK
    journal: AppendJournal | None = None


class Pair(NamedTuple):
    """The directories of a source and of a destination."""

    source: str
    destination: str


def copy(source: str, destination: str, options: CopyOptions) -> CopyResult:
    """Copy a partition, or the partitions of a topic, or plan the copy.

    Raises:
        RefusedError, UsageError, AccessError: nothing was changed, or only a recovery was done.
    """
    pairs, doubts = _pairs(source, destination, options.topic)
    if options.consume.follow and not options.write.change.apply:
        raise UsageError("--follow goes with --apply. A plan has an end")
    targets = [resolve_target(each.destination, options.target) for each in pairs]
    if not options.write.change.apply:
        return _CopyRun(pairs, targets, options, None, doubts).run()
    log_dirs = sorted({each.log_dir_path for each in targets})
    with appending(log_dirs, options.write.change, "copy") as journal:
        # A broker may have run since the plan was shown.
        targets = [resolve_target(each.path, options.target) for each in targets]
        run = _CopyRun(pairs, targets, options, journal, doubts)
        return run.run()._replace(journal=journal)


def answer_of(reports: Sequence[CopyReport]) -> AppendAnswer:
    """Sum up a copy."""
    copied = [each for each in reports if each.records]
    if not copied:
        return AppendAnswer(("copy", "copied"), ())
    records = counted(sum(each.records for each in copied), "record")
    place = places_text([f"{each.topic}-{each.partition}" for each in copied])
    short = f"{records} to {place}"
    if len(copied) > 1:
        return AppendAnswer(("copy", "copied"), (short,))
    (only,) = copied
    where = f"{short}, offsets {only.base_offset}..{only.last_offset}"
    return AppendAnswer(("copy", "copied"), (f"{where}, from {only.source}", where, short))


def _pairs(source: str, destination: str, topic: str | None) -> tuple[list[Pair], list[str]]:
    """Pair the partitions, and return notes on lost or unknown partitions of the topic."""
    doubts: list[str] = []
    if topic is None:
        pairs = [Pair(source, destination)]
    else:
        require_legal(topic)
        log_dir = read_log_dir(source)
        clusters = Clusters([log_dir])
        absent = lost_partitions([log_dir], clusters)
        doubts = [str(each) for each in absent if each.key.topic == topic]
        doubts += not_understood([log_dir], clusters)
        numbers = sorted(
            each.name.partition
            for each in log_dir.partitions
            if each.name.topic == topic and each.name.state is DirState.LIVE
        )
        if not numbers:
            more = "".join(f"; {each}" for each in doubts)
            raise UsageError(f"{source}: has no partition of {topic}{more}")
        names = [f"{topic}-{number}" for number in numbers]
        pairs = [Pair(str(Path(source, each)), str(Path(destination, each))) for each in names]
    for each in pairs:
        require_apart(Partition.of(select_partition(each.source)), each.destination)
    return pairs, doubts


class _CopyRun:
    def __init__(
        self,
        pairs: Sequence[Pair],
        targets: Sequence[WriteTarget],
        options: CopyOptions,
        journal: AppendJournal | None,
        doubts: Sequence[str],
    ) -> None:
        self.options = options
        self.journal = journal
        self.notes: list[str] = []
        self.doubts = doubts
        self.is_applied = options.write.change.apply
        log_dirs = sorted({each.log_dir_path for each in targets})
        # An append happens now, even if the directory is old.
        self.now = resolve_now(options.now, log_dirs)
        self.own_ids: dict[str, OwnIds] = {}
        self.copiers = [
            self._copier(pair, target) for pair, target in zip(pairs, targets, strict=True)
        ]
        self.compared: list[CopyComparison | None] = [None] * len(self.copiers)

    def _copier(self, pair: Pair, target: WriteTarget) -> Copier:
        options = self.options
        consumer = BatchConsumer(pair.source, options.consume, self.notes.append)
        opened = open_partition(target, options.write, self.now, self.journal)
        log_dir = consumer.partition.log_dir
        if log_dir is not None and log_dir.lock.is_held and log_dir.path != target.log_dir_path:
            self.notes.append(
                f"{log_dir.path}: in use by {log_dir.lock.holder}; its log may grow while it is"
                " copied"
            )
        name = Path(target.path).name
        path = default_path(target.log_dir_path, name, PartitionOf.of(consumer.partition))
        if options.session is not None:
            path = options.session
            if options.topic is not None:
                path = str(Path(path, name))
        keeper = CopySessionKeeper(self.journal, path, target.log_dir_path)
        own_ids = self.own_ids.get(target.log_dir_path)
        if own_ids is None:
            own_ids = OwnIds([target.log_dir_path], target.next_broker_id, self.notes)
            self.own_ids[target.log_dir_path] = own_ids
        return Copier(consumer, options.consume, opened, keeper, options.producer_id, own_ids)

    # --- copying ---

    def run(self) -> CopyResult:
        """Copy everything, and close the partitions whatever happens.

        An interrupt is handled between two blocks, or during a wait for more records.
        """
        return run_held(self._run)

    def _run(self, interrupts: Interrupts) -> CopyResult:
        error: BaseException | None = None
        try:
            with Progress("copying", self._source_bytes()) as progress:
                self._copy(interrupts, progress)
        except (EoctlError, OSError, KeyboardInterrupt) as exc:
            error = exc
        for each in self.copiers:
            error = first_error(error, each.close)
        if error is None and self.is_applied and self.options.compare is not Compare.NONE:
            try:
                self._compare(interrupts)
            except (EoctlError, KeyboardInterrupt) as exc:
                error = exc
        opened = [each.opened for each in self.copiers]
        return CopyResult(
            reports=tuple(map(self._report, range(len(self.copiers)))),
            recoveries=tuple(each.recovery for each in opened if each.recovery is not None),
            changes=tuple(change for each in opened for change in each.store.changes.values()),
            notes=tuple(
                notes_of(opened, self.now, is_applied=self.is_applied, more=self._more_notes())
            ),
            error=error,
            status=self._status(),
        )

    def _source_bytes(self) -> int | None:
        """Return the most bytes to read, or None if the source is followed."""
        if self.options.consume.follow:
            return None
        return sum(
            each.consumer.partition.files.log_bytes_from(each.consumer.consumed.next_offset)
            for each in self.copiers
        )

    def _copy(self, interrupts: Interrupts, progress: Progress) -> None:
        for each in self.copiers:
            if self.options.topic is not None and each.opened.target.partition is None:
                each.opened.store.begin()  # creates all partitions of the topic
            self._catch_up(each, interrupts, progress)
        while self.options.consume.follow:
            with interrupts.released():
                time.sleep(POLL_S)
            for each in self.copiers:
                if each.has_more():
                    self._catch_up(each, interrupts, progress)
        for each in self.copiers:
            each.consumer.finish()

    @staticmethod
    def _catch_up(copier: Copier, interrupts: Interrupts, progress: Progress) -> None:
        before_bytes = copier.copied.bytes
        for block in copier.blocks():
            copier.take(block)
            progress.advance(copier.copied.bytes - before_bytes)
            before_bytes = copier.copied.bytes
            with interrupts.released():
                pass

    # --- comparing ---

    def _compare(self, interrupts: Interrupts) -> None:
        error: EoctlError | None = None
        for number, each in enumerate(self.copiers):
            with interrupts.released():
                pass
            part = each.part(is_all=self.options.compare is Compare.ALL)
            found = compare(each.consumer, each.closed_log(), part, each.producer_ids)
            self.compared[number] = found
            if found.outcome is ComparisonOutcome.DIFFERENT:
                what = f"{each.opened.target.path}: differs from {each.consumer.partition.path}"
                error = error or DifferenceError(f"{what}: {found.words}")
            elif found.outcome is ComparisonOutcome.UNKNOWN:
                self.notes.append(f"{each.opened.target.path}: not compared: {found.words}")
        if error is not None:
            raise error

    # --- printing ---

    def _report(self, number: int) -> CopyReport:
        each, found = self.copiers[number], self.compared[number]
        target, done, view = each.opened.target, each.copied, each.consumer.view
        return CopyReport(
            topic=target.name.topic,
            partition=target.name.partition,
            applied=self.is_applied,
            source_start_offset=each.began.source_offset,
            source_end_offset=each.source_offset,
            base_offset=done.base_offset,
            last_offset=done.last_offset,
            records=done.records,
            batches=done.batches,
            bytes=done.bytes,
            compared=None if found is None else str(found.outcome),
            compared_records=None if found is None else found.records,
            **done.left_out._asdict(),
            open_transactions=None if view is None else len(view.open_transactions),
            encoded_batches=done.encoded_batches,
            verified_records=each.resumed.verified_records,
            segments_rolled=each.opened.writer.rolled_count,
            producer_id=each.producer_id,
            producer_epoch=each.producer_epoch if done.batches else None,
            source=each.consumer.partition.path,
            path=target.path,
            session=each.keeper.path,
        )

    def _status(self) -> int:
        found = {each.consumer.status(each.consumer.not_given()) for each in self.copiers}
        if self.doubts or EXIT_SKIPPED in found:
            return EXIT_SKIPPED
        return max(found, default=EXIT_OK)

    def _more_notes(self) -> Iterator[str]:
        yield from self.notes
        yield from self.doubts
        for each in self.copiers:
            partition = each.consumer.partition
            yield from each.consumer.reported(each.consumer.not_given())
            view = each.consumer.view
            for found in [] if view is None else view.exposed[:SHOWN_TRANSACTIONS]:
                yield f"{partition.path}: {exposed_text(*found)}"
            transactions = [] if view is None else view.open_transactions
            for found in transactions[:SHOWN_TRANSACTIONS]:
                yield (
                    f"{partition.path}: open transaction: producer id {found.producer_id} from"
                    f" offset {found.first_offset}"
                )
            if len(transactions) > SHOWN_TRANSACTIONS:
                yield f"and {len(transactions) - SHOWN_TRANSACTIONS} more open transactions"
