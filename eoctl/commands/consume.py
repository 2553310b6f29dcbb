"""`eoctl consume`: the records of a partition as a consumer is given them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, NamedTuple

from eoctl import options, output
from eoctl.clients.log.consumer import ConsumeOptions, Consumer
from eoctl.clients.partitions.interrupts import Interrupts
from eoctl.clients.text.inputs import BytesAs
from eoctl.clients.text.record_text import TextOptions
from eoctl.clients.text.record_writers import record_encoder
from eoctl.commands.shared.consume_notes import _summary, tell_after, tell_before, tell_skipped
from eoctl.declared import (
    advanced_option,
    argument,
    option,
    output_option,
    records_option,
    safety_option,
)
from eoctl.options import Commit
from eoctl.output import OutputFormat, pass_escapes
from recovery.transactions.isolation import AbortedSource, Isolation
from storage.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from eoctl.clients.log.consumer import AnyRecords
    from eoctl.commands.shared.consume_exec import GroupOptions
    from storage.files.fsio import Bytes


def command(
    path: Annotated[str, argument(metavar="PARTITION", help="A directory TOPIC-N.")],
    isolation: Annotated[
        Isolation, records_option(help="Isolation level of the consumer.")
    ] = Isolation.READ_UNCOMMITTED,
    aborted_from: Annotated[
        AbortedSource,
        records_option(help="Source of aborted transactions: markers in the log, or .txnindex."),
    ] = AbortedSource.LOG,
    offsets: options.Offsets = None,
    start: Annotated[
        str,
        records_option(
            "--from", metavar="WHERE", help="Start at earliest, latest, an offset or a time."
        ),
    ] = "earliest",
    until: Annotated[
        str, records_option(metavar="WHERE", help="Stop before log-end, hw, lso or an offset.")
    ] = "log-end",
    max_messages: Annotated[
        int | None, records_option(min=0, metavar="N", help="Stop after this many records.")
    ] = None,
    follow: Annotated[bool, option("--follow", "-f", help="Wait for new records.")] = False,
    skip_corrupt: Annotated[
        bool, records_option("--skip-corrupt", help="Skip damaged batches, and report them.")
    ] = False,
    print_timestamp: Annotated[
        bool, output_option("--print-timestamp", help="In text: print timestamps.")
    ] = False,
    print_partition: Annotated[
        bool, output_option("--print-partition", help="In text: print the partition.")
    ] = False,
    print_offset: Annotated[
        bool, output_option("--print-offset", help="In text: print offsets.")
    ] = False,
    print_headers: Annotated[
        bool, output_option("--print-headers", help="In text: print headers.")
    ] = False,
    print_key: Annotated[bool, output_option("--print-key", help="In text: print keys.")] = False,
    key_separator: Annotated[
        str,
        output_option(metavar="TEXT", help="In text: separates these.", show_default="a tab"),
    ] = "\t",
    bytes_as: Annotated[
        BytesAs, output_option("--bytes", help="In jsonl: how bytes are written.")
    ] = BytesAs.TEXT,
    raw: options.Raw = False,
    max_batch_bytes: options.MaxBatchBytes = None,
    program: Annotated[
        str | None,
        option(
            "--exec",
            metavar="CMD",
            help="Pipe records to a program as JSON Lines; it answers with commits.",
        ),
    ] = None,
    checkpoint: Annotated[
        str | None, option(metavar="FILE", help="With --exec: save the position in FILE.")
    ] = None,
    commit: Annotated[
        Commit | None,
        option(help="With --exec: when the position is saved.", show_default="after"),
    ] = None,
    batch_messages: Annotated[
        int | None,
        advanced_option(
            min=1, metavar="N", help="With --exec: most records at once.", show_default="500"
        ),
    ] = None,
    group: Annotated[
        str | None,
        option(
            metavar="GROUP", help="Start at the committed offset of the group; --apply commits."
        ),
    ] = None,
    metadata_dir: options.MetadataDir = None,
    single_copy: Annotated[
        bool,
        safety_option("--single-copy", help="This is the only replica of the offsets that counts."),
    ] = False,
    apply: options.Apply = False,
    backup_dir: options.BackupDir = None,
    broker_is_stopped: options.BrokerIsStopped = False,
    output: options.Output = OutputFormat.TEXT,
) -> int:
    """Print the records of a partition as a consumer is given them; no broker is needed.

    Control records are never among them. With --isolation read_committed neither are those of
    aborted transactions, nor any from the first open one on. The log is not changed.
    """
    from eoctl.clients.log.consumer import ConsumeOptions, parse_end, parse_start
    from eoctl.clients.text.record_text import TextOptions

    if raw:
        pass_escapes()
    if offsets is not None:
        start, until = _bounds(offsets, start, until)
    wanted = ConsumeOptions(
        start=parse_start(start),
        end=parse_end(until),
        isolation=isolation,
        aborted_from=aborted_from,
        follow=follow,
        max_messages=max_messages,
        skip_corrupt=skip_corrupt,
    )
    if max_batch_bytes is not None:
        wanted = wanted._replace(max_batch_bytes=max_batch_bytes)
    of_group = None
    if group is not None:
        from eoctl.change_options import ChangeOptions
        from eoctl.commands.shared.consume_exec import GroupOptions

        change = ChangeOptions(
            apply=apply, backup_dir=backup_dir, broker_is_stopped=broker_is_stopped
        )
        of_group = GroupOptions(
            group=group, metadata_dir=metadata_dir, single_copy=single_copy, change=change
        )
    elif apply:
        raise UsageError("--apply: there is nothing to change", next_step="--group GROUP --apply")
    if program is not None:
        from eoctl.commands.shared.consume_exec import ExecOptions, consume_with_program

        _check_position(checkpoint, commit, group, is_applied=apply)
        execution = ExecOptions(program, checkpoint, bytes_as=bytes_as)
        if commit is not None:
            execution = execution._replace(commit=commit)
        if batch_messages is not None:
            execution = execution._replace(batch_messages=batch_messages)
        return consume_with_program(path, wanted, execution, output, of_group)
    if any(each is not None for each in (checkpoint, commit, batch_messages)):
        raise UsageError("--checkpoint, --commit and --batch-messages go with --exec CMD")
    text = TextOptions(
        print_timestamp=print_timestamp,
        print_partition=print_partition,
        print_offset=print_offset,
        print_headers=print_headers,
        print_key=print_key,
        key_separator=key_separator.encode("utf-8", "surrogateescape"),
    )
    return consume(path, wanted, PrintOptions(output, bytes_as, text), of_group)


def _bounds(offsets: str, start: str, until: str) -> tuple[str, str]:
    """Return `--from` and `--until` for `--offsets`. Raises UsageError."""
    from eoctl.options import parse_offsets

    if (start, until) != ("earliest", "log-end"):
        raise UsageError(
            "--offsets says where to begin and to end",
            next_step="leave out --from and --until, or --offsets",
        )
    found = parse_offsets(offsets)
    first = start if found.first is None else str(found.first)
    return first, until if found.last is None else str(found.last + 1)


def _check_position(
    checkpoint: str | None, commit: Commit | None, group: str | None, *, is_applied: bool
) -> None:
    """A program's position is in one place, which can hold what is to be saved.

    Raises:
        UsageError: otherwise.
    """
    if (checkpoint is None) == (group is None):
        raise UsageError(
            "--exec needs one place that says how far the program came",
            next_step="--checkpoint FILE, or --group GROUP --apply",
        )
    if group is None:
        return
    if commit is Commit.ATOMIC:
        raise UsageError("--commit atomic: an offset has no state", next_step="--checkpoint FILE")
    if not is_applied:
        raise UsageError("--exec with --group commits offsets", next_step="--apply")


# -- one run of `eoctl consume`: records to stdout, and what people should know of it to stderr


class PrintOptions(NamedTuple):
    """How records are printed."""

    output: OutputFormat = OutputFormat.TEXT
    bytes_as: BytesAs = BytesAs.TEXT
    text: TextOptions = TextOptions()


def consume(
    path: str,
    options: ConsumeOptions,
    printing: PrintOptions,
    group: GroupOptions | None = None,
) -> int:
    """Print the records of a partition; returns the exit status.

    With a group from its committed offset on; what all was printed is committed in the end.

    Raises:
        UsageError, AccessError: nothing was printed; records have no columns to choose from.
        DamageError: all records before the damage were printed.
    """
    if output.look().columns:
        raise UsageError("--columns: records are printed whole", next_step="--print-key and so on")
    consumer = Consumer(path, options, output.message)
    text = printing.text._replace(partition=max(consumer.partition.partition, 0))
    encode = record_encoder(printing.output, printing.bytes_as, text)
    if group is None:
        consumer.start()
        return _print(consumer, options, encode)
    from eoctl.clients.programs.position_file import Position
    from eoctl.commands.shared.consume_exec import GroupPosition, start_group

    with GroupPosition(consumer.partition, group) as position:
        if options.follow:
            position.refuse_following()
        start_group(consumer, position)
        status = _print(consumer, options, encode)
        position.save(Position(consumer.consumed.next_offset))
        return status


def _print(
    consumer: Consumer, options: ConsumeOptions, encode: Callable[[AnyRecords], Iterator[Bytes]]
) -> int:
    tell_before(consumer, options)
    with Interrupts() as interrupts, output.while_read(lambda: consumer.status(())):
        try:
            for records in consumer.records():
                if records is None:
                    with interrupts.held():
                        output.flush()
                    continue
                with interrupts.held():
                    for data in encode(records):
                        output.write(data)
        except KeyboardInterrupt as exc:
            exc.add_note(_summary(consumer))
            raise
        finally:
            tell_skipped(consumer)
        output.flush()
    return tell_after(consumer, options)
