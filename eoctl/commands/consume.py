"""`eoctl consume`: the records of a partition as a consumer is given them."""

from __future__ import annotations

from typing import Annotated

import typer

from eoctl.clients.commit_mode import Commit  # noqa: TC001 - Typer reads the annotation
from eoctl.clients.inputs import BytesAs
from eoctl.options import Output  # noqa: TC001 - Typer reads the annotation
from eoctl.output import OutputFormat
from recovery.read_options import AbortedSource, Isolation
from storage.errors import UsageError


def command(
    path: Annotated[str, typer.Argument(metavar="PARTITION", help="A directory TOPIC-N.")],
    isolation: Annotated[
        Isolation, typer.Option(help="What a consumer would be given.")
    ] = Isolation.READ_UNCOMMITTED,
    aborted_from: Annotated[
        AbortedSource, typer.Option(help="What says which transactions were aborted.")
    ] = AbortedSource.LOG,
    start: Annotated[
        str, typer.Option("--from", metavar="WHERE", help="earliest, latest, an offset, a time.")
    ] = "earliest",
    until: Annotated[
        str, typer.Option(metavar="WHERE", help="log-end, hw, lso, an offset (excluded).")
    ] = "log-end",
    max_messages: Annotated[
        int | None, typer.Option(min=0, metavar="N", help="At most so many records.")
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on as the log grows and rolls.")
    ] = False,
    skip_corrupt: Annotated[
        bool, typer.Option("--skip-corrupt", help="Go on behind damage, and report it.")
    ] = False,
    print_timestamp: Annotated[
        bool, typer.Option("--print-timestamp", help="In text: timestamps too.")
    ] = False,
    print_partition: Annotated[
        bool, typer.Option("--print-partition", help="In text: the partition too.")
    ] = False,
    print_offset: Annotated[
        bool, typer.Option("--print-offset", help="In text: offsets too.")
    ] = False,
    print_headers: Annotated[
        bool, typer.Option("--print-headers", help="In text: headers too.")
    ] = False,
    print_key: Annotated[bool, typer.Option("--print-key", help="In text: keys too.")] = False,
    key_separator: Annotated[
        str,
        typer.Option(
            metavar="TEXT", help="In text: between all of these [a tab].", show_default=False
        ),
    ] = "\t",
    bytes_as: Annotated[
        BytesAs, typer.Option("--bytes", help="In jsonl: how bytes are written.")
    ] = BytesAs.TEXT,
    program: Annotated[
        str | None,
        typer.Option("--exec", metavar="CMD", help="Hand the records to a program, as JSON Lines."),
    ] = None,
    checkpoint: Annotated[
        str | None, typer.Option(metavar="FILE", help="With --exec: holds how far it came.")
    ] = None,
    commit: Annotated[
        Commit | None, typer.Option(help="With --exec: when that is saved [after].")
    ] = None,
    batch_messages: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="With --exec: most records of a hand-over [500]."),
    ] = None,
    output: Output = OutputFormat.TEXT,
) -> int:
    """Print the records of a partition as a consumer is given them; no broker is needed.

    Control records are never among them. With --isolation read_committed neither are those of
    aborted transactions, nor any from the first open one on. The log is not changed.
    """
    from eoctl.clients.consume_bounds import parse_end, parse_start
    from eoctl.clients.consume_run import PrintOptions, consume
    from eoctl.clients.consumer import ConsumeOptions
    from eoctl.clients.record_writers import TextOptions
    from eoctl.output import use_format

    use_format(output)
    options = ConsumeOptions(
        start=parse_start(start),
        end=parse_end(until),
        isolation=isolation,
        aborted_from=aborted_from,
        follow=follow,
        max_messages=max_messages,
        skip_corrupt=skip_corrupt,
    )
    if program is not None:
        from eoctl.clients.consume_exec import ExecOptions, consume_with_program

        if checkpoint is None:
            raise UsageError("--exec needs --checkpoint FILE, to know how far the program came")
        execution = ExecOptions(program, checkpoint, bytes_as=bytes_as)
        if commit is not None:
            execution = execution._replace(commit=commit)
        if batch_messages is not None:
            execution = execution._replace(batch_messages=batch_messages)
        return consume_with_program(path, options, execution, output)
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
    return consume(path, options, PrintOptions(output, bytes_as, text))
