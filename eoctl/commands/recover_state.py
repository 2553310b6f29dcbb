"""`eoctl recover-state`: the producer state a broker would recover, and how disk compares."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from eoctl import command_line, options
from eoctl.change_options import PLAN_ONLY, ChangeOptions, with_change
from eoctl.clock import resolve_now
from eoctl.command_line import Lacking, require_given
from eoctl.commands.shared.changes import ChangeCommand, Planned
from eoctl.dump.index_text import producer_line
from eoctl.dump.rows import PRODUCER_ANSWERS
from eoctl.messages import LABEL_WIDTH, Line, Said, answer_width, fitting, report_first, said_line
from eoctl.output import Columns, OutputFormat, Report, draws_tables, emit, line, message
from eoctl.parameters import argument, option, safety_option
from eoctl.progress import Progress
from recovery.changes.plans.plan import absolute_path
from recovery.rebuild.older_brokers import DATA_TIMES, stores_data_times
from recovery.rebuild.partitions import Derived, derived_plan, require_elsewhere
from recovery.replay.recover_state import (
    EntryState,
    bytes_to_replay,
    compare_entries,
    recover_state,
    recovery_price,
)
from recovery.replay.snapshots import Clock
from recovery.rules.findings import Severity
from storage.counts import counted
from storage.dirs.discovery import select_partition
from storage.dirs.partition import Partition
from storage.errors import EXIT_FINDINGS, EXIT_OK, EXIT_SKIPPED, UsageError, call_text
from storage.files import fsio

if TYPE_CHECKING:
    from collections.abc import Iterator

    from eoctl.commands.shared.changes import Done
    from recovery.changes.plans.plan import Plan
    from recovery.replay.recover_state import EntryDifference, RecoveredState
    from storage.dirs.discovery import Selected


@with_change()
def command(
    path: Annotated[str, argument(metavar="PARTITION", help="A partition directory.")],
    from_scratch: Annotated[
        bool, option("--from-scratch", help="Use no snapshot, replay from the log start.")
    ] = False,
    at_offset: Annotated[
        int | None, option(min=0, metavar="OFFSET", help="The state up to offset N.")
    ] = None,
    producer_expiry_ms: options.ProducerExpiryMs = None,
    now: options.Now = None,
    to: Annotated[str | None, option(metavar="FILE", help="Write the snapshot to FILE.")] = None,
    apply: Annotated[
        bool, safety_option("--apply", help="Write the snapshot that a broker would.")
    ] = False,
    change: ChangeOptions = PLAN_ONLY,
    output: options.KafkaOutput = OutputFormat.TEXT,
) -> int:
    """Show the producers that a broker would know after its next start.

    Producers are printed as kafka-dump-log prints a snapshot, with each entry that differs from the
    snapshot on disk. Nothing is written without --apply or --to.
    """
    from eoctl.commands.shared.changes import run_change

    writes = apply or change.save_plan is not None
    if writes and (to is not None or at_offset is not None):
        raise UsageError("--apply goes with neither --to nor --at-offset")
    wanted = RecoverOptions(
        from_scratch=from_scratch, at_offset=at_offset, expiration_ms=producer_expiry_ms, now=now
    )
    if writes:
        return run_change(recover_state_command(path, wanted), change, output)
    return show_state(path, wanted, to, output)


# -- one run of `recover-state`: the state as rows and words, as a file elsewhere, or as a plan


class RecoverOptions(NamedTuple):
    """The command line options."""

    from_scratch: bool
    at_offset: int | None
    expiration_ms: int | None
    now: str | None


class ProducerRow(NamedTuple):
    """The row of a producer, also if only on disk. `state` is None without a snapshot."""

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    current_txn_first_offset: int | None
    timestamp_ms: int
    first_sequence: int
    last_sequence: int
    last_offset: int
    offset_delta: int
    state: str | None
    differing_fields: list[str]


COLUMNS = Columns(ProducerRow._fields, answers=PRODUCER_ANSWERS)


class _StateView:
    """A recovered state, its comparison with the disk, and the notes."""

    def __init__(self, selected: Selected, options: RecoverOptions) -> None:
        """Replay. Raises as `recover_state`."""
        self.path = selected.partition.path
        log_dirs = [] if selected.log_dir is None else [selected.log_dir.path]
        moment = resolve_now(options.now, log_dirs)
        clock = Clock.at(moment.ms, options.expiration_ms)
        partition = Partition.of(selected)
        to_read = partial(
            bytes_to_replay,
            partition,
            from_scratch=options.from_scratch,
            at_offset=options.at_offset,
        )
        with Progress("replaying", to_read):
            self.recovered = recover_state(
                partition, clock, from_scratch=options.from_scratch, at_offset=options.at_offset
            )
        missing = partition.not_given(walked=self.recovered.spans)
        within = (each.within(0, options.at_offset) for each in missing)
        not_given = [each for each in within if each is not None]
        self._is_short = any(not_given) or bool(selected.problems)
        on_disk = self.recovered.disk_entries
        self._differences = list(compare_entries(self.recovered.entries, on_disk or (), clock))
        is_older = stores_data_times(partition, self.recovered.entries, on_disk or ())
        differs = (on_disk is not None and not is_older) and any(
            each.state not in (EntryState.EQUAL, EntryState.EXPIRED) for each in self._differences
        )
        expired_count = sum(each.state is EntryState.EXPIRED for each in self._differences)
        self.has_aged = bool(expired_count) and not differs
        self._is_wrong = differs or self.recovered.is_lacking or self.recovered.has_bad_snapshot
        self.notes = [
            moment.describe(),
            *map(str, selected.problems),
            *(f"{self.path}: {each}" for each in not_given),
            *_reported(self.recovered, expired_count),
        ]
        if is_older:
            self.notes.append(f"{self.recovered.file_name} is {DATA_TIMES}")

    def status(self, *, is_written: bool) -> int:
        """Return the exit status. A difference is no finding if the state is written."""
        recovered = self.recovered
        if recovered.problems or (self._is_short and not recovered.damage):
            return EXIT_SKIPPED
        is_finding = bool(recovered.damage) or (self._is_wrong and not is_written)
        return EXIT_FINDINGS if is_finding else EXIT_OK

    def print(self, output: OutputFormat) -> None:
        """Print producers as kafka-dump-log does, or as rows. In text, differences become notes."""
        if output is not OutputFormat.TEXT or draws_tables():
            emit(Report("producer", COLUMNS, list(self._rows())), output)
            return
        for entry in self.recovered.entries:
            line(producer_line(entry))
        if self.recovered.disk_entries is not None:
            self.notes += filter(None, map(_difference_text, self._differences))

    def lines(self, width: int, *, can_apply: bool) -> Iterator[Line]:
        """Yield the state, its comparison with the snapshot on disk, and the next command."""
        recovered, room = self.recovered, width - LABEL_WIDTH
        open_count = sum(each.current_txn_first_offset >= 0 for each in recovered.entries)
        state = f"{counted(len(recovered.entries), 'producer')} at offset {recovered.offset:,}"
        held = f", {counted(open_count, 'transaction')} open"
        yield said_line(Said("State", fitting([f"{state}{held}"], room)))
        wrong = [each for each in self._differences if each.state in _WRONG]
        rank = Severity.NOTE
        if recovered.disk_entries is None:
            disk = f"no valid {recovered.file_name}" if recovered.offset else "no snapshot needed"
        elif wrong and self._is_wrong:
            disk = f"{recovered.file_name} differs in {counted(len(wrong), 'producer')}"
            rank = Severity.WARNING
        elif wrong:
            disk = f"{recovered.file_name} differs only as older brokers or expiry make it"
        elif recovered.started_from == recovered.offset:
            disk = f"{recovered.file_name} is whole, not compared with the log"
        else:
            disk = f"{recovered.file_name} has the same"
        if recovered.damage:
            rank = Severity.ERROR
            disk = f"{disk}; the log is damaged"
        yield said_line(Said("Disk", fitting([disk], room), rank.rank))
        if recovered.damage:
            yield said_line(Said("Next", call_text(["eoctl", "check", self.path])))
        elif self._is_wrong and can_apply and not self._is_short:
            yield said_line(Said("Next", command_line.again("--apply")))
        elif recovered.started_from == recovered.offset and recovered.offset:
            again = command_line.again("--from-scratch")
            yield said_line(Said("Next", f"{again}   # compares it with the log"))
        elif not self._is_wrong and not self._is_short:
            yield said_line(Said("Next", "nothing to do"))

    def _rows(self) -> Iterator[ProducerRow]:
        is_compared = self.recovered.disk_entries is not None
        for each in self._differences:
            entry = each.recovered or each.disk
            assert entry is not None
            first = entry.current_txn_first_offset
            yield ProducerRow(
                producer_id=entry.producer_id,
                producer_epoch=entry.producer_epoch,
                coordinator_epoch=entry.coordinator_epoch,
                current_txn_first_offset=None if first < 0 else first,
                timestamp_ms=entry.timestamp_ms,
                first_sequence=entry.first_sequence,
                last_sequence=entry.last_sequence,
                last_offset=entry.last_offset,
                offset_delta=entry.offset_delta,
                state=str(each.state) if is_compared else None,
                differing_fields=list(each.fields),
            )


_WRONG = frozenset({EntryState.DIFFERS, EntryState.ONLY_RECOVERED, EntryState.ONLY_DISK})


def _reported(recovered: RecoveredState, expired_count: int) -> Iterator[str]:
    yield from recovered.problems
    yield from recovered.notes
    if expired_count:
        yield (
            f"{expired_count} of the {len(recovered.disk_entries or ())} producers in"
            f" {recovered.file_name} have expired by that clock. A broker leaves them out when it"
            " loads it"
        )
    started = recovered.started_from
    origin = "the log start" if started is None else f"the snapshot at {started}"
    yield f"state up to offset {recovered.offset}, replayed from {origin}"
    if started == recovered.offset:
        yield (
            "verified: the snapshot is whole; it was not compared with the log, which"
            " --from-scratch does"
        )
    if recovered.disk_entries is None and recovered.offset:
        yield f"no valid {recovered.file_name} on disk"
    for each in recovered.violations:
        yield (
            f"offset {each.offset}: producer {each.producer_id}: epoch {each.found} after"
            f" {each.expected} [{each.check_id}]"
        )
    for path, verdict in recovered.damage.items():
        yield (
            f"{path}: position {verdict.start_pos}: {verdict.kind.replace('_', ' ')}"
            f" ({verdict.reason}): no batch behind it in this file is part of the state"
        )


def _difference_text(difference: EntryDifference) -> str:
    """Return how a producer differs on disk, "" if it does not."""
    if difference.state is EntryState.DIFFERS:
        pairs = (
            f"{name} {getattr(difference.disk, name)} on disk,"
            f" {getattr(difference.recovered, name)}"
            for name in difference.fields
        )
        return f"producer {difference.producer_id} differs: {'; '.join(pairs)}"
    if difference.disk is None:
        return f"producer {difference.producer_id} is missing on disk"
    if difference.state is EntryState.ONLY_DISK:
        return f"producer {difference.producer_id} is on disk only"
    return ""


def show_state(path: str, options: RecoverOptions, to: str | None, output: OutputFormat) -> int:
    """Print the state, and write it to the file `to` if given. Return the exit status.

    Raises:
        RefusedError, UsageError, AccessError: as `recover_state` and `require_elsewhere`.
    """
    selected = select_partition(path)
    if to is not None:
        require_elsewhere(to, selected)
    view = _StateView(selected, options)
    # Before any output, so that a closed pipe cannot prevent it.
    if to is not None:
        fsio.replace_file(fsio.FileSystem(), to, view.recovered.content)
        view.notes.append(f"wrote {to}")
    can_apply = to is None and options.at_offset is None
    report_first(view.lines(answer_width(output), can_apply=can_apply), output)
    view.print(output)
    for note in view.notes:
        message(note)
    return view.status(is_written=to is not None)


def recover_state_command(path: str, options: RecoverOptions) -> ChangeCommand:
    """Return the command as `run_change` needs it."""
    return ChangeCommand(
        name="recover-state",
        selected=lambda: [select_partition(path)],
        arguments=lambda: [_arguments(path, options)],
        plan=lambda: _planned(path, options),
        shows_steps=False,
    )


def _arguments(path: str, options: RecoverOptions) -> dict[str, Any]:
    """Return the arguments that identify an unfinished plan of the same command."""
    return {"partition": absolute_path(path), "from_scratch": options.from_scratch}


def _planned(path: str, options: RecoverOptions) -> Planned:
    selected = select_partition(path)
    view = _StateView(selected, options)

    def show(done: Done, output: OutputFormat) -> None:
        if done.is_applied:
            view.notes.append(f"wrote {Path(view.path, view.recovered.file_name)}")
        view.print(output)

    return Planned(
        plans=[_plan(view, selected, options)] if _is_needed(view) else (),
        show=show,
        notes=view.notes,
        nothing="there is nothing to write",
        status=lambda: view.status(is_written=True),
    )


def _plan(view: _StateView, selected: Selected, options: RecoverOptions) -> Plan:
    files = [(view.recovered.file_name, view.recovered.content)]
    logs = [each.log.path for each in Partition.of(selected).segments]
    price = None if selected.log_dir is None else recovery_price(selected.log_dir)
    derived = [Derived(view.path, files, logs)]
    return derived_plan("recover-state", _arguments(view.path, options), derived, price)


def _is_needed(view: _StateView) -> bool:
    """Return whether the snapshot on disk differs from the recovered state.

    Raises:
        RefusedError: it differs, and the new snapshot would hide damaged or unreadable batches.
    """
    recovered = view.recovered
    target = Path(view.path, recovered.file_name)
    on_disk = target.read_bytes() if target.exists() else None
    if not recovered.offset or on_disk == recovered.content or view.has_aged:
        return False
    lacking = [
        Lacking(f"{each}; the state would lack what is in it") for each in recovered.problems
    ]
    lacking += [
        Lacking(
            why=f"{path}: the log is damaged at position {verdict.start_pos}"
            f" ({verdict.reason}); a snapshot would hide that",
            first="--to FILE, and decide what becomes of the log first",
        )
        for path, verdict in recovered.damage.items()
        if not verdict.kind.is_end
    ]
    require_given("", lacking)
    return True
