"""`eoctl txn commit`: end a transaction whose commit was decided elsewhere."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from eoctl import options
from eoctl.change_options import PLAN_ONLY, ChangeOptions, with_change
from eoctl.clients.coordinators.log_dir_coordinator import (
    TRANSACTION_VERSION,
    open_coordinator,
    require_home,
    require_sound,
)
from eoctl.clients.partitions.open_partition import WriteOptions
from eoctl.clients.partitions.target import require_log_dir
from eoctl.clock import format_time_ms, newest_checkpoint_ms
from eoctl.command_line import Lacking, lacking_of, require_given
from eoctl.commands.shared.changes import ChangeCommand, Planned, commit_answer
from eoctl.commands.txn.readers import Now, TxnOptions, open_context
from eoctl.commands.txn.written_copies import CopiesOptions, PartitionCopies
from eoctl.console.columns import duration_text
from eoctl.options import Output
from eoctl.output import PLACE, Columns, OutputFormat, Report, emit, line
from eoctl.parameters import advanced_option, argument, option, safety_option
from eoctl.progress import Progress
from recovery.changes.plans.plan import absolute_path, make_plan
from recovery.replay.recover_state import recovery_price
from recovery.transactions.abort import (
    CommitProgress,
    ask_coordinator,
    client_version,
    count_open,
    late_ms,
)
from recovery.transactions.unknown_ends import read_ended
from storage.dirs.discovery import discover
from storage.dirs.partition import Partition
from storage.errors import (
    EXIT_OK,
    EXIT_SKIPPED,
    AccessError,
    EoctlError,
    RefusedError,
    UsageError,
    pasted,
)
from storage.file_names import METADATA_TOPIC, TRANSACTION_STATE_TOPIC, DirState
from storage.limits import INT64_MAX
from storage.producers.producer_state import MAX_PRODUCER_EPOCH
from storage.producers.transaction_metadata import EPOCH_BUMP_VERSION

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from eoctl.clients.coordinators.log_dir_coordinator import ReadLog
    from eoctl.commands.shared.changes import Done
    from eoctl.commands.txn.readers import TxnContext
    from recovery.changes.plans.plan import Plan
    from recovery.transactions.abort import Committable, OpenData
    from recovery.transactions.open_transactions import OpenTransactionReport
    from recovery.transactions.unknown_ends import UnknownTransaction
    from storage.dirs.log_dir import LogDir
    from storage.formats.transaction_state import TransactionState

    Place = tuple[str, int]


VALUES = {"--transactional-id": "ID", "--producer-id": "N", "--producer-epoch": "N"}
ONE = "--transactional-id, --producer-id and --producer-epoch, or --from-file FILE"


@with_change()
def commit(
    paths: Annotated[
        list[str],
        argument(metavar="LOG-DIR...", help="Log dirs of all brokers of the cluster."),
    ],
    transactional_id: Annotated[
        str | None, option(metavar="ID", help="transactional.id of the transaction to commit.")
    ] = None,
    producer_id: Annotated[
        int | None,
        option(min=0, max=INT64_MAX, metavar="N", help="Its producer id, as it was prepared."),
    ] = None,
    producer_epoch: Annotated[
        int | None,
        option(min=0, max=MAX_PRODUCER_EPOCH, metavar="N", help="Its producer epoch, likewise."),
    ] = None,
    from_file: Annotated[
        str | None,
        option(metavar="FILE", help="Several, as JSON Lines, CSV, or committables of Flink."),
    ] = None,
    transaction_version: Annotated[
        int | None,
        advanced_option(
            min=0,
            max=2,
            metavar="0|1|2",
            help="transaction.version of the committing system. Flink uses 0.",
            show_default="the producer's",
        ),
    ] = None,
    force_overdue: Annotated[
        bool,
        safety_option(
            "--force-overdue", help="Commit even if its coordinator ran on after its timeout."
        ),
    ] = False,
    single_copy: options.SingleCopy = False,
    metadata_dir: options.MetadataDir = None,
    now: Now = None,
    change: ChangeOptions = PLAN_ONLY,
    output: Output = OutputFormat.TEXT,
) -> int:
    """Commit a transaction in all its partitions, as decided by a checkpoint elsewhere."""
    from eoctl.commands.shared.changes import run_change
    from eoctl.commands.txn.readers import TxnOptions

    wanted = CommitOptions(
        wanted=_wanted(transactional_id, producer_id, producer_epoch, from_file),
        context=TxnOptions(metadata_dir=metadata_dir, now=now),
        version=transaction_version,
        force_overdue=force_overdue,
        single_copy=single_copy,
    )
    return run_change(commit_change(paths, wanted), change, output)


def _wanted(
    transactional_id: str | None,
    producer_id: int | None,
    producer_epoch: int | None,
    from_file: str | None,
) -> tuple[Committable, ...]:
    from eoctl.command_line import again
    from eoctl.commands.txn.committables import read_committables, require_committable
    from recovery.transactions.abort import Committable

    given = [transactional_id, producer_id, producer_epoch]
    if from_file is not None:
        if any(each is not None for each in given):
            raise UsageError("--from-file has all of each transaction", next_step=ONE)
        return read_committables(from_file)
    missing = [name for name, each in zip(VALUES, given, strict=True) if each is None]
    if transactional_id is None or producer_id is None or producer_epoch is None:
        raise UsageError(
            f"{', '.join(missing)} not given: the system that decided the transaction knows them",
            next_step=f"{again(*(word for name in missing for word in (name, VALUES[name])))}, with"
            " what the checkpoint has; or --from-file FILE for several",
        )
    found = Committable(transactional_id, producer_id, producer_epoch)
    return (require_committable(found, "--transactional-id"),)


# -- `txn commit`: from a decision made elsewhere to a plan (permission, steps), and the undo


COMMAND = "txn-commit"
REPORTED_COUNT = 5  # reasons of a refusal
ID_COLUMNS = Columns((
    *("transactional_id", "producer_id", "producer_epoch", "status", "start_timestamp_ms"),
    *("timeout_ms", "partitions", "coordinator_partition", "coordinator_epoch"),
    *("next_producer_id", "next_producer_epoch", "outcome", "applied"),
), answers=(
    "transactional_id", "producer_id", "producer_epoch", "status", "outcome", "applied",
))  # fmt: skip
MARKER_COLUMNS = Columns((
    *("topic", "partition", "producer_id", "producer_epoch", "transactional_id", "first_offset"),
    *("last_offset", "records_count", "marker_epoch", "marker_offset"),
    *("last_stable_offset_before", "last_stable_offset_after", "applied", "path"),
), answers=(
    *PLACE, "transactional_id", "first_offset", "records_count", "marker_offset", "applied",
))  # fmt: skip


class CommitOptions(NamedTuple):
    """The command line options. `version` of transactions, None: each producer's own version."""

    wanted: tuple[Committable, ...]
    context: TxnOptions = TxnOptions()
    version: int | None = None
    force_overdue: bool = False
    single_copy: bool = False
    write: WriteOptions = WriteOptions()


class PlannedCommit(NamedTuple):
    """The plan (None: all is committed), rows without `applied`, notes, and the exit status."""

    plan: Plan | None
    ids: tuple[dict[str, Any], ...] = ()
    markers: tuple[dict[str, Any], ...] = ()
    notes: tuple[str, ...] = ()
    nothing: str = ""
    status: int = EXIT_OK


class _Wanted(NamedTuple):
    """A transaction, its state in the coordinator, and its open data, by directory."""

    committable: Committable
    state: TransactionState
    progress: CommitProgress
    opened: dict[str, OpenTransactionReport]


def arguments_of(paths: Sequence[str], options: CommitOptions) -> dict[str, Any]:
    """Return the arguments that identify an unfinished plan of the same command."""
    return {
        "log_dirs": [absolute_path(each) for each in paths],
        "transactions": [list(each) for each in options.wanted],
        "version": options.version,
    }


def plan_commit(paths: Sequence[str], options: CommitOptions) -> PlannedCommit:
    """Plan the commits. Reads only.

    Raises:
        RefusedError: a commit is not permitted. It lists every obstacle of every transaction.
        UsageError: a path is no log dir, or they are of several clusters.
        AccessError, FormatError: something cannot be read.
    """
    return _Planner(paths, options).plan()


class _Planner:
    def __init__(self, paths: Sequence[str], options: CommitOptions) -> None:
        for each in paths:
            require_log_dir(each)
        self._paths, self._options = paths, options
        self._context: TxnContext = open_context(paths, options.context)
        self._log_dirs: tuple[LogDir, ...] = self._context.found.log_dirs
        self._notes: list[str] = []
        if self._context.absent:  # no transaction lists them, or it is refused
            self._notes.append(
                f"{len(self._context.absent)} partition(s) that were in these log dirs are not "
                "there: eoctl check lists them"
            )
            self._context.is_unreadable = any(
                isinstance(each, AccessError) for each in self._context.found.problems
            )
        self._lacking: list[Lacking] = []
        self._directories = self._directories_by_place()
        self._read = self._read_coordinators()

    def _directories_by_place(self) -> dict[Place, list[str]]:
        found: dict[Place, list[str]] = {}
        for each in self._context.found.selected:
            name = each.partition.name
            if name.state is DirState.LIVE and name.topic != METADATA_TOPIC:
                found.setdefault((name.topic, name.partition), []).append(each.partition.path)
        return found

    def _read_coordinators(self) -> ReadLog:
        logs = self._context.logs
        if len(logs) != 1:
            raise UsageError(
                f"{', '.join(self._paths)}: are log dirs of several clusters",
                next_step="name the log dirs of one cluster",
            )
        image = self._context.image_for(self._log_dirs[0])
        read = require_sound(logs[0], self._log_dirs, image, self._notes)
        for each in self._options.wanted:
            require_home(read.topic, image, each.transactional_id)
        return read

    def plan(self) -> PlannedCommit:
        """Read the coordinator, find the data, then plan the writes."""
        asked = [self._ask(each) for each in self._options.wanted]
        wanted = [each for each in asked if each is not None]
        opened = [*self._context.open_transactions()] if wanted else []
        for each in wanted:
            self._find_data(each, opened)
        pending = [each for each in wanted if each.progress is not CommitProgress.DONE]
        self._notes += [_done_words(each.state) for each in wanted if each not in pending]
        if not pending:
            self._refuse()
            names = ", ".join(each.committable.transactional_id for each in wanted)
            return PlannedCommit(
                plan=None,
                ids=tuple(_id_row(each, each.state, self._read) for each in wanted),
                notes=self._all_notes(),
                nothing=f"{names}: committed already, as its coordinator has it",
                status=self._status,
            )
        return self._planned(wanted, pending)

    # -- permission

    def _no(self, name: str, why: str, first: str = "", options: Sequence[str] = ()) -> None:
        """Add an obstacle. `options` override it, if the condition in `first` is true."""
        meaning, first = (first, "") if options else ("", first)
        found = Lacking(why=f"{name}: {why}", options=tuple(options), meaning=meaning, first=first)
        self._lacking.append(found)

    def _refuse(self) -> None:
        """Refuse with all reasons, equal reasons together, and the command that would work."""
        alike: dict[Lacking, list[str]] = {}
        for each in self._lacking:
            alike.setdefault(each._replace(why=""), []).append(each.why)
        reported = [each._replace(why=_shortened(whys)) for each, whys in alike.items()]
        more = sum(map(len, [*alike.values()][REPORTED_COUNT:]))
        for number in range(REPORTED_COUNT, len(reported)):  # their options count all the same
            reported[number] = reported[number]._replace(why=f"and {more} more", first="")
        require_given("", reported)

    @property
    def _here(self) -> str:
        return " ".join(map(pasted, self._paths))

    def _ask(self, wanted: Committable) -> _Wanted | None:
        name = wanted.transactional_id
        record = self._read.log.ids.get(name)
        state = None if record is None else record.state
        if state is None:
            what = "knows no such id" if record is None else "has forgotten the id"
            self._no(
                name,
                f"its coordinator in {', '.join(map(pasted, self._paths))} {what}",
                f"name the log dirs of all brokers; eoctl txn list {self._here} has what is open",
            )
            return None
        answer = ask_coordinator(wanted, state)
        if answer.progress is None:
            self._no(
                name,
                f"producer id {wanted.producer_id}, epoch {wanted.producer_epoch}:"
                f" {answer.refusal}",
                self._history_of(name),
            )
            return None
        self._require_in_time(state)
        return _Wanted(committable=wanted, state=state, progress=answer.progress, opened={})

    def _require_in_time(self, state: TransactionState) -> None:
        """Refuse a transaction that a running coordinator would have aborted by now."""
        number = self._read.topic.home_of(state.transactional_id)
        around = [str(Path(each).parent) for each in self._state_directories(number)]
        last_ran_ms = newest_checkpoint_ms(around)
        late = 0 if last_ran_ms is None else late_ms(state, last_ran_ms)
        if late and last_ran_ms is not None and not self._options.force_overdue:
            self._no(
                state.transactional_id,
                f"its time was over {duration_text(late)} before its coordinator last ran, by"
                f" the checkpoints of {around[0]} ({format_time_ms(last_ran_ms)}): it may have"
                " been aborted, and the log lost that record",
                "the times of these files differ from the times of the broker",
                ["--force-overdue"],
            )

    def _history_of(self, name: str) -> str:
        id_option = f"--transactional-id {pasted(name)}"
        return f"eoctl txn describe {id_option} {self._here} shows its history"

    def _state_directories(self, number: int) -> list[str]:
        return self._directories.get((TRANSACTION_STATE_TOPIC, number), [])

    def _find_data(self, wanted: _Wanted, opened: Sequence[OpenTransactionReport]) -> None:
        """Find the data in each replica of each listed partition, and data beyond the list."""
        producer_id, name = wanted.committable.producer_id, wanted.committable.transactional_id
        ours = [each for each in opened if each.producer_id == producer_id]
        listed = {*(wanted.state.partitions or ())}
        if wanted.progress is CommitProgress.DONE:
            epoch = wanted.committable.producer_epoch
            listed = {(each.topic, each.partition) for each in ours if each.producer_epoch != epoch}
        for each in ours:
            wanted.opened[each.path] = each
            if (each.topic, each.partition) not in listed:
                self._no(
                    name,
                    f"{each.path}: has open data of its producer, epoch {each.producer_epoch}, and"
                    " its coordinator does not list the partition: its log has lost newer records",
                    f"put the newest copy of {TRANSACTION_STATE_TOPIC} in place first; eoctl txn "
                    f"hanging {self._here} shows more",
                )
        if wanted.progress is CommitProgress.DONE:
            return
        for topic, number in sorted(listed):
            paths = self._directories.get((topic, number), [])
            if not paths:
                self._no(
                    name,
                    f"{topic}-{number} is not here, and has data of it",
                    "name the log dirs of all brokers",
                )
            for path in paths:
                self._require_data(wanted, path)

    def _require_data(self, wanted: _Wanted, path: str) -> None:
        name, epoch = wanted.committable.transactional_id, wanted.committable.producer_epoch
        found = wanted.opened.get(path)
        if found is None:
            is_decided = wanted.progress is CommitProgress.DECIDED
            what = self._what_became(wanted, path)
            if what == "committed" and is_decided:
                return
            step = "look for the copy that has it, in the log dirs of all brokers"
            if is_decided and not what:
                step = (
                    f"{step}; or eoctl txn complete {pasted(Path(path).parent)}, which does what"
                    " its coordinator would: it is decided"
                )
            reported = f"its data there was {what} already" if what else "its data is not there"
            self._no(name, f"{path}: {reported}", step)
            return
        if found.producer_epoch != epoch:
            self._no(
                name,
                f"{path}: the open data of producer {found.producer_id} has epoch"
                f" {found.producer_epoch}, not {epoch}",
                self._history_of(name),
            )

    def _what_became(self, wanted: _Wanted, path: str) -> str:
        """Return the newest marker of this transaction as a word, for data that is not open."""
        what = ""
        selected = self._context.found.selected
        (found,) = (each for each in selected if each.partition.path == path)
        with Progress("reading", found.log_bytes) as progress:
            for each in self._context.ended_of(Partition.of(found), progress):
                if each.ends(wanted.state, wanted.committable.producer_epoch):
                    what = str(each.outcome)
        return what

    # -- steps

    def _planned(self, wanted: Sequence[_Wanted], pending: Sequence[_Wanted]) -> PlannedCommit:
        options, context = self._options, self._context
        copies = PartitionCopies(
            self._directories,
            CopiesOptions(
                metadata_dirs=self._metadata_dirs(),
                single_copy=options.single_copy,
                write=options.write,
                moment=context.moment,
            ),
        )
        self._open_all(copies, pending)
        data = self._count(pending)
        self._refuse()
        image = context.image_for(self._log_dirs[0])
        coordinator = open_coordinator(
            self._read, self._log_dirs, image, copies, lambda: context.moment.ms, self._notes
        )
        highest = coordinator.settings.transaction_version
        if (options.version or 0) > highest:
            raise RefusedError(
                f"transaction version {options.version}: the cluster's feature"
                f" {TRANSACTION_VERSION} is at {highest}"
            )
        names = {each.committable.transactional_id for each in pending}
        for each in pending:
            if each.progress is CommitProgress.ONGOING:
                coordinator.decide(
                    each.committable.transactional_id,
                    each.committable.producer,
                    is_commit=True,
                    client_version=self._version_of(each),
                )
        copies.roll_state()
        prepared = {name: coordinator[name].state for name in names}
        waiting = coordinator.complete_prepared(
            lambda metadata: metadata.state.transactional_id in names
        )
        for left in waiting:
            self._no(left.metadata.state.transactional_id, left.reason)
        for writer in copies:
            writer.require_alike()
        self._refuse()
        markers = [
            row for each in pending for row in self._marker_rows(each, prepared, copies, data)
        ]
        steps = copies.steps()
        plan = make_plan(
            COMMAND,
            arguments_of(self._paths, options),
            steps,
            self._price(pending, data, markers),
            copies.sources(steps).values(),
        )
        self._notes += copies.notes
        ids = (
            _id_row(each, coordinator[each.committable.transactional_id].state, self._read)
            for each in wanted
        )
        return PlannedCommit(
            plan=plan,
            ids=tuple(ids),
            markers=tuple(markers),
            notes=self._all_notes(),
            status=self._status,
        )

    def _version_of(self, wanted: _Wanted) -> int:
        asked = self._options.version
        return client_version(wanted.state) if asked is None else asked

    def _open_all(self, copies: PartitionCopies, pending: Sequence[_Wanted]) -> None:
        """Open everything that is written to, and collect all obstacles."""
        places: dict[Place, None] = {}
        for each in pending:
            number = self._read.topic.home_of(each.committable.transactional_id)
            places[TRANSACTION_STATE_TOPIC, number] = None
            places |= dict.fromkeys(each.state.partitions or ())
        for place in places:
            if not copies.is_here(*place):
                continue  # already reported
            try:
                copies.writer(*place)
            except EoctlError as exc:
                self._lacking.append(lacking_of(exc))

    def _count(self, pending: Sequence[_Wanted]) -> dict[tuple[str, str], OpenData]:
        """Count the data by transactional id and directory. Data that is not dense is refused."""
        counted = {}
        unknown: dict[str, tuple[UnknownTransaction, ...]] = {}
        for each in pending:
            name = each.committable.transactional_id
            for path, found in each.opened.items():
                selected = self._context.found.selected
                (place,) = (one for one in selected if one.partition.path == path)
                partition = Partition.of(place)
                data = count_open(partition, found.producer_id, found.first_offset)
                if path not in unknown:
                    unknown[path] = read_ended(partition).unknown
                for one in unknown[path]:
                    if one.producer_id == found.producer_id and one.may_be_open:
                        self._no(name, f"{path}: {one}", f"eoctl check {pasted(path)}")
                if data is None or not (data.is_dense and data.is_from_start):
                    self._no(
                        name,
                        f"{path}: a part of its data, from offset {found.first_offset} on, is"
                        " missing or cannot be read",
                        f"eoctl check {pasted(path)}",
                    )
                    continue
                counted[name, path] = data
        return counted

    def _metadata_dirs(self) -> dict[str, str | None]:
        """Return the metadata directory for each log dir: its own, or another log dir's."""
        given = self._options.context.metadata_dir
        with_own = [
            each.path
            for each in self._log_dirs
            if any(one.name.topic == METADATA_TOPIC for one in each.partitions)
        ]
        other = with_own[0] if with_own else None
        return {
            each.path: given or (None if each.path in with_own else other)
            for each in self._log_dirs
        }

    # -- messages

    def _marker_rows(
        self,
        wanted: _Wanted,
        prepared: dict[str, TransactionState],
        copies: PartitionCopies,
        data: dict[tuple[str, str], OpenData],
    ) -> Iterator[dict[str, Any]]:
        committable, name = wanted.committable, wanted.committable.transactional_id
        for topic, number in sorted(wanted.state.partitions or ()):
            writer = copies.writer(topic, number)
            marker_offset = writer.marker_offsets[committable.producer_id]
            for each in writer.copies:
                found = wanted.opened.get(each.path)
                counted = data.get((name, each.path))
                is_oldest = found is not None and found.holds_last_stable_offset
                yield {
                    "topic": topic,
                    "partition": number,
                    "producer_id": committable.producer_id,
                    "producer_epoch": committable.producer_epoch,
                    "transactional_id": name,
                    "first_offset": None if found is None else found.first_offset,
                    "last_offset": None if found is None else found.last_offset,
                    "records_count": 0 if counted is None else counted.records_count,
                    "marker_epoch": prepared[name].producer_epoch,
                    "marker_offset": marker_offset,
                    "last_stable_offset_before": found.first_offset
                    if found is not None and is_oldest
                    else None,
                    "last_stable_offset_after": each.appends.last_stable_offset,
                    "path": each.path,
                }

    def _price(
        self,
        pending: Sequence[_Wanted],
        data: dict[tuple[str, str], OpenData],
        markers: Sequence[dict[str, Any]],
    ) -> dict[str, Any]:
        """Return the data that becomes visible, once per partition, and a start's recovery."""
        first_copies: dict[tuple[str, str, int], OpenData | None] = {}
        for row in markers:
            place = row["transactional_id"], row["topic"], row["partition"]
            first_copies.setdefault(place, data.get((row["transactional_id"], row["path"])))
        counts = [each for each in first_copies.values() if each is not None]
        recoveries = [recovery_price(each) for each in self._log_dirs]
        return {
            "transactions_count": len(pending),
            "markers_count": len(first_copies),
            "committed_batches_count": sum(each.batches_count for each in counts),
            "committed_records_count": sum(each.records_count for each in counts),
            "committed_bytes": sum(each.log_bytes for each in counts),
            "recovery": {
                "partitions_count": sum(each.partitions_count for each in recoveries),
                "log_bytes": sum(each.log_bytes for each in recoveries),
            },
        }

    @property
    def _status(self) -> int:
        """The exit status: unreadable files may have data that the coordinator does not list."""
        is_whole = not (self._context.is_unreadable or self._context.is_corrupt)
        return EXIT_OK if is_whole else EXIT_SKIPPED

    def _all_notes(self) -> tuple[str, ...]:
        notes = [each for each in self._context.notes if each not in self._context.absent]
        return tuple(dict.fromkeys([*notes, *self._notes]))


def _shortened(words: Sequence[str]) -> str:
    more = len(words) - REPORTED_COUNT
    return "; ".join(words[:REPORTED_COUNT]) + (f"; and {more} more" if more > 0 else "")


def _done_words(state: TransactionState) -> str:
    """Return the time of the commit, and whether it is certainly this transaction."""
    when = format_time_ms(state.last_update_timestamp_ms)
    name = f"{state.transactional_id}: its coordinator has it as {state.status.label} since {when}"
    if client_version(state) >= EPOCH_BUMP_VERSION:
        return name
    return f"{name}: the last transaction of that epoch, which may have had others before it"


def _id_row(wanted: _Wanted, after: TransactionState, read: ReadLog) -> dict[str, Any]:
    state = wanted.state
    number = read.topic.home_of(state.transactional_id)
    place = read.log.partitions[number]
    return {
        **wanted.committable._asdict(),
        "status": state.status.label,
        "start_timestamp_ms": state.start_timestamp_ms,
        "timeout_ms": state.timeout_ms,
        "partitions": [f"{topic}-{each}" for topic, each in sorted(state.partitions or ())],
        "coordinator_partition": number,
        "coordinator_epoch": max(place.leader_epoch, 0),
        "next_producer_id": after.producer_id,
        "next_producer_epoch": after.producer_epoch,
        "outcome": "committed already" if wanted.progress is CommitProgress.DONE else "committed",
    }


# --- the command ---


def commit_change(paths: Sequence[str], options: CommitOptions) -> ChangeCommand:
    """Return the command as `run_change` needs it."""
    return ChangeCommand(
        name=COMMAND,
        selected=lambda: [
            each for each in discover(paths).selected if each.partition.name.topic != METADATA_TOPIC
        ],
        arguments=lambda: [arguments_of(paths, options)],
        plan=lambda: _planned(plan_commit(paths, options)),
    )


def _planned(found: PlannedCommit) -> Planned:
    def show(done: Done, output: OutputFormat) -> None:
        for kind, columns, rows in (
            ("commit", ID_COLUMNS, found.ids),
            ("marker", MARKER_COLUMNS, found.markers),
        ):
            if rows or kind == "commit":
                given = [{**each, "applied": done.is_applied} for each in rows]
                values = [tuple(each[name] for name in columns) for each in given]
                if kind != "commit" and output is OutputFormat.TEXT:
                    line("")
                emit(Report(kind=kind, columns=columns, rows=values), output)

    return Planned(
        plans=() if found.plan is None else (found.plan,),
        show=show,
        notes=found.notes,
        nothing=found.nothing,
        status=lambda: found.status,
        answer=lambda: None if found.plan is None else commit_answer(found.plan.price),
    )
