"""The shared parts of `eoctl txn`: options, partitions, their coordinators, the clock."""

from __future__ import annotations

import os
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from eoctl.clock import resolve_now
from eoctl.messages import UNREAD, Said, first_of, moment
from eoctl.options import given_paths
from eoctl.output import Columns
from eoctl.parameters import advanced_option, option
from eoctl.progress import Progress, log_bytes
from recovery.cluster.clusters import Clusters, find_metadata
from recovery.cluster.coordinator_log import CoordinatorLog
from recovery.cluster.placement import lost_partitions, not_understood
from recovery.rules.findings import Severity
from recovery.transactions.open_transactions import (
    OpenTransactionReport,
    TransactionVerdict,
    abort_command,
    find_open,
)
from recovery.transactions.unknown_ends import read_ended
from storage.counts import counted
from storage.dirs.discovery import discover
from storage.dirs.log_dir import read_log_dir
from storage.dirs.partition import Partition
from storage.errors import (
    EXIT_FINDINGS,
    EXIT_OK,
    EXIT_SKIPPED,
    AccessError,
    EoctlError,
    FormatError,
    RefusedError,
    UsageError,
    as_argument,
    call_text,
    pasted,
)
from storage.file_names import METADATA_TOPIC, TRANSACTION_STATE_TOPIC, DirState
from storage.formats.transaction_state import TransactionStatus
from storage.kernels.protocol import VerdictKind
from storage.limits import INT64_MAX
from storage.log.decoded_records import BatchOutcome
from storage.producers.pairs import NO_DATA
from storage.producers.producer_state import AppendError
from storage.producers.transactions import DEFAULT_MAX_TIMEOUT_MS

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from recovery.cluster.coordinator_log import IdRecord
    from recovery.replay.recover_state import RecoveredState
    from storage.dirs.acknowledged_offsets import Missing
    from storage.dirs.cluster_image import ClusterImage
    from storage.dirs.discovery import Discovery, Selected
    from storage.dirs.log_dir import LogDir
    from storage.dirs.offset_ledger import OffsetSpan
    from storage.formats.transaction_state import TransactionState
    from storage.producers.pairs import EndedBlock


CoordinatorDir = Annotated[
    list[str] | None,
    advanced_option(metavar="DIR", help="Log dir with __transaction_state. Repeatable."),
]
Now = Annotated[
    str | None,
    advanced_option(metavar="TIME|wall|dir", help="The clock for ages.", show_default="wall"),
]
MaxTimeoutMs = Annotated[
    int, advanced_option(min=1, metavar="MS", help="transaction.max.timeout.ms of the brokers.")
]
TransactionalId = Annotated[str | None, option(metavar="ID", help="Show this transactional.id.")]
ProducerId = Annotated[
    int | None, option(min=0, max=INT64_MAX, metavar="N", help="Show this producer id.")
]


def context_of(
    paths: list[str] | None,
    server_properties: str | None,
    topics: list[str] | None,
    coordinator_dir: list[str] | None,
    metadata_dir: str | None,
    now: str | None,
    max_timeout_ms: int,
) -> TxnContext:
    """Open partitions, and the coordinators that know their transactions.

    Raises:
        UsageError: no path.
    """
    wanted = given_paths(paths, server_properties, topics)
    if not wanted:
        raise UsageError("no PATH given", next_step="eoctl txn list PATH...")
    dirs = tuple(coordinator_dir or ())
    return open_context(
        wanted,
        TxnOptions(
            coordinator_dirs=dirs, metadata_dir=metadata_dir, now=now, max_timeout_ms=max_timeout_ms
        ),
    )


# -- shared by the readers of `eoctl txn`: partitions, their cluster's coordinators, the clock


REPORTED_COUNT = 3  # of hanging transactions, in lines
HOW_TO_END = (
    "offline_command is for stopped brokers. It shows its plan, and --apply runs it."
    " abort_command is for running brokers"
)
VERIFIED = (
    "verified: headers and checksums of the batches that a broker replays at its next start, "
    "records of __transaction_state; records of other topics were not decompressed"
)


class TxnOptions(NamedTuple):
    """The command line options on the cluster of the partitions.

    `coordinator_dirs` are log dirs with `__transaction_state`, in addition to the partitions' log
    dirs.
    """

    coordinator_dirs: tuple[str, ...] = ()
    metadata_dir: str | None = None
    now: str | None = None
    max_timeout_ms: int = DEFAULT_MAX_TIMEOUT_MS


class EndedTransaction(NamedTuple):
    """A transaction that has ended. `last_offset` is its marker's, as in `.txnindex`.

    If the marker may be damaged or absent, it is the first offset where it may have been.
    """

    topic: str
    partition: int
    producer_id: int
    marker_epoch: int
    transactional_id: str | None
    first_offset: int
    last_offset: int
    timestamp_ms: int
    outcome: BatchOutcome

    def ends(self, state: TransactionState, epoch: int) -> bool:
        """Return whether it is the newest transaction of an id, which began with `epoch`."""
        if self.producer_id != state.producer_id or self.timestamp_ms < state.start_timestamp_ms:
            return False
        from recovery.transactions.abort import client_version
        from storage.producers.transaction_metadata import EPOCH_BUMP_VERSION

        may_bump = client_version(state) >= EPOCH_BUMP_VERSION
        return self.marker_epoch in ({epoch, epoch + 1} if may_bump else {epoch})


class TxnContext:
    """The given partitions, with the state of their coordinators.

    Attributes:
        found: the directories of the PATHs.
        absent: partitions that existed and are missing, as sentences.
        notes: sentences for people, which grow as partitions are read.
    """

    def __init__(
        self,
        found: Discovery,
        options: TxnOptions,
        on_record: Callable[[IdRecord], None] | None = None,
    ) -> None:
        """Read the coordinators' logs before any partition is read, see `find_open`.

        `on_record` is called with each of their records.
        """
        self._on_record = on_record
        self.found = found
        self.options = options
        self.is_corrupt = any(isinstance(each, FormatError) for each in found.problems)
        self.is_unreadable = any(isinstance(each, AccessError) for each in found.problems)
        given = [read_log_dir(each) for each in options.coordinator_dirs]
        known = {each.path for each in given}
        self._log_dirs = [*given, *(each for each in found.log_dirs if each.path not in known)]
        metadata = None if options.metadata_dir is None else find_metadata(options.metadata_dir)
        self._clusters = Clusters(self._log_dirs, metadata)
        self.moment = resolve_now(
            options.now,
            [each.path for each in found.log_dirs],
        )
        self.absent = [*map(str, lost_partitions(found.whole, self._clusters))]
        doubts = not_understood(found.whole, self._clusters)
        self.is_unreadable |= bool(self.absent or doubts)
        self.notes = [VERIFIED, self.moment.describe(), *map(str, found.problems), *self.absent]
        self.notes += doubts
        self._logs: dict[str | None, CoordinatorLog] = {}
        self._walked: dict[str, dict[int, OffsetSpan]] = {}  # of partitions, by path
        self._damaged: dict[str, tuple[Missing, ...]] = {}
        for log_dir in self._log_dirs:
            if log_dir.lock.is_held:
                self.notes.append(f"{log_dir.path}: a broker is running on it: this may change")
            self._read_coordinators(log_dir)

    def _read_coordinators(self, log_dir: LogDir) -> None:
        cluster = _cluster_of(log_dir)
        if cluster in self._logs:
            return
        of_cluster = [each for each in self._log_dirs if _cluster_of(each) == cluster]
        image = self._clusters.image_for(log_dir)
        log = CoordinatorLog(of_cluster, image, self._on_record)
        self._logs[cluster] = log
        self._report(log.problems)
        if log.lagging:
            names = ", ".join(f"{TRANSACTION_STATE_TOPIC}-{each}" for each in log.lagging[:5])
            self.notes.append(
                f"{len(log.lagging)} partitions of the coordinators have replicas that were not"
                f" given, and that may know more: {names}{', ...' if len(log.lagging) > 5 else ''}"
            )
        if log.misplaced_count:
            self.notes.append(
                f"{log.misplaced_count} records of {TRANSACTION_STATE_TOPIC} are in a partition"
                " that their id does not belong to: no coordinator reads them"
            )

    def coordinators(self, log_dir: LogDir | None) -> CoordinatorLog | None:
        """Return the state of the coordinators of a log dir's cluster."""
        if log_dir is None or log_dir.meta is None:  # copied out of its log dir
            return next(iter(self._logs.values())) if len(self._logs) == 1 else None
        log = self._logs.get(_cluster_of(log_dir))
        if (log is None or not log.partitions) and None in self._logs:
            return self._logs[None]  # coordinator directories that were copied out of theirs
        return log

    def image_for(self, log_dir: LogDir) -> ClusterImage | None:
        """Return the state of a log dir's cluster, or None if unknown."""
        return self._clusters.image_for(log_dir)

    @property
    def logs(self) -> Sequence[CoordinatorLog]:
        """The state of all coordinators, a value for each cluster."""
        return [*self._logs.values()]

    @property
    def status(self) -> int:
        """The exit status by the parts read so far."""
        if self.is_corrupt:
            return EXIT_FINDINGS
        return EXIT_SKIPPED if self.is_unreadable else EXIT_OK

    # --- partitions

    def each_partition(
        self,
        read: Callable[[Partition, Progress], Iterator[Any]],
        only: Collection[str] | None = None,
    ) -> Iterator[Any]:
        """Yield the results of `read` for each live partition, and note unreadable parts.

        `only`: the directories to read.
        """
        with Progress("reading", lambda: log_bytes(self.found.selected)) as progress:
            for selected in self.found.selected:
                name = selected.partition.name
                if name.state is not DirState.LIVE or name.topic == METADATA_TOPIC:
                    continue
                if only is not None and selected.partition.path not in only:
                    continue
                yield from self._of_partition(selected, read, progress)

    def _of_partition(
        self,
        selected: Selected,
        read: Callable[[Partition, Progress], Iterator[Any]],
        progress: Progress,
    ) -> Iterator[Any]:
        path = selected.partition.path
        try:
            partition = Partition.of(selected)
            yield from read(partition, progress)
        except (AccessError, FormatError, AppendError, RefusedError) as exc:
            if len(self.found.selected) == 1:
                raise
            self._report([exc], path)
            return
        self._report(partition.problems)
        self.notes += partition.notes
        walked, damaged = self._walked.pop(path, {}), self._damaged.pop(path, ())
        self.is_corrupt |= bool(damaged)
        reported = [f"{path}: {each.offsets} lie in damaged bytes" for each in damaged]
        self.notes += first_of(reported, "damaged places there")
        for missing in partition.not_given(None, damaged, walked=walked):
            self.is_unreadable = True
            note = f"{path}: {missing}"
            self.notes += [note] if note not in self.notes else []

    def _report(self, problems: Sequence[EoctlError], path: str = "") -> None:
        for each in problems:
            self.is_unreadable |= isinstance(each, AccessError)
            self.is_corrupt |= not isinstance(each, AccessError)
        reported = map(str, problems)
        self.notes += first_of(
            [each if path in each else f"{path}: {each}" for each in reported], "problems there"
        )

    def open_of(self, partition: Partition) -> tuple[list[OpenTransactionReport], RecoveredState]:
        """Find the open transactions of a partition. Raises as `find_open`."""
        found, state = find_open(
            partition,
            self.coordinators(partition.log_dir),
            now_ms=self.moment.ms,
            max_timeout_ms=self.options.max_timeout_ms,
        )
        self._walked.setdefault(partition.path, {}).update(state.spans)
        for path, verdict in state.damage.items():
            if verdict.kind.is_damage:
                self.is_corrupt |= verdict.kind is not VerdictKind.UNREADABLE
                self.is_unreadable |= verdict.kind is VerdictKind.UNREADABLE
                self.notes.append(
                    f"{path}: {verdict.kind} at position {verdict.start_pos}: {verdict.reason};"
                    " the batches after it were not read"
                )
        return found, state

    def open_transactions(self) -> Iterator[OpenTransactionReport]:
        """Find the open transactions of all partitions."""

        def read(partition: Partition, progress: Progress) -> Iterator[OpenTransactionReport]:
            found, _ = self.open_of(partition)
            progress.advance(partition.files.log_bytes)
            yield from found

        return self.each_partition(read)

    def ended_of(self, partition: Partition, progress: Progress) -> Iterator[EndedTransaction]:
        """Yield the transactions of a partition that have ended."""
        log = self.coordinators(partition.log_dir)
        for block in self.read_ended(partition, progress):
            columns = (each.tolist() for each in block)
            for producer_id, epoch, first, end, timestamp_ms, is_aborted, is_unknown in zip(
                *columns, strict=True
            ):
                if first == NO_DATA:
                    continue
                owner = None if log is None else log.owner_of(producer_id)
                outcome = BatchOutcome.ABORTED if is_aborted else BatchOutcome.COMMITTED
                yield EndedTransaction(
                    topic=partition.topic,
                    partition=partition.partition,
                    producer_id=producer_id,
                    marker_epoch=epoch,
                    transactional_id=None if owner is None else owner.transactional_id,
                    first_offset=first,
                    last_offset=end,
                    timestamp_ms=timestamp_ms,
                    outcome=BatchOutcome.UNKNOWN if is_unknown else outcome,
                )

    def read_ended(
        self, partition: Partition, progress: Progress | None = None
    ) -> list[EndedBlock]:
        """Read the ends of the transactions of a partition, and note unknown outcomes."""
        found = read_ended(partition, None if progress is None else progress.advance)
        self._walked.setdefault(partition.path, {}).update(found.spans)
        self._damaged[partition.path] = found.damaged
        for each in found.unknown:
            self.is_corrupt = True
            self.notes.append(f"{partition.path}: {each}")
        return found.blocks


def open_context(paths: Sequence[str], options: TxnOptions) -> TxnContext:
    """Find the partitions behind the PATHs. Raises as `discover` and `find_metadata`."""
    return TxnContext(discover(paths), options)


def _cluster_of(log_dir: LogDir) -> str | None:
    return None if log_dir.meta is None else log_dir.meta.cluster_id


# --- rows -----------------------------------------------------------------------------------------

PLACE = ("topic", "partition", "producer_id", "producer_epoch", "transactional_id")
LIST_COLUMNS = Columns((
    *(*PLACE, "first_offset", "last_offset", "state", "last_timestamp_ms", "verdict"),
    "path",
), answers=(
    "topic", "partition", "producer_id", "transactional_id", "first_offset", "state", "verdict",
))  # fmt: skip
HANGING_COLUMNS = Columns((
    *(*PLACE, "first_offset", "last_offset", "age_ms", "verdict"),
    *("coordinator_partition", "coordinator_status", "coordinator_epoch"),
    *("holds_last_stable_offset", "held_offsets_count", "reason", "abort_command"),
    *("offline_command", "last_timestamp_ms", "path"),
), answers=(
    "topic", "partition", "transactional_id", "verdict", "last_timestamp_ms", "held_offsets_count",
    "first_offset",
), noun="hanging transaction")  # fmt: skip


def list_rows(
    context: TxnContext,
    *,
    is_all: bool = False,
    is_wanted: Callable[[OpenTransactionReport | EndedTransaction], bool] = lambda _: True,
) -> Iterator[tuple[Any, ...]]:
    """Yield a row of LIST_COLUMNS for each open transaction, and for each that has ended."""

    def read(partition: Partition, progress: Progress) -> Iterator[tuple[Any, ...]]:
        opened, _ = context.open_of(partition)
        if is_all:
            for ended in context.ended_of(partition, progress):
                if is_wanted(ended):
                    values = str(ended.outcome), known(ended.timestamp_ms), None, partition.path
                    yield (*_place(ended, ended.marker_epoch), ended.last_offset, *values)
        else:
            progress.advance(partition.files.log_bytes)
        for each in opened:
            if is_wanted(each):
                state = "open", known(each.last_timestamp_ms), str(each.verdict)
                place = _place(each, each.producer_epoch)
                yield (*place, known(each.last_offset), *state, partition.path)

    return context.each_partition(read)


SHOWN_PER_PARTITION = 3  # open transactions of a partition, on a terminal


def few_of_each(
    rows: Sequence[tuple[Any, ...]], columns: Columns = LIST_COLUMNS
) -> tuple[list[tuple[Any, ...]], list[str]]:
    """Return the oldest open transactions of each partition, and notes on the others."""
    by_partition: dict[tuple[str, int], list[tuple[Any, ...]]] = {}
    for row in rows:
        by_partition.setdefault(row[:2], []).append(row)
    at = columns.index("first_offset")
    shown, notes = [], []
    for (topic, partition), found in by_partition.items():
        found.sort(key=lambda row: row[at])
        shown += found[:SHOWN_PER_PARTITION]
        if (left := len(found) - SHOWN_PER_PARTITION) > 0:
            notes.append(f"{left:,} more in {topic}-{partition}: -o jsonl prints all")
    return shown, notes


def open_lines(
    rows: Iterable[tuple[Any, ...]], paths: Sequence[str], *, is_whole: bool
) -> Iterator[Said]:
    """Yield the number of open transactions, what they block, and the next command.

    `is_whole`: the logs were read completely.
    """
    unread = "" if is_whole else UNREAD
    opened: dict[str, list[dict[str, Any]]] = {}
    for each in rows:
        row = dict(zip(LIST_COLUMNS, each, strict=True))
        if row["state"] == "open":
            opened.setdefault(f"{row['topic']}-{row['partition']}", []).append(row)
    count = sum(map(len, opened.values()))
    if not count:
        yield Said("Open", f"no transaction{unread}", 0 if is_whole else Severity.WARNING.rank)
        return
    late = sum(
        row["verdict"] in (TransactionVerdict.HANGING, TransactionVerdict.OVERDUE)
        for found in opened.values()
        for row in found
    )
    what = f"{counted(count, 'transaction')} in {counted(len(opened), 'partition')}"
    rank = Severity.WARNING.rank if late or unread else 0
    yield Said("Open", f"{what}, {late:,} of them late{unread}" if late else what + unread, rank)
    worst = sorted(opened, key=lambda name: -len(opened[name]))
    for name in worst[:REPORTED_COUNT]:
        first = min(opened[name], key=lambda row: row["first_offset"])
        since = first["last_timestamp_ms"]
        when = "" if since is None else f" since {moment(since, is_short=True)}"
        offset, number = first["first_offset"], len(opened[name])
        text = f"{name}: LSO stays at {offset}, {number:,} open{when}"
        yield Said("Blocked", text, rank)
    if len(worst) > REPORTED_COUNT:
        yield Said("", f"and {counted(len(worst) - REPORTED_COUNT, 'more partition')}")
    if late:
        yield Said("Next", f"eoctl txn hanging {' '.join(map(pasted, paths))}")


def _place(found: OpenTransactionReport | EndedTransaction, epoch: int) -> tuple[Any, ...]:
    """Return the columns of PLACE, and the first offset."""
    ids = found.topic, found.partition, found.producer_id
    return (*ids, epoch, found.transactional_id, found.first_offset)


def hanging_row(context: TxnContext, found: OpenTransactionReport) -> tuple[Any, ...]:
    """Return a row of HANGING_COLUMNS."""
    return (
        *_place(found, found.producer_epoch),
        known(found.last_offset),
        found.age_ms,
        str(found.verdict),
        found.coordinator_partition,
        found.coordinator_status,
        known(found.coordinator_epoch),
        found.holds_last_stable_offset,
        found.held_offsets_count,
        found.reason,
        abort_command(found),
        offline_command(found, context.options),
        known(found.last_timestamp_ms),
        found.path,
    )


def hanging_lines(context: TxnContext, found: Sequence[OpenTransactionReport]) -> Iterator[Said]:
    """Yield hanging transactions, oldest first, with their age and how to end them."""
    if not found:
        yield Said("Late", "no transaction")
        return
    oldest = sorted(found, key=lambda each: (each.last_timestamp_ms, each.path))
    partitions = {(each.topic, each.partition) for each in found}
    what = f"{counted(len(found), 'transaction')} in {counted(len(partitions), 'partition')}"
    yield Said("Late", what, Severity.WARNING.rank)
    for each in oldest[:REPORTED_COUNT]:
        since = "at an unknown time"
        if each.last_timestamp_ms >= 0:
            since = f"since {moment(each.last_timestamp_ms)}"
        whose = each.transactional_id or f"producer {each.producer_id}"
        place = f"{each.topic}-{each.partition}"
        text = f"{place}: {whose}, {each.verdict} {since}, {each.held_offsets_count:,} offsets"
        yield Said("Blocked", text, Severity.WARNING.rank)
        call = offline_command(each, context.options)
        yield Said("", call or f"not to be ended from here: {each.reason}")
    if len(oldest) > REPORTED_COUNT:
        yield Said("", f"and {len(oldest) - REPORTED_COUNT:,} more")
        if len(context.found.log_dirs) == 1:
            log_dir = as_argument(context.found.log_dirs[0].path)
            yield Said("Next", f"eoctl txn abort {log_dir} --all-overdue")


UNDECIDED = frozenset({TransactionStatus.ONGOING.label, TransactionStatus.PREPARE_COMMIT.label})


def how_to_commit(
    context: TxnContext,
    found: Iterable[tuple[str | None, int, int, str | None]],
    aborted: Mapping[str, str] = MappingProxyType({}),
) -> Iterator[str]:
    """Yield the command for a commit decided elsewhere, if any of these may be such a transaction.

    Args:
        context: the partitions and coordinators.
        found: transactional id, producer id, producer epoch, status by the coordinator.
        aborted: by id, a partition with the ABORT marker of this transaction.
    """
    for name, producer_id, producer_epoch, status in found:
        if name is not None and status in UNDECIDED:
            if name in aborted:
                yield (
                    f"{name} is {status} by its coordinator, but {aborted[name]} has its ABORT "
                    "marker: eoctl cannot commit it any more"
                )
                continue
            log_dirs = [each.path for each in context.found.log_dirs]
            call = commit_call(log_dirs, name, producer_id, producer_epoch)
            yield (
                "if another system has the transaction as prepared (a Flink checkpoint, for"
                f" example), commit it with the ids from there: {call}"
            )
            return


def commit_call(log_dirs: Iterable[str], name: str, producer_id: int, producer_epoch: int) -> str:
    """Return the command that commits a transaction whose commit is decided elsewhere."""
    ids = ["--producer-id", str(producer_id), "--producer-epoch", str(producer_epoch)]
    call = ["eoctl", "txn", "commit", *map(as_argument, log_dirs), "--transactional-id", name]
    return call_text([*call, *ids])


def offline_command(found: OpenTransactionReport, options: TxnOptions) -> str | None:
    """Return the command that ends a transaction, with the clock and directories of this run.

    If the coordinator lists it and the coordinator's partition is in the same log dir, it is
    completed. Then all its partitions and the id get the same outcome. A transaction that no
    coordinator will end is aborted here. None: its outcome is still open.
    """
    is_listed = found.verdict in {TransactionVerdict.ONGOING, TransactionVerdict.OVERDUE}
    if is_listed and found.transactional_id is not None:
        log_dir = os.path.dirname(found.path) or "."  # noqa: PTH120 - as it was given
        name = f"{TRANSACTION_STATE_TOPIC}-{found.coordinator_partition}"
        if Path(log_dir, name).is_dir():
            call = ["eoctl", "txn", "complete", as_argument(log_dir), "--transactional-id"]
            return call_text([*call, found.transactional_id, *_metadata(options), *_now(options)])
    is_decided = found.coordinator_status == TransactionStatus.PREPARE_COMMIT.label
    if found.verdict is TransactionVerdict.HANGING or (
        found.verdict is TransactionVerdict.OVERDUE and not is_decided
    ):
        call = [
            "eoctl",
            "txn",
            "abort",
            as_argument(found.path),
            "--producer-id",
            str(found.producer_id),
        ]
        if found.verdict is TransactionVerdict.OVERDUE:
            call.append("--force-overdue")
        for each in options.coordinator_dirs:
            call += ["--coordinator-dir", each]
        if options.max_timeout_ms != DEFAULT_MAX_TIMEOUT_MS:
            call += ["--transaction-max-timeout-ms", str(options.max_timeout_ms)]
        return call_text([*call, *_metadata(options), *_now(options)])
    return None


def _metadata(options: TxnOptions) -> list[str]:
    return [] if options.metadata_dir is None else ["--metadata-dir", options.metadata_dir]


def _now(options: TxnOptions) -> list[str]:
    return [] if options.now is None else ["--now", options.now]


def known(value: int) -> int | None:
    """Return None for a missing value."""
    return None if value < 0 else value
