"""`eoctl recover-state`: the producer state a broker would recover, and how disk compares."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from eoctl import options  # noqa: TC001 - Typer reads the annotations
from eoctl.output import OutputFormat
from storage.errors import EXIT_FINDINGS, EXIT_OK, EXIT_SKIPPED, RefusedError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from eoctl.changing import ChangeOptions
    from recovery.changes.plan import Plan
    from recovery.replay.recover_state import RecoveredState
    from recovery.replay.snapshots import Clock
    from storage.discovery import Selected

COLUMNS = (
    "producer_id",
    "producer_epoch",
    "coordinator_epoch",
    "current_txn_first_offset",
    "timestamp_ms",
    "first_sequence",
    "last_sequence",
    "last_offset",
    "offset_delta",
    "state",
    "differing_fields",
)


def command(
    path: Annotated[str, typer.Argument(metavar="PARTITION", help="A partition directory.")],
    from_scratch: Annotated[
        bool, typer.Option("--from-scratch", help="Use no snapshot: replay from the log start.")
    ] = False,
    at_offset: Annotated[
        int | None, typer.Option(min=0, metavar="N", help="The state up to offset N.")
    ] = None,
    producer_expiry_ms: options.ProducerExpiryMs = None,
    now: options.Now = None,
    to: Annotated[
        str | None, typer.Option(metavar="FILE", help="Write the snapshot to FILE.")
    ] = None,
    apply: Annotated[
        bool, typer.Option("--apply", help="Write the snapshot that a broker would.")
    ] = False,
    save_plan: options.SavePlan = None,
    backup_dir: options.BackupDir = None,
    no_backup: options.NoBackup = False,
    i_accept_the_loss: options.AcceptLoss = False,
    broker_is_stopped: options.BrokerIsStopped = False,
    output: options.KafkaOutput = OutputFormat.TEXT,
) -> int:
    """Show the producers that a broker would know after its next start.

    Producers come as kafka-dump-log prints a snapshot; what differs from the snapshot on disk is
    told entry by entry. Nothing is written without --apply or --to.
    """
    from eoctl.changing import ChangeOptions
    from eoctl.clock import resolve_now
    from eoctl.output import Report, emit, use_format
    from recovery.rebuild.older_brokers import stores_data_times
    from recovery.replay.recover_state import recover_state
    from recovery.replay.snapshots import Clock
    from storage.discovery import select_partition
    from storage.partition import Partition
    from storage.producer_state import DEFAULT_EXPIRATION_MS

    use_format(output)
    change = ChangeOptions(
        apply=apply,
        save_plan=save_plan,
        backup_dir=backup_dir,
        no_backup=no_backup,
        accept_loss=i_accept_the_loss,
        broker_is_stopped=broker_is_stopped,
    )
    change.check()
    writes = apply or save_plan is not None
    if writes and (to is not None or at_offset is not None):
        raise UsageError("--apply goes with neither --to nor --at-offset")
    selected = select_partition(path)
    moment = resolve_now(
        now,
        [] if selected.log_dir is None else [selected.log_dir.path],
    )
    if to is not None:
        from recovery.rebuild.write_derived import require_elsewhere

        require_elsewhere(to, selected)
    expiration_ms = DEFAULT_EXPIRATION_MS if producer_expiry_ms is None else producer_expiry_ms

    def recover() -> RecoveredState:
        return recover_state(
            Partition.of(selected),
            Clock(moment.ms, expiration_ms),
            from_scratch=from_scratch,
            at_offset=at_offset,
        )

    recovered = recover()
    not_given = [each.within(0, at_offset) for each in Partition.of(selected).not_given()]
    is_older = stores_data_times(
        Partition.of(selected), recovered.entries, recovered.disk_entries or ()
    )
    notes = [moment.describe(), *(f"{path}: {each}" for each in not_given if each is not None)]
    run = _Run(recovered, Clock(moment.ms, expiration_ms), notes, is_older=is_older)
    # Before anything is printed: a reader that goes away must not keep it from being done.
    if to is not None:
        _write(recovered, Path(to))
        run.notes.append(f"wrote {to}")
    if writes:
        run.write(selected, recover, change, {"from_scratch": from_scratch})
    if output is OutputFormat.TEXT:
        run.print_text()
    else:
        emit(Report(kind="producer", columns=COLUMNS, rows=run.rows(), notes=()), output)
    run.print_notes()
    if recovered.problems or (any(not_given) and not recovered.damage):
        return EXIT_SKIPPED
    if recovered.damage or (run.is_wrong and not writes and to is None):
        return EXIT_FINDINGS
    return EXIT_OK


def _write(recovered: RecoveredState, path: Path) -> None:
    from storage import fsio

    fsio.replace_file(fsio.FileSystem(), path, recovered.content)


class _Run:
    """Prints a recovered state, its differences and its notes."""

    def __init__(
        self, recovered: RecoveredState, clock: Clock, notes: list[str], *, is_older: bool
    ) -> None:
        from recovery.rebuild.older_brokers import DATA_TIMES
        from recovery.replay.recover_state import EntryState, compare_entries

        self.recovered = recovered
        on_disk = recovered.disk_entries
        self.differences = list(compare_entries(recovered.entries, on_disk or (), clock))
        self.notes = [*notes, *recovered.problems, *recovered.notes]
        expired_count = sum(each.state is EntryState.EXPIRED for each in self.differences)
        if expired_count:
            self.notes.append(
                f"{expired_count} of the {len(on_disk or ())} producers in {recovered.file_name}"
                " have expired by that clock: a broker leaves them out when it loads it"
            )
        started = recovered.started_from
        origin = "the log start" if started is None else f"the snapshot at {started}"
        self.notes.append(f"state up to offset {recovered.offset}, replayed from {origin}")
        if started == recovered.offset:
            self.notes.append(
                "verified: the snapshot is whole; it was not compared with the log, which"
                " --from-scratch does"
            )
        if recovered.disk_entries is None and recovered.offset:
            self.notes.append(f"no valid {recovered.file_name} on disk")
        self.notes += [
            f"offset {each.offset}: producer {each.producer_id}: epoch {each.found} after"
            f" {each.expected} [{each.check_id}]"
            for each in recovered.violations
        ]
        self.notes += [
            f"{path}: position {verdict.start_pos}: {verdict.kind.replace('_', ' ')}"
            f" ({verdict.reason}): no batch behind it in this file is part of the state"
            for path, verdict in recovered.damage.items()
        ]
        if is_older:
            self.notes.append(f"{recovered.file_name} is {DATA_TIMES}")
        differs = (recovered.disk_entries is not None and not is_older) and any(
            each.state not in (EntryState.EQUAL, EntryState.EXPIRED) for each in self.differences
        )
        self._has_aged = bool(expired_count) and not differs
        self.is_wrong = differs or recovered.is_lacking or recovered.has_bad_snapshot

    def print_text(self) -> None:
        """Producers as the tool prints them; on stderr what differs on disk."""
        from eoctl.dump.index_text import producer_line
        from eoctl.output import line
        from recovery.replay.recover_state import EntryState

        for entry in self.recovered.entries:
            line(producer_line(entry))
        if self.recovered.disk_entries is None:
            return
        for each in self.differences:
            if each.state is EntryState.DIFFERS:
                pairs = (
                    f"{name} {getattr(each.disk, name)} on disk, {getattr(each.recovered, name)}"
                    for name in each.fields
                )
                self.notes.append(f"producer {each.producer_id} differs: {'; '.join(pairs)}")
            elif each.disk is None:
                self.notes.append(f"producer {each.producer_id} is missing on disk")
            elif each.state is EntryState.ONLY_DISK:
                self.notes.append(f"producer {each.producer_id} is on disk only")

    def rows(self) -> Iterator[Sequence[Any]]:
        """A row per producer, those only on disk included."""
        is_compared = self.recovered.disk_entries is not None
        for each in self.differences:
            entry = each.recovered or each.disk
            assert entry is not None
            first = entry.current_txn_first_offset
            yield (
                entry.producer_id,
                entry.producer_epoch,
                entry.coordinator_epoch,
                None if first < 0 else first,
                entry.timestamp_ms,
                entry.first_sequence,
                entry.last_sequence,
                entry.last_offset,
                entry.offset_delta,
                str(each.state) if is_compared else None,
                list(each.fields),
            )

    def print_notes(self) -> None:
        """Words for people, after the data."""
        from eoctl.output import message

        for note in self.notes:
            message(note)

    def write(
        self,
        selected: Selected,
        recover: Callable[[], RecoveredState],
        change: ChangeOptions,
        arguments: dict[str, Any],
    ) -> None:
        """Write the snapshot in place when it is not there as it should be, or save the plan.

        It is derived again under the lock, and refused if that gives something else than was shown.
        """
        from eoctl.changing import apply_one, how_to_undo, save_plan
        from eoctl.output import message
        from recovery.changes.apply import resume, writing
        from recovery.changes.plan import absolute_path
        from recovery.rebuild.write_derived import Derived, derived_plan
        from recovery.replay.price import recovery_price
        from storage.fsio import FileSystem
        from storage.partition import Partition

        recovered, path = self.recovered, selected.partition.path
        arguments = {"partition": absolute_path(path), **arguments}

        def plan() -> Plan:
            files = [(recovered.file_name, recovered.content)]
            logs = [each.log.path for each in Partition.of(selected).segments]
            price = None if selected.log_dir is None else recovery_price(selected.log_dir)
            return derived_plan("recover-state", arguments, [Derived(path, files, logs)], price)

        if change.save_plan is not None:
            if self._is_needed(path):
                save_plan(plan(), change.save_plan)
                self.notes.append(f"eoctl apply {change.save_plan} does it")
            return
        fs = FileSystem()
        with writing([selected], fs, broker_is_stopped=change.broker_is_stopped) as log_dirs:
            for done in resume(fs, log_dirs, "recover-state", [arguments]):
                self.notes.append(f"completed what an earlier run began: {done.journal.path}")
            if not self._is_needed(path):
                return
            now = recover()
            if (now.offset, now.content) != (recovered.offset, recovered.content):
                raise RefusedError(
                    f"{path}: changed since it was read; nothing was touched",
                    next_step="run it again",
                )
            # At once: whatever becomes of the rows, the way back is known.
            message(how_to_undo(apply_one(fs, plan(), change)))
        self.notes.append(f"wrote {Path(path, recovered.file_name)}")

    def _is_needed(self, path: str) -> bool:
        """Whether the snapshot is to be written; notes when it is not, refuses damage."""
        target = Path(path, self.recovered.file_name)
        on_disk = target.read_bytes() if target.exists() else None
        if not self.recovered.offset or on_disk == self.recovered.content or self._has_aged:
            self.notes.append("nothing to write")
            return False
        self._refuse_damage()
        return True

    def _refuse_damage(self) -> None:
        """A snapshot must not stand for batches that are not in it."""
        from storage.kernels.protocol import VerdictKind

        for problem in self.recovered.problems:
            raise RefusedError(f"{problem}; the state would lack what is in it")
        tails = (VerdictKind.TORN_TAIL, VerdictKind.PREALLOCATED)
        for path, verdict in self.recovered.damage.items():
            if verdict.kind not in tails:
                raise RefusedError(
                    f"{path}: the log is damaged at position {verdict.start_pos}"
                    f" ({verdict.reason}); a snapshot would hide that",
                    next_step="--to FILE, and decide what becomes of the log first",
                )
