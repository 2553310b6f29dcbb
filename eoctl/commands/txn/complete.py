"""`eoctl txn complete`: complete the coordinator's unfinished work."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

from eoctl import options
from eoctl.change_options import PLAN_ONLY, ChangeOptions, with_change
from eoctl.clients.coordinators.log_dir_coordinator import open_coordinator, read_coordinator_log
from eoctl.clients.partitions.interrupts import run_held
from eoctl.clients.partitions.open_partition import (
    OpenPartitions,
    WriteOptions,
    appending,
    clock_of,
    notes_of,
)
from eoctl.clients.partitions.target import TargetOptions, require_log_dir
from eoctl.clock import resolve_now
from eoctl.commands.shared.append_result import AppendAnswer
from eoctl.commands.txn.readers import Now, commit_call
from eoctl.messages import MAX_NAMES, listing
from eoctl.options import Output
from eoctl.output import OutputFormat
from eoctl.parameters import argument, records_option
from recovery.cluster.clusters import image_around
from recovery.transactions.abort import count_open
from storage.counts import counted
from storage.dirs.discovery import select_partition
from storage.dirs.log_dir import read_log_dir
from storage.dirs.partition import Partition
from storage.errors import EXIT_SKIPPED, EoctlError, RefusedError, UsageError, pasted
from storage.file_names import TRANSACTION_STATE_TOPIC
from storage.producers.producer_state import AppendError
from storage.producers.transaction_metadata import COMPLETE_COMMIT, COMPLETED, ONGOING, is_timed_out

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from eoctl.clients.partitions.interrupts import Interrupts
    from recovery.changes.append_journal import AppendJournal
    from recovery.changes.plans.plan import Plan
    from storage.dirs.log_dir import LogDir
    from storage.producers.transaction_metadata import Metadata
    from storage.writing.partition_store import FileChange


@with_change(without=("save_plan",))
def complete(
    path: Annotated[str, argument(metavar="LOG-DIR", help="Log dir with __transaction_state.")],
    transactional_id: Annotated[
        list[str] | None,
        records_option(metavar="ID", help="Only this transactional.id. Repeatable."),
    ] = None,
    single_copy: options.SingleCopy = False,
    metadata_dir: options.MetadataDir = None,
    now: Now = None,
    change: ChangeOptions = PLAN_ONLY,
    output: Output = OutputFormat.TEXT,
) -> int:
    """Do what the coordinator would: write missing markers, abort what has timed out."""
    from eoctl.clients.partitions.open_partition import WriteOptions
    from eoctl.clients.partitions.target import TargetOptions
    from eoctl.commands.shared.append_result import AppendedRows, show_appended
    from eoctl.output import Columns, Report
    from storage.writing.partition_store import FlushPolicy

    wanted = CompleteOptions(
        transactional_ids=tuple(transactional_id or ()),
        now=now,
        target=TargetOptions(metadata_dir, None, single_copy),
        write=WriteOptions(flush=FlushPolicy.BATCH, change=change),
    )
    result = complete_transactions(path, wanted)
    columns = Columns(CompleteReport._fields, answers=ANSWER_COLUMNS)
    report = Report("complete", columns, result.reports)
    show_appended(
        AppendedRows(
            reports=[report],
            recoveries=result.recoveries,
            changes=result.changes,
            notes=result.notes,
            error=result.error,
            answer=answer_of(path, result.reports, result.next_steps),
            journal=result.journal,
            has_backup=not change.no_backup,
        ),
        output,
    )
    return EXIT_SKIPPED if result.is_waiting else 0


# -- `eoctl txn complete`: the coordinator's own work, for the transactions of a log dir
#
# A decided transaction gets its missing markers. A transaction beyond its timeout is aborted, with
# its producer fenced. A broker does the same when it becomes the coordinator of these ids, and
# every ten seconds from then on (TransactionMarkerChannelManager, abortTimedOutTransactions).


ANSWER_COLUMNS = (
    *("transactional_id", "producer_id", "status", "partitions", "outcome"),
    *("aborted_records_count", "applied"),
)
STARTED = "start the brokers: the coordinator ends the transactions that wait"


class CompleteOptions(NamedTuple):
    """The command line options. Without `transactional_ids` all are meant."""

    transactional_ids: tuple[str, ...] = ()
    now: str | None = None
    target: TargetOptions = TargetOptions()
    write: WriteOptions = WriteOptions()


class CompleteReport(NamedTuple):
    """The row of a transaction to end. `outcome` is set in a plan, too.

    Attributes:
        status: the status before. Ongoing means that it is late.
        partitions: the partitions it wrote to.
        outcome: committed, aborted, or waiting, for a `reason`.
        aborted_records_count: records of an ongoing transaction, which read_committed consumers
            never get. None if some cannot be read.
    """

    transactional_id: str
    partition: int
    producer_id: int
    producer_epoch: int
    status: str
    start_timestamp_ms: int
    timeout_ms: int
    partitions: str
    outcome: str
    reason: str
    aborted_records_count: int | None
    applied: bool

    @property
    def was_ongoing(self) -> bool:
        """True if no outcome was decided, and the transaction was late."""
        return self.status == ONGOING.label


class CompleteResult(NamedTuple):
    """The result of a run.

    Attributes:
        reports: a row of each transaction. If `error` ended the run, of the work before it.
        recoveries, changes, notes, error, journal: as in AppendedRows.
        next_steps: the steps that would let the waiting transactions end.
    """

    reports: tuple[CompleteReport, ...]
    recoveries: tuple[Plan, ...]
    changes: tuple[FileChange, ...]
    notes: tuple[str, ...]
    error: BaseException | None
    journal: AppendJournal | None = None
    next_steps: tuple[str, ...] = ()

    @property
    def is_waiting(self) -> bool:
        """True if any transaction could not be ended."""
        return any(each.outcome == "waiting" for each in self.reports)


def answer_of(
    path: str, reports: Sequence[CompleteReport], next_steps: Sequence[str] = ()
) -> AppendAnswer:
    """Sum up a completion. `path` is the log dir."""
    counts = Counter(each.outcome for each in reports)
    waiting = _waiting_of(counts.pop("waiting", 0))
    answer = AppendAnswer(
        ("end", "ended"),
        (),
        waits=tuple(_waits(reports)),
        waiting=waiting,
        try_next="; ".join(next_steps),
    )
    if not counts:
        return answer
    how = ", ".join(f"{count:,} {outcome}" for outcome, count in sorted(counts.items()))
    more = f"; {waiting}" if waiting else ""
    short = f"{counted(sum(counts.values()), 'transaction')}: {how}"
    aborted = [each for each in reports if each.outcome == "aborted" and each.was_ongoing]
    return answer._replace(
        does=(f"{short}{more}", short), loses=_loses(aborted), owner=_owner(path, aborted)
    )


def _waiting_of(count: int) -> str:
    return f"{counted(count, 'transaction')} {'waits' if count == 1 else 'wait'}" if count else ""


def _waits(reports: Sequence[CompleteReport]) -> Iterator[str]:
    """Yield the transactions that wait, each with the reason."""
    waiting = [each for each in reports if each.outcome == "waiting"]
    for each in waiting[:MAX_NAMES]:
        yield f"{each.transactional_id}: {each.reason}"
    if len(waiting) > MAX_NAMES:
        yield f"{len(waiting) - MAX_NAMES:,} more, see the column reason (--wide)"


def _loses(aborted: Sequence[CompleteReport]) -> tuple[str, ...]:
    """Return the records that consumers never get."""
    counts = [each.aborted_records_count for each in aborted]
    if not any(each is None or each for each in counts):
        return ()
    least = "at least " if None in counts else ""
    records = f"{least}{counted(sum(each or 0 for each in counts), 'record')}"
    names = listing([each.transactional_id for each in aborted], "transactional ids")
    short = f"{records} for read_committed consumers"
    return (f"{records} of {names} for read_committed consumers", short)


def _owner(path: str, aborted: Sequence[CompleteReport]) -> tuple[str, ...]:
    """Return that another system may have prepared a commit of an ongoing transaction."""
    if not aborted:
        return ()
    first = aborted[0]
    call = commit_call([path], first.transactional_id, first.producer_id, first.producer_epoch)
    return (f"if a checkpoint of Flink has {first.transactional_id} as prepared: {call}",)


def complete_transactions(path: str, options: CompleteOptions) -> CompleteResult:
    """End the transactions that can be ended, or only plan it.

    Raises:
        UsageError: not a log dir, or it does not know an id.
        RefusedError, AccessError: the coordinator's log is not fully readable, or as `produce`.
    """
    require_log_dir(path)
    change = options.write.change
    if not change.apply:
        return run_held(_CompletionRun(path, options, None).run)
    with appending([path], change, "txn-complete") as journal:
        return run_held(_CompletionRun(path, options, journal).run)._replace(journal=journal)


class _CompletionRun:
    def __init__(self, path: str, options: CompleteOptions, journal: AppendJournal | None) -> None:
        self._path = path
        self._options = options
        self._notes: list[str] = []
        self._now = resolve_now(options.now, [path])
        self._partitions = OpenPartitions(path, options.write, options.target, self._now, journal)
        self._before: dict[str, Metadata] = {}
        self._aborted_counts: dict[str, int | None] = {}
        self._reasons: dict[str, str] = {}
        self._next_steps: dict[str, None] = {}
        log_dir = read_log_dir(path)
        image = image_around(log_dir, options.target.metadata_dir)
        read = read_coordinator_log(log_dir, image, self._notes)
        _require_known(log_dir, options.transactional_ids, read.log.ids)
        if not read.topic.numbers:
            self._notes.append(f"{path}: no partition of {TRANSACTION_STATE_TOPIC} is here")
        self._coordinator = open_coordinator(
            read, [log_dir], image, self._partitions, clock_of(self._now), self._notes
        )

    def run(self, _: Interrupts) -> CompleteResult:
        """End the transactions, and close the partitions whatever happens."""
        error: BaseException | None = None
        try:
            for metadata, reason in self._coordinator.complete_prepared(self._is_wanted):
                self._reasons[metadata.state.transactional_id] = reason
            self._coordinator.abort_timed_out(self._is_wanted)
        except (EoctlError, OSError) as exc:
            error = exc
        error = error or self._partitions.close()
        is_applied = self._options.write.change.apply
        opened = [*self._partitions]
        self._note_ongoing()
        notes = notes_of(opened, self._now, is_applied=is_applied, more=self._notes)
        return CompleteResult(
            reports=tuple(self._report(name) for name in self._before),
            recoveries=self._partitions.recoveries,
            changes=self._partitions.changes,
            notes=tuple(dict.fromkeys(notes)),
            error=error,
            next_steps=tuple(self._next_steps),
        )

    def _is_requested(self, metadata: Metadata) -> bool:
        names = self._options.transactional_ids
        return not names or metadata.state.transactional_id in names

    def _is_wanted(self, metadata: Metadata) -> bool:
        """Return whether to end a transaction, after opening all its partitions."""
        if not self._is_requested(metadata):
            return False
        name = metadata.state.transactional_id
        self._before[name] = metadata
        reason = self._obstacle(metadata)
        if reason:
            self._reasons[name] = reason
        elif metadata.status is ONGOING:
            self._aborted_counts[name] = self._count_ongoing(metadata)
        return not reason

    def _count_ongoing(self, metadata: Metadata) -> int | None:
        """Count the records of a transaction to abort, or return None if some are unreadable."""
        total, producer_id = 0, metadata.state.producer_id
        for topic, number in metadata.state.partitions or ():
            ongoing = self._partitions.writer(topic, number).producers.ongoing
            firsts = [first for first, owner in ongoing.items() if owner == producer_id]
            if not firsts:
                continue
            path = str(Path(self._path, f"{topic}-{number}"))
            data = count_open(Partition.of(select_partition(path)), producer_id, firsts[0])
            if data is None:
                return None
            total += data.records_count
        return total

    def _obstacle(self, metadata: Metadata) -> str:
        for topic, partition in metadata.state.partitions or ():
            if not self._partitions.is_here(topic, partition):
                self._next_steps[STARTED] = None
                return f"{topic}-{partition} is not here"
            try:
                self._partitions.writer(topic, partition)
            except (RefusedError, AppendError) as exc:
                self._next_steps[exc.next_step or STARTED] = None
                return str(exc)
        return ""

    def _note_ongoing(self) -> None:
        now_ms = self._now.ms
        count = sum(
            self._is_requested(each) and each.status is ONGOING and not is_timed_out(each, now_ms)
            for each in self._coordinator
        )
        if count:
            self._notes.append(f"{count} transaction(s) go on, and are within their timeout")

    def _report(self, name: str) -> CompleteReport:
        before, after = self._before[name], self._coordinator[name]
        state, outcome = before.state, "waiting"
        if after.status in COMPLETED:
            outcome = "committed" if after.status is COMPLETE_COMMIT else "aborted"
        return CompleteReport(
            transactional_id=name,
            partition=self._coordinator.partition_for(name),
            producer_id=state.producer_id,
            producer_epoch=state.producer_epoch,
            status=before.status.label,
            start_timestamp_ms=state.start_timestamp_ms,
            timeout_ms=state.timeout_ms,
            partitions=",".join(f"{topic}-{number}" for topic, number in state.partitions or ()),
            outcome=outcome,
            reason=self._reasons.get(name, ""),
            aborted_records_count=self._aborted_counts.get(name, 0),
            applied=self._options.write.change.apply and outcome != "waiting",
        )


def _require_known(log_dir: LogDir, names: Collection[str], known: Collection[str]) -> None:
    for each in names:
        if each not in known:
            raise UsageError(
                f"{log_dir.path}: its coordinator knows no transactional id {each}",
                next_step=f"eoctl txn stats {pasted(log_dir.path)}   # counts them by status",
            )
