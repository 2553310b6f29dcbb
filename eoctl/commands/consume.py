"""`eoctl consume`: the records of a partition, as a consumer receives them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, NamedTuple

from eoctl import options, output
from eoctl.clients.log.consumer import ConsumeOptions, Consumer, MergedConsumers
from eoctl.clients.partitions.interrupts import Interrupts
from eoctl.clients.record_formats.inputs import BytesAs
from eoctl.clients.record_formats.record_text import LineFormat, TextOptions
from eoctl.clients.record_formats.record_writers import record_encoder
from eoctl.commands.shared.consume_notes import (
    _summary,
    report_after,
    report_after_topic,
    report_before,
    report_skipped,
    status_of_all,
)
from eoctl.options import Commit, given_paths
from eoctl.output import OutputFormat, pass_escapes
from eoctl.parameters import (
    advanced_option,
    argument,
    option,
    output_option,
    records_option,
)
from recovery.transactions.isolation import AbortedSource, Isolation
from storage.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from eoctl.clients.log.consumer import AnyRecords
    from eoctl.clients.record_formats.record_writers import Encode
    from eoctl.clients.record_formats.schemas import Schemas
    from eoctl.commands.shared.consume_program import GroupOptions
    from storage.dirs.partition import Partition


def command(
    path: Annotated[
        str, argument(metavar="PARTITION", help="A directory TOPIC-N, or a log dir with --topic.")
    ],
    topic: Annotated[
        list[str] | None,
        records_option(
            metavar="TOPIC", help="All partitions of this topic, by timestamp. Repeatable."
        ),
    ] = None,
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
            "--from",
            metavar="WHERE",
            help="Start at earliest, latest, an offset, a time, or -N for the last N of each"
            " partition.",
        ),
    ] = "earliest",
    until: Annotated[
        str, records_option(metavar="WHERE", help="Stop before log-end, hw, lso or an offset.")
    ] = "log-end",
    max_messages: Annotated[
        int | None, records_option(min=0, metavar="N", help="Stop after this many records.")
    ] = None,
    follow: Annotated[bool, option("--follow", help="Wait for new records.")] = False,
    skip_corrupt: Annotated[
        bool, records_option("--skip-corrupt", help="Skip damaged batches, and report them.")
    ] = False,
    line_format: Annotated[
        str | None,
        output_option(
            "--format", "-f", metavar="FORMAT", help="Print like kcat: '%t %p %o %k %v\\n'."
        ),
    ] = None,
    print_timestamp: Annotated[
        bool, output_option("--print-timestamp", help="In text, print timestamps.")
    ] = False,
    print_partition: Annotated[
        bool, output_option("--print-partition", help="In text, print the partition.")
    ] = False,
    print_offset: Annotated[
        bool, output_option("--print-offset", help="In text, print offsets.")
    ] = False,
    print_headers: Annotated[
        bool, output_option("--print-headers", help="In text, print headers.")
    ] = False,
    print_key: Annotated[bool, output_option("--print-key", help="In text, print keys.")] = False,
    key_separator: Annotated[
        str,
        output_option(metavar="TEXT", help="In text, separates these.", show_default="a tab"),
    ] = "\t",
    bytes_as: Annotated[
        BytesAs, output_option("--bytes", help="In jsonl, how bytes are written.")
    ] = BytesAs.TEXT,
    raw: options.Raw = False,
    decode: Annotated[
        bool, output_option("--decode", help="Decode values by schema (Avro, Protobuf, JSON).")
    ] = False,
    schema_dir: options.SchemaDir = None,
    max_batch_bytes: options.MaxBatchBytes = None,
    program: Annotated[
        str | None,
        option(
            "--exec",
            metavar="CMD",
            help="Pipe records to a program as JSON Lines. It answers with commits.",
        ),
    ] = None,
    checkpoint: Annotated[
        str | None, option(metavar="FILE", help="With --exec, save the position in FILE.")
    ] = None,
    commit: Annotated[
        Commit | None,
        option(help="With --exec, when the position is saved.", show_default="after"),
    ] = None,
    batch_messages: Annotated[
        int | None,
        advanced_option(
            min=1, metavar="N", help="With --exec, most records at once.", show_default="500"
        ),
    ] = None,
    group: Annotated[
        str | None,
        option(
            metavar="GROUP", help="Start at the committed offset of the group. --apply commits."
        ),
    ] = None,
    metadata_dir: options.MetadataDir = None,
    single_copy: options.SingleCopy = False,
    apply: options.Apply = False,
    backup_dir: options.BackupDir = None,
    broker_is_stopped: options.BrokerIsStopped = False,
    output: options.Output = OutputFormat.TEXT,
) -> int:
    """Print the records of a partition as a consumer receives them, without a broker.

    Control records are never printed. With --isolation read_committed, records of aborted
    transactions are left out, and eoctl stops at the first open transaction. The log is not
    changed.
    """
    from eoctl.clients.log.consumer import ConsumeOptions, parse_end, parse_start

    if raw:
        pass_escapes()
    if topic and (follow or group is not None or program is not None):
        raise UsageError("--topic: --follow, --group and --exec are for one partition")
    if decode and program is not None:
        raise UsageError("--decode is for printing, --exec gets the bytes")
    if line_format is not None and output is not OutputFormat.TEXT:
        raise UsageError("--format and --output: pass one of them")
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
        from eoctl.commands.shared.consume_program import GroupOptions

        change = ChangeOptions(
            apply=apply, backup_dir=backup_dir, broker_is_stopped=broker_is_stopped
        )
        of_group = GroupOptions(
            group=group, metadata_dir=metadata_dir, single_copy=single_copy, change=change
        )
    elif apply:
        raise UsageError("--apply: there is nothing to change", next_step="--group GROUP --apply")
    if program is not None:
        from eoctl.commands.shared.consume_program import ExecOptions, consume_with_program

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
    schemas = None
    if decode or schema_dir:
        from eoctl.clients.record_formats.schemas import schemas_for

        schemas = schemas_for([path], schema_dir)
    printing = PrintOptions(
        output=output,
        bytes_as=bytes_as,
        text=text,
        line_format=None if line_format is None else LineFormat(line_format),
        schemas=schemas,
    )
    if topic:
        return consume_topic(path, topic, wanted, printing)
    return consume(path, wanted, printing, of_group)


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
    """Refuse a program without exactly one place for its position, or with an unsuitable place.

    Raises:
        UsageError: the options do not fit.
    """
    if (checkpoint is None) == (group is None):
        raise UsageError(
            "--exec needs one place that says how far the program came",
            next_step="--checkpoint FILE, or --group GROUP --apply",
        )
    if group is None:
        return
    if commit is Commit.ATOMIC:
        raise UsageError(
            "--commit atomic needs a checkpoint, because an offset has no state",
            next_step="--checkpoint FILE",
        )
    if not is_applied:
        raise UsageError("--exec with --group commits offsets", next_step="--apply")


# -- one run of `eoctl consume`: records to stdout, and notes to stderr


class PrintOptions(NamedTuple):
    """The options for printing records."""

    output: OutputFormat = OutputFormat.TEXT
    bytes_as: BytesAs = BytesAs.TEXT
    text: TextOptions = TextOptions()
    line_format: LineFormat | None = None
    schemas: Schemas | None = None

    def encoder(self, partition: Partition, *, is_named: bool) -> Encode:
        """Return the encoder of a partition's records. `is_named`: rows name the partition."""
        line_format, schemas, topic = self.line_format, self.schemas, partition.topic
        number = max(partition.partition, 0)
        text = self.text._replace(partition=number)
        encode = record_encoder(self.output, self.bytes_as, text, topic if is_named else None)
        if line_format is not None:

            def encode(records: AnyRecords) -> Iterator[bytes | memoryview]:
                yield line_format.encode(records.lists(), topic, number)

        if schemas is None:
            return encode
        return lambda records: encode(schemas.decode_records(records.lists()))

    def report_decoded(self) -> None:
        """Print how many values were decoded, and why others were not."""
        for each in () if self.schemas is None else self.schemas.reported():
            output.message(each)


def consume(
    path: str,
    options: ConsumeOptions,
    printing: PrintOptions,
    group: GroupOptions | None = None,
) -> int:
    """Print the records of a partition, and return the exit status.

    With a group it starts at the committed offset, and commits at the end if all records were
    printed.

    Raises:
        UsageError, AccessError: nothing was printed, or records have no columns to choose from.
        DamageError: all records before the damage were printed.
    """
    _refuse_columns()
    consumer = Consumer(path, options, output.message)
    encode = printing.encoder(consumer.partition, is_named=False)
    if group is None:
        consumer.start()
        return _print(consumer, options, encode, printing)
    from eoctl.clients.user_programs.position_file import Position
    from eoctl.commands.shared.consume_program import GroupPosition, start_group

    with GroupPosition(consumer.partition, group) as position:
        if options.follow:
            position.refuse_following()
        start_group(consumer, position)
        status = _print(consumer, options, encode, printing)
        position.save(Position(consumer.consumed.next_offset))
        return status


def consume_topic(
    path: str, topics: list[str], options: ConsumeOptions, printing: PrintOptions
) -> int:
    """Print the records of all partitions of topics by timestamp, and return the exit status.

    Raises:
        UsageError, AccessError: nothing was printed.
        DamageError: all records before the damage were printed.
    """
    _refuse_columns()
    directories = given_paths([path], None, topics)
    own = options._replace(max_messages=None)
    consumers = [Consumer(each, own, output.message) for each in directories]
    consumers.sort(key=lambda each: (each.partition.topic, each.partition.partition))
    encoders = {id(each): printing.encoder(each.partition, is_named=True) for each in consumers}
    for each in consumers:
        each.start()
        report_before(each, own)
    merged = MergedConsumers(consumers, options.max_messages)

    def status() -> int:
        return status_of_all([each.status(()) for each in consumers])

    with Interrupts() as interrupts, output.while_read(status):
        try:
            for consumer, records in merged.records():
                with interrupts.held():
                    for data in encoders[id(consumer)](records):
                        output.write(data)
        finally:
            for each in consumers:
                report_skipped(each)
        output.flush()
    printing.report_decoded()
    return report_after_topic(consumers, merged, options)


def _refuse_columns() -> None:
    if output.inspect().columns:
        raise UsageError("--columns: records are printed whole", next_step="--print-key and so on")


def _print(
    consumer: Consumer, options: ConsumeOptions, encode: Encode, printing: PrintOptions
) -> int:
    report_before(consumer, options)
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
            report_skipped(consumer)
        output.flush()
    printing.report_decoded()
    return report_after(consumer, options)
