"""One run of `eoctl consume`: records to stdout, and what people should know of it to stderr."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from eoctl import output
from eoctl.clients.log.consumer import ConsumeOptions, Consumer
from eoctl.clients.partitions.interrupts import Interrupts
from eoctl.clients.text.inputs import BytesAs
from eoctl.clients.text.record_text import TextOptions
from eoctl.clients.text.record_writers import record_encoder
from eoctl.output import OutputFormat
from eoctl.runs.clients.consume_notes import _summary, tell_after, tell_before, tell_skipped
from storage.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from eoctl.clients.log.consumer import AnyRecords
    from eoctl.runs.clients.group_position import GroupOptions
    from storage.files.fsio import Bytes


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
    from eoctl.runs.clients.group_position import GroupPosition, start_group

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
