"""`eoctl consume --exec` and `--group`: records for a program, with a saved position."""

from __future__ import annotations

import json
import os
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from eoctl import output
from eoctl.change_options import ChangeOptions
from eoctl.clients.coordinators.log_dir_coordinator import GroupCommits
from eoctl.clients.log.consumer import ConsumeOptions, Consumer, require_in_log
from eoctl.clients.partitions.interrupts import Interrupts
from eoctl.clients.partitions.open_partition import (
    OpenPartitions,
    WriteOptions,
    appending,
    clock_of,
    notes_of,
)
from eoctl.clients.partitions.target import TargetOptions
from eoctl.clients.record_formats.inputs import BytesAs
from eoctl.clients.record_formats.record_writers import encode_json
from eoctl.clients.user_programs.position_file import Position, PositionFile, PositionOf
from eoctl.clients.user_programs.program import Program, ProgramError
from eoctl.clock import NowSource, resolve_now
from eoctl.commands.shared.consume_notes import report_after, report_before, report_skipped
from eoctl.options import Commit
from eoctl.output import message
from eoctl.progress import Progress
from storage.errors import EoctlError, RefusedError
from storage.file_names import TopicPartition
from storage.writing.partition_store import FlushPolicy

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from eoctl.clients.log.consumed import Records
    from eoctl.clients.log.consumer import AnyRecords
    from eoctl.output import OutputFormat
    from storage.dirs.partition import Partition


class GroupOptions(NamedTuple):
    """The command line options for the group."""

    group: str
    metadata_dir: str | None = None
    single_copy: bool = False
    change: ChangeOptions = ChangeOptions()


class GroupPosition:
    """A context manager that locks the log dir, if offsets are to be committed.

    Attributes:
        path: the name of the position in messages.
    """

    def __init__(self, partition: Partition, options: GroupOptions) -> None:
        """Read only. Raises RefusedError: the partition is in no log dir."""
        if partition.log_dir is None:
            raise RefusedError(
                f"{partition.path}: lies in no log dir, which would have the group's offsets"
            )
        self.path = f"group {options.group}"
        self._place = TopicPartition(partition.topic, partition.partition)
        self._log_dir_path = partition.log_dir.path
        self._options = options
        self._stack = ExitStack()
        self._partitions: OpenPartitions | None = None
        self._offsets = GroupCommits(options.group, self._log_dir_path, options.metadata_dir)

    def __enter__(self) -> Self:
        """Take the lock, and complete an earlier run."""
        change = self._options.change
        if not change.apply:
            return self
        log_dir = self._log_dir_path
        with ExitStack() as stack:
            journal = stack.enter_context(appending([log_dir], change, "consume"))
            self._now = resolve_now(NowSource.WALL, [log_dir])
            target = TargetOptions(self._options.metadata_dir, None, self._options.single_copy)
            # An offset that was reported as saved is on disk.
            write = WriteOptions(flush=FlushPolicy.BATCH, change=change)
            self._partitions = OpenPartitions(log_dir, write, target, self._now, journal)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        with self._stack:
            error = None if self._partitions is None else self._partitions.close()
        if not self._options.change.apply and kind in {None, KeyboardInterrupt}:
            message(f"no offset was committed for {self.path}: --apply commits the next offset")
        self._report()
        if error is not None:
            raise error

    def _report(self) -> None:
        """Print the changes of the commits, and their cost."""
        opened = [] if self._partitions is None else [*self._partitions]
        if opened:
            for note in notes_of(opened, self._now, is_applied=True):
                message(note)

    def load(self) -> Position | None:
        """Return the committed offset, or None if the group has none.

        Raises:
            RefusedError: the group's offsets are not fully readable.
        """
        offset = self._offsets.committed(self._place)
        return None if offset is None else Position(offset)

    def save(self, position: Position) -> None:
        """Commit an offset durably. Without `apply` nothing is changed.

        Raises:
            RefusedError, AppendError, AccessError: it cannot be written.
        """
        if self._partitions is not None:
            offsets = {self._place: position.next_offset}
            self._offsets.commit(self._partitions, offsets, clock_of(self._now))

    def refuse_following(self) -> None:
        """Refuse to follow a log whose lock this run holds, as no broker can append to it."""
        if self._partitions is not None:
            raise RefusedError(
                f"{Path(self._log_dir_path)}: offsets are committed to it, so no broker appends"
                " meanwhile. There is nothing to follow",
                next_step="without --follow",
            )


def start_group(consumer: Consumer, position: GroupPosition) -> None:
    """Start at the group's committed offset, or without it at the offset in the options.

    Raises:
        RefusedError: the committed offset is outside of the log.
    """
    saved = position.load()
    if saved is None:
        consumer.start()
        return
    offset = require_in_log(consumer, saved.next_offset, position.path)
    message(f"going on at offset {offset}, as {position.path} says")
    consumer.start(offset)


# -- `eoctl consume --exec`: records for a program, and a position saved at the right moment


DEFAULT_BATCH_MESSAGES = 500  # the default of Kafka's consumer


class ExecOptions(NamedTuple):
    """The command line options for the program."""

    command: str
    checkpoint: str | None
    commit: Commit = Commit.AFTER
    batch_messages: int = DEFAULT_BATCH_MESSAGES
    bytes_as: BytesAs = BytesAs.TEXT


class ExecReport(NamedTuple):
    """The printed row of a successful run."""

    topic: str
    partition: int
    records: int
    hand_overs: int
    first_offset: int | None
    last_offset: int | None
    next_offset: int
    commit: str
    checkpoint: str


class HandOver(NamedTuple):
    """Records that are passed together, at least one."""

    parts: list[Records]

    @property
    def next_offset(self) -> int:
        """The offset at which to continue."""
        return self.parts[-1].next_offset

    @property
    def records_count(self) -> int:
        """The number of records."""
        return sum(each.row_count for each in self.parts)

    def lines(self, bytes_as: BytesAs) -> bytes:
        """Return them as JSON Lines, and the commit line."""
        commit = {
            "kind": "commit",
            "next_offset": self.next_offset,
            "records": self.records_count,
        }
        return b"".join([*(encode_json(each, bytes_as) for each in self.parts), _line(commit)])


def hand_overs(
    source: Iterable[AnyRecords | None], batch_messages: int
) -> Iterator[HandOver | None]:
    """Group records by `batch_messages`, with fewer before a pause (None) and at the end.

    Records that were read before an error are passed before it is raised.
    """
    parts: list[Records] = []
    missing = batch_messages
    try:
        for records in source:
            if records is None:
                if parts:
                    yield HandOver(parts)
                    parts, missing = [], batch_messages
                yield None
                continue
            lists = records.lists()
            start = 0
            while start < lists.row_count:
                part = lists.part(start, start + missing)
                parts.append(part)
                start, missing = start + part.row_count, missing - part.row_count
                if not missing:
                    yield HandOver(parts)
                    parts, missing = [], batch_messages
    except EoctlError:
        if parts:
            yield HandOver(parts)
        raise
    if parts:
        yield HandOver(parts)


def consume_with_program(
    path: str,
    options: ConsumeOptions,
    execution: ExecOptions,
    output_format: OutputFormat,
    group: GroupOptions | None = None,
) -> int:
    """Pass the records of a partition to a program, and return the exit status.

    The position is saved in the checkpoint file, or committed for the group.

    Raises:
        UsageError, AccessError, RefusedError: no record was passed.
        ProgramError: the program failed, and the position is right for its mode.
        DamageError: all records before the damage were passed.
    """
    consumer = Consumer(path, options, output.message)
    with _position(consumer.partition, options, execution, group) as file:
        saved = file.load()
        report_before(consumer, options)
        run = _ExecRun(consumer, execution, file)
        run.start(saved)
        with Program(execution.command) as program, Interrupts() as interrupts:
            try:
                if saved is None:
                    run.save_beginning()
                with Progress("handing over", None if options.follow else run.source_bytes):
                    run.hand_over_all(program, interrupts)
            except KeyboardInterrupt as exc:
                exc.add_note(run.where)
                raise
            finally:
                report_skipped(consumer)
    status = report_after(consumer, options)
    output.emit(output.Report("consume", ExecReport._fields, [run.report()]), output_format)
    return status


def _position(
    partition: Partition,
    options: ConsumeOptions,
    execution: ExecOptions,
    group: GroupOptions | None,
) -> PositionFile | GroupPosition:
    if group is not None:
        position = GroupPosition(partition, group)
        if options.follow:
            position.refuse_following()
        return position
    assert execution.checkpoint is not None
    _require_outside(execution.checkpoint, partition)
    return PositionFile(execution.checkpoint, _owner(partition, options, execution))


class _ExecRun:
    """One run: the records passed, and the saved position."""

    def __init__(
        self, consumer: Consumer, execution: ExecOptions, file: PositionFile | GroupPosition
    ) -> None:
        self._consumer = consumer
        self._execution = execution
        self._file = file
        self._saved = Position(0)
        self._count = 0

    @property
    def where(self) -> str:
        """The saved position in words."""
        return f"{self._file.path} says next offset {self._saved.next_offset}"

    def start(self, saved: Position | None) -> None:
        """Start at the saved position, or where the options say."""
        consumer, path = self._consumer, self._file.path
        if saved is None:
            self._saved = Position(consumer.start())
            return
        offset = require_in_log(consumer, saved.next_offset, path)
        output.message(f"going on at offset {offset}, as {path} says")
        self._saved = saved
        consumer.start(offset)

    def source_bytes(self) -> int:
        """Return the most bytes to read."""
        return self._consumer.partition.files.log_bytes_from(self._saved.next_offset)

    def save_beginning(self) -> None:
        """Save the start before any record is passed, to prove that the position can be saved."""
        self._file.save(self._saved)

    def hand_over_all(self, program: Program, interrupts: Interrupts) -> None:
        """Pass everything, and wait for the program's end."""
        begin = self._begin_line()
        for batch in hand_overs(self._consumer.records(), self._execution.batch_messages):
            if batch is None:
                self._move_on(interrupts)
                continue
            self._hand_over(program, interrupts, batch, begin)
            begin = b""
        self._move_on(interrupts)
        try:
            program.finish(begin)
        except ProgramError as exc:
            raise self._located(exc) from None

    def _begin_line(self) -> bytes:
        partition = self._consumer.partition
        return _line(
            {
                "kind": "start",
                "topic": partition.topic,
                "partition": partition.partition,
                "next_offset": self._saved.next_offset,
                "commit": str(self._execution.commit),
                "state": self._saved.state,
            }
        )

    def _hand_over(
        self, program: Program, interrupts: Interrupts, batch: HandOver, begin: bytes
    ) -> None:
        commit, next_offset = self._execution.commit, batch.next_offset
        if commit is Commit.BEFORE:
            self._save(interrupts, Position(next_offset))
        is_atomic = commit is Commit.ATOMIC
        data = begin + batch.lines(self._execution.bytes_as)
        try:
            state = program.hand_over(data, next_offset, needs_state=is_atomic)
        except ProgramError as exc:
            raise self._located(exc, batch) from None
        if commit is not Commit.BEFORE:
            self._save(interrupts, Position(next_offset, state if is_atomic else None))
        self._count += 1

    def _move_on(self, interrupts: Interrupts) -> None:
        """Save that batches after the last record (markers, aborted records) are consumed, too."""
        next_offset = self._consumer.consumed.next_offset
        if next_offset > self._saved.next_offset:
            self._save(interrupts, self._saved._replace(next_offset=next_offset))

    def _save(self, interrupts: Interrupts, position: Position) -> None:
        with interrupts.held():
            self._file.save(position)
            self._saved = position

    def _located(self, error: ProgramError, batch: HandOver | None = None) -> ProgramError:
        given = ""
        if batch is not None:
            first, last = batch.parts[0].first_offset, batch.parts[-1].last_offset
            again = (
                "they will not be given again"
                if self._execution.commit is Commit.BEFORE
                else "they will be given again"
            )
            given = f" (it had been given offsets {first} to {last}; {again})"
        return ProgramError(f"{error.message}{given}; {self.where}", next_step=error.next_step)

    def report(self) -> ExecReport:
        """Return the row for the end."""
        partition, found = self._consumer.partition, self._consumer.consumed
        return ExecReport(
            topic=partition.topic,
            partition=partition.partition,
            records=found.records,
            hand_overs=self._count,
            first_offset=found.first_offset,
            last_offset=found.last_offset,
            next_offset=self._saved.next_offset,
            commit=str(self._execution.commit),
            checkpoint=self._file.path,
        )


def _owner(partition: Partition, options: ConsumeOptions, execution: ExecOptions) -> PositionOf:
    return PositionOf(
        topic=partition.topic,
        partition=partition.partition,
        topic_id=partition.topic_id(),
        isolation=str(options.isolation),
        commit=str(execution.commit),
    )


def _require_outside(checkpoint: str, partition: Partition) -> None:
    """Refuse a checkpoint among the files of any partition."""
    around = Path(os.path.realpath(checkpoint)).parent
    if Path(os.path.realpath(partition.path)) in (around, *around.parents):
        raise RefusedError(
            f"{checkpoint}: lies in the partition, where only a broker's files belong",
            next_step="name a file elsewhere",
        )


def _line(fields: dict[str, Any]) -> bytes:
    return json.dumps(fields, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"
