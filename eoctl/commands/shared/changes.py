"""The handling of plans by every command: lock, resume, plan, apply, and the messages."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from eoctl import command_line
from eoctl.console.columns import size_text
from eoctl.messages import (
    LABEL_WIDTH,
    NO_UNDO,
    Line,
    Said,
    answer_width,
    fitting,
    is_for_people,
    report_answer,
    said_line,
)
from eoctl.output import OutputFormat, error, line, message
from eoctl.plan_actions import (
    apply_one,
    how_to_compare,
    how_to_undo,
    how_to_undo_all,
    save_plan,
    show_plan,
)
from recovery.changes.apply import begun_log_dirs, resume, writing
from recovery.changes.journals.backups import SpentTargetError, stating
from recovery.changes.journals.journal import Status
from recovery.changes.journals.losses import lost_by_cut
from recovery.changes.plans.plan import absolute_path
from recovery.rules.findings import Severity
from storage.counts import agreeing, counted
from storage.errors import EXIT_OK, EoctlError, UsageError, call_text, pasted
from storage.file_names import METADATA_TOPIC, FileKind, classify
from storage.files import fsio

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

    from eoctl.change_options import ChangeOptions
    from recovery.changes.journals.backups import Applied
    from recovery.changes.journals.journal import Journal, JournalStep
    from recovery.changes.plans.plan import Plan
    from storage.dirs.discovery import Selected


# -- a plan in four lines (Plan, Loses, Undo, Next), an applied change in three


NO_RECORD = "no record: only files that are derived from the log"


class PlanAnswer(NamedTuple):
    """The effect of a plan and its losses, each as texts, longest first.

    Attributes:
        verbs: the verb of a plan, and the verb after it was applied.
        does: the text after the verb.
        loses: records, acknowledged records, transactions.
        is_loss: some of the lost data was in the log.
        blocks: the transactions that block read_committed afterwards, empty if none.
        frees: the freed room of a plan, and after it was applied. None: the plan is not about room.
        also: lines of a plan after its losses.
    """

    verbs: tuple[str, str]
    does: tuple[str, ...]
    loses: tuple[str, ...]
    is_loss: bool = False
    blocks: tuple[str, ...] = ()
    frees: tuple[str, str] | None = None
    also: tuple[Said, ...] = ()


def plan_lines(
    answer: PlanAnswer | None,
    plans: Sequence[Plan],
    change: ChangeOptions,
    nothing: str,
    width: int,
) -> Iterator[Line]:
    """Yield the lines of a plan that was not applied."""
    room = width - LABEL_WIDTH
    if not plans:
        if nothing:
            yield said_line(Said("Plan", fitting([f"nothing: {nothing}"], room)))
        return
    if answer is not None:
        changed = {step.path for each in plans for step in each.steps}
        files = counted(len(changed), "file")
        changes = agreeing(len(changed), "changes", "change")
        does = [f"{answer.verbs[0]} {each}" for each in answer.does]
        yield said_line(Said("Plan", fitting([f"{does[0]}; {files} {changes}", *does], room)))
        if answer.frees is not None:
            yield said_line(Said("Frees", answer.frees[0]))
        yield _loses("Loses", answer, room)
        yield from _blocks(answer, room)
        yield from map(said_line, answer.also)
    call_of_undo = "eoctl undo" if len(plans) == 1 else "eoctl undo --with-later"
    undo = f"yes: backups are made first, {call_of_undo} puts every byte back"
    yield said_line(Said("Undo", NO_UNDO if change.no_backup else undo))
    saved = change.save_plan
    command = (
        command_line.again("--apply") if saved is None else call_text(["eoctl", "apply", saved])
    )
    yield said_line(Said("Next", command))


def done_lines(
    answer: PlanAnswer | None,
    applied: Sequence[Applied],
    *,
    with_later: bool,
    width: int,
) -> Iterator[Line]:
    """Yield what was applied, and how to undo it."""
    if not applied:
        return
    room = width - LABEL_WIDTH
    if answer is not None:
        yield said_line(
            Said("Done", fitting([f"{answer.verbs[1]} {e}" for e in answer.does], room))
        )
        if answer.frees is not None:
            yield said_line(Said("Freed", answer.frees[1]))
        yield _loses("Lost", answer, room)
        yield from _blocks(answer, room)
    for each in applied:
        found = each.journal
        later = ["--with-later"] if with_later and not each.was_done else []
        command = call_text(["eoctl", "undo", *later, found.path])
        if not found.has_backup:
            command = "no: it was applied without a backup"
        yield said_line(Said("Undo", command))


def applied_lines(applied: Applied, price: dict[str, Any], width: int) -> Iterator[Line]:
    """Yield the result of a saved plan or of an interrupted run, and how to undo it."""
    found = applied.journal
    files = counted(len(found.steps), "file")
    before = ", applied before" if applied.was_done else ""
    yield said_line(Said("Done", f"{found.command}: {files} changed{before}"))
    if "cut_start_offset" in price:
        answer = cut_answer("", price, path=found.arguments.get("partition", ""))
        room = width - LABEL_WIDTH
        yield _loses("Lost", answer, room)
        yield from _blocks(answer, room)
    if found.status is Status.KEPT:
        undo = "no: it was gone on with since"
    elif not found.has_backup:
        undo = "no: it was applied without a backup"
    else:
        undo = call_text(["eoctl", "undo", found.path])
    yield said_line(Said("Undo", undo))


def undone_lines(journals: Sequence[Journal], words: Sequence[str] = ()) -> Iterator[Line]:
    """Yield what was undone, or could be with the `words` of a command line."""
    for each in journals:
        files = counted(len(each.steps), "file")
        if words:
            yield said_line(Said("Undo", f"{each.command} can be undone: {files}"))
        else:
            yield said_line(Said("Done", f"undid {each.command}, restored {files}"))
    if words:
        yield said_line(Said("Next", call_text(["eoctl", "undo", *words])))


def _loses(label: str, answer: PlanAnswer, room: int) -> Line:
    rank = Severity.ERROR if answer.is_loss else Severity.NOTE
    return said_line(Said(label, fitting(answer.loses, room), rank.rank))


def _blocks(answer: PlanAnswer, room: int) -> Iterator[Line]:
    """Yield what blocks afterwards. Its command is never shortened, ready to paste."""
    if answer.blocks:
        text = next((each for each in answer.blocks if len(each) <= room), answer.blocks[0])
        yield said_line(Said("Blocked", text, Severity.WARNING.rank))


# --- the commands ---------------------------------------------------------------------------------


def cut_answer(name: str, price: dict[str, Any], *, path: str, then: str = "") -> PlanAnswer:
    """Return the answer of a truncation, or of a rejoin's truncation, by its price.

    `path` is the partition, for the command that ends open transactions.
    """
    start, end = price["cut_start_offset"], price["cut_end_offset"]
    does = f"{name} from {end} to {start}"
    records_count = price["records_count"]
    lost = lost_by_cut(price).text
    if records_count is None:
        lost = f"up to {lost}; something there cannot be read"
    changed = price["transactions_count"]
    transactions = ["its transactions are unknown"] if changed is None else _transactions(changed)
    changes = [f"{counted(sum(changed.values()), 'transaction')} changed"] if changed else []
    return PlanAnswer(
        verbs=("truncate", "truncated"),
        does=(f"{does}{then}", does),
        loses=(
            "; ".join([lost, *transactions]),
            "; ".join([lost, *changes]),
            lost,
        ),
        is_loss=records_count != 0,
        blocks=_blocked(price, path),
    )


def _blocked(price: dict[str, Any], path: str) -> tuple[str, ...]:
    """Return where read_committed stops for transactions that lose their marker and keep data."""
    count = (price["transactions_count"] or {}).get("reopened", 0)
    reopened = [each for each in price["transactions"] or () if each["outcome"] == "reopened"]
    if not count or not reopened:
        return ()
    first = min(reopened, key=lambda each: each["first_offset"])
    stops = f"read_committed stops at {first['first_offset']} of {price['cut_start_offset']}"
    until = f"{counted(count, 'transaction')} {agreeing(count, 'is', 'are')} ended"
    call = ["eoctl", "txn", "abort", path, "--producer-id", str(first["producer_id"])]
    return (f"{stops} until {until}: {call_text(call)}",)


def _transactions(counts: dict[str, int]) -> list[str]:
    words = {
        "removed": "{} removed",
        "reopened": "{} left without a marker",
        "shortened": "{} shortened",
    }
    parts = [text.format(counts[name]) for name, text in words.items() if counts.get(name)]
    return [f"transactions: {', '.join(parts)}"] if parts else []


def abort_answer(
    found: Sequence[tuple[Sequence[dict[str, Any]], dict[str, Any]]],
) -> PlanAnswer:
    """Return the answer for ended transactions, from the rows and the price of each plan."""
    rows = [row for rows, _ in found for row in rows]
    counts = [price["aborted_records_count"] for _, price in found]
    cut_bytes = sum(price.get("cut_bytes") or 0 for _, price in found)
    torn = f"; {size_text(cut_bytes)} behind the last whole batch" if cut_bytes else ""
    least = "at least " if None in counts else ""
    records = f"{least}{counted(sum(each or 0 for each in counts), 'record')} become aborted"
    places = {(row["topic"], row["partition"]): row["last_stable_offset_after"] for row in rows}
    does: tuple[str, ...]
    loses: tuple[str, ...]
    if len(places) == 1:
        ((topic, partition), after), *_ = places.items()
        name = f"{topic}-{partition}"
        ids = {row["producer_id"] for row in rows}
        what = "an ABORT marker" if len(ids) == 1 else f"{len(ids):,} ABORT markers"
        of = f" of producer {rows[0]['producer_id']}" if len(ids) == 1 else ""
        does = (
            f"{what}{of} to {name} at {rows[0]['marker_offset']}", f"{what} to {name}",
        )  # fmt: skip
        loses = (f"{records}; read_committed goes on to {after}{torn}", f"{records}{torn}")
    else:
        does = (f"{len(rows):,} ABORT markers to {counted(len(places), 'partition')}",)
        loses = (f"{records}{torn}",)
    return PlanAnswer(
        verbs=("write", "wrote"),
        does=does,
        loses=loses,
        is_loss=bool(cut_bytes or any(each != 0 for each in counts)),
    )


def commit_answer(price: dict[str, Any]) -> PlanAnswer:
    """Return the answer of a commit from outside."""
    count = price["transactions_count"]
    markers = counted(price["markers_count"], "COMMIT marker")
    records = counted(price["committed_records_count"], "record")
    return PlanAnswer(
        verbs=("commit", "committed"),
        does=(
            f"{counted(count, 'transaction')}: {markers}, and what its coordinator writes"
            if count == 1
            else f"{counted(count, 'transaction')}: {markers}, and what their coordinators write",
            f"{counted(count, 'transaction')}: {markers}",
        ),
        loses=(
            f"no record; {records} come to read_committed consumers",
            "no record",
        ),
    )


def compared_lines(
    others_count: int, files_count: int, instead: Sequence[str] | None, *, is_changeable: bool
) -> Iterator[Line]:
    """Yield how derived files compare with the log, and the next command.

    Args:
        others_count: the number of files that differ.
        files_count: the number of all files.
        instead: the first step if a log is damaged, in words.
        is_changeable: a partition other than `__cluster_metadata` differs.
    """
    files = counted(files_count, "derived file")
    equal = f"{files_count - others_count:,} of {files} equal what the log says"
    rank = Severity.WARNING if others_count else Severity.NOTE
    yield said_line(Said("Found", f"{equal}, {others_count:,} do not", rank.rank))
    if instead is not None:
        yield said_line(Said("Next", f"{call_text(instead)}   # the log is damaged"))
    elif others_count and not is_changeable:
        yield said_line(Said("Next", f"nothing to apply: {METADATA_TOPIC} is never changed"))
    elif others_count:
        yield said_line(Said("Loses", NO_RECORD))
        yield said_line(Said("Next", command_line.again("--apply")))
    yield Line("")


def derived_answer(files_count: int, partitions_count: int) -> PlanAnswer:
    """Return the answer of a rebuild."""
    files, partitions = counted(files_count, "file"), counted(partitions_count, "partition")
    return PlanAnswer(
        verbs=("derive", "derived"),
        does=(f"{files} of {partitions} from the log", files),
        loses=(NO_RECORD,),
    )


# -- a command with a plan: lock, resume, plan, show or save, apply, print
#
# Without --apply: plan, save the plan if requested, show it.
#
# With --apply: lock, complete an interrupted run of the same command, plan, apply one plan after
# the other. It plans again because a broker may have run since the plan was shown.
#
# The undo of a journal is printed as soon as it is applied, before any row. The reader of the rows
# may close the pipe, and the next log dir may fail.


@dataclass(frozen=True, kw_only=True)
class Done:
    """The completed part of a change, for its rows.

    Attributes:
        is_applied: any change was applied, even if by an interrupted run that this run completed.
        resumed: the journals of the interrupted run.
    """

    is_applied: bool = False
    resumed: tuple[Applied, ...] = ()

    def was_resumed(self, path: str) -> bool:
        """Return whether the completed run changed a file, or any file in a directory."""
        wanted = Path(absolute_path(path))
        steps = (Path(step.path) for each in self.resumed for step in each.journal.steps)
        return any(each == wanted or wanted in each.parents for each in steps)


@dataclass(frozen=True, kw_only=True)
class Planned:
    """The result of a command's planning.

    Attributes:
        plans: each is applied before the next is made, with at least one step each.
        show: prints the rows.
        notes: sentences for people, complete after all plans are made and the rows are shown.
        nothing: the reason for no plan, such as "there is nothing to truncate". "" if notes say it.
        errors: errors of parts that could not be read.
        status: the exit status, evaluated at the end.
        answer: the summary for a terminal, evaluated after all plans are made.
        opening: the first lines there, for a command that prints more than a plan.
    """

    plans: Iterable[Plan] = ()
    show: Callable[[Done, OutputFormat], None]
    notes: Sequence[str] = ()
    nothing: str = ""
    errors: Sequence[EoctlError] = ()
    status: Callable[[], int] = lambda: EXIT_OK
    answer: Callable[[], PlanAnswer | None] = lambda: None
    opening: Callable[[int], Iterable[Line]] | None = None


@dataclass(frozen=True, kw_only=True)
class ChangeCommand:
    """A command that changes files by plans.

    Attributes:
        name: the name in its journals.
        selected: finds the partitions whose log dirs are changed.
        arguments: identify an unfinished plan of the same command.
        plan: reads the files, and plans. It is called again under the locks.
        if_done: for a command with a target: shown after completing an interrupted run, if its
            target has no meaning in the changed files. None: an error, because the changed files
            must be inspected.
        begins: the absolute path of a log dir that it creates, or None.
        is_by_partition: it has a journal for each partition, so several for a log dir.
        shows_steps: each plan is shown below the rows.
        applied_noun: the applied result, such as "partitions rebuilt".
    """

    name: str
    selected: Callable[[], Sequence[Selected]]
    arguments: Callable[[], Collection[dict[str, Any]]]
    plan: Callable[[], Planned]
    if_done: Planned | None = None
    begins: str | None = None
    is_by_partition: bool = False
    shows_steps: bool = True
    applied_noun: str = "log dirs changed"


def run_change(command: ChangeCommand, change: ChangeOptions, output: OutputFormat) -> int:
    """Show, save or apply a command's plans, and return the exit status.

    Raises:
        UsageError: several plans cannot be saved.
        RefusedError, AccessError: as the command's planning, `writing`, `resume` and `apply_plan`.
    """
    if change.apply:
        return _Applying(command, change).run(output)
    planned = command.plan()
    plans = list(planned.plans)
    notes = []
    if change.save_plan is not None and plans:
        if len(plans) > 1:
            place = "partition" if command.is_by_partition else "log dir"
            raise UsageError(
                f"{len(plans)} {place}s have something to change. A saved plan is for one",
                next_step=f"--save-plan for each {place} by itself",
            )
        save_plan(plans[0], change.save_plan)
        notes.append(f"nothing was changed: eoctl apply {pasted(change.save_plan)} runs it")
    elif plans:
        notes.append("this is a plan, nothing was changed: --apply runs it")
    elif planned.nothing:
        saved = "" if change.save_plan is None else ", and no plan was saved"
        notes.append(f"{planned.nothing}: nothing would be changed{saved}")
    first = _opening(planned, plans, change, answer_width(output))
    return _shown(command, planned, plans, notes, Done(), output, first=first)


def _opening(
    planned: Planned, plans: Sequence[Plan], change: ChangeOptions, width: int
) -> Iterable[Line]:
    if planned.opening is not None and not plans:
        return planned.opening(width)
    return plan_lines(planned.answer(), plans, change, planned.nothing, width)


def _shown(
    command: ChangeCommand,
    planned: Planned,
    plans: Sequence[Plan],
    notes: Sequence[str],
    done: Done,
    output: OutputFormat,
    *,
    first: Iterable[Line] = (),
    last: Iterable[Line] = (),
) -> int:
    """Print rows, plans, errors and notes, and return the exit status.

    The answer is `first`, and the applied changes are `last`.
    """
    try:
        has_first = False
        for words in first:
            report_answer([words], output)
            has_first = True
        if has_first and is_for_people(output):
            line("")
        planned.show(done, output)
        for each in plans if command.shows_steps else ():
            if output is OutputFormat.TEXT:
                line("")
            show_plan(each, output)
    finally:  # messages are printed even if the rows have no reader
        for problem in planned.errors:
            error(problem)
        for note in (*planned.notes, *notes):
            message(note)
        report_answer(last, output)
    return planned.status()


def _is_log(step: JournalStep) -> bool:
    """Return whether a step changes an existing log."""
    return step.before is not None and classify(Path(step.path).name).kind is FileKind.LOG


class _Applying:
    """One run with --apply."""

    def __init__(self, command: ChangeCommand, change: ChangeOptions) -> None:
        self._command = command
        self._change = change
        self._plans: list[Plan] = []  # applied; empty if not shown
        self._count = 0
        self._applied: list[Applied] = []  # journals whose undo was printed
        self._cut: list[str] = []  # journals that changed a `.log`
        self._reported: set[tuple[str, ...]] = (
            set()
        )  # log dirs whose first journal leads to the others
        self._fs = fsio.FileSystem()

    def run(self, output: OutputFormat) -> int:
        """Run the command under the locks, and print the rows after them."""
        command, notes = self._command, list[str]()
        selected = command.selected()
        is_stopped = self._change.broker_is_stopped
        begun = () if command.begins is None else (command.begins,)
        if not all(Path(each).is_dir() for each in begun):
            list(command.plan().plans)  # refuse before anything is created
        with (
            begun_log_dirs(self._fs, begun, broker_is_stopped=is_stopped),
            writing(selected, self._fs, begun=begun, broker_is_stopped=is_stopped) as log_dirs,
        ):
            resumed = resume(self._fs, log_dirs, command.name, command.arguments())
            for each in resumed:
                message(f"completed what an earlier run began: {self._undo_steps(each)}")
                self._applied.append(each)
            planned = self._planned(resumed, notes)
            self._apply(planned)
        if not self._count and not resumed and planned.nothing:
            notes.append(f"{planned.nothing}: nothing was changed")
        notes += how_to_compare(self._cut)
        done = Done(is_applied=bool(resumed or self._count), resumed=tuple(resumed))
        last = done_lines(
            planned.answer() if self._count else None,
            self._applied,
            with_later=command.is_by_partition,
            width=answer_width(output),
        )
        return _shown(command, planned, self._plans, notes, done, output, last=last)

    def _planned(self, resumed: Sequence[Applied], notes: list[str]) -> Planned:
        """Plan. After a resumed run, a target without meaning only becomes a note.

        Any other obstacle is an error that mentions the completed run.
        """
        if not resumed:
            return self._command.plan()
        try:
            with stating("what an earlier run began is completed, and stays"):
                return self._command.plan()
        except (SpentTargetError, UsageError) as exc:
            if self._command.if_done is None:
                raise
            notes.append(f"the request is done; looking for more of it: {exc.message}")
            return self._command.if_done

    def _apply(self, planned: Planned) -> None:
        try:
            for plan in planned.plans:
                applied = apply_one(self._fs, plan, self._change)
                # Printed here, so that the undo is known even if the next plan or the rows fail.
                if self._is_news(applied):
                    message(self._undo_steps(applied))
                    self._applied.append(applied)
                self._count += 1
                if applied.journal.has_backup and any(map(_is_log, applied.journal.steps)):
                    self._cut.append(applied.journal.path)
                if self._command.shows_steps:
                    self._plans.append(plan)
        except EoctlError as exc:
            if self._count:  # the rows are not shown after an error
                stays = f"{self._command.applied_noun} before it, which stay: {self._count}"
                exc.next_step = f"{exc.next_step}; {stays}" if exc.next_step else stays
            raise

    def _is_news(self, applied: Applied) -> bool:
        return self._change.no_backup or tuple(applied.journal.log_dirs) not in self._reported

    def _undo_steps(self, applied: Applied) -> str:
        if not self._command.is_by_partition:
            return how_to_undo(applied)
        if applied.journal.has_backup and not applied.was_done:
            self._reported.add(tuple(applied.journal.log_dirs))
        return how_to_undo_all(applied)
