"""`eoctl produce`: append lines to a partition directory, as idempotent batches."""

from __future__ import annotations

from contextlib import ExitStack
from enum import StrEnum
from typing import Annotated

import typer

from eoctl.output import OutputFormat


class Compression(StrEnum):
    """What `--compression` takes."""

    NONE = "none"
    GZIP = "gzip"
    SNAPPY = "snappy"
    LZ4 = "lz4"
    ZSTD = "zstd"


class Fsync(StrEnum):
    """What `--fsync` takes."""

    BATCH = "batch"
    SEGMENT = "segment"
    NEVER = "never"


def command(
    path: Annotated[
        str, typer.Argument(metavar="PARTITION", help="A directory TOPIC-N; it may not exist yet.")
    ],
    file: Annotated[
        str, typer.Argument(metavar="[FILE]", help="Lines to append; - is the standard input.")
    ] = "-",
    apply: Annotated[
        bool, typer.Option("--apply", help="Do it; without, only the plan is shown.")
    ] = False,
    key_separator: Annotated[
        str | None, typer.Option(metavar="TEXT", help="What ends the key of each line.")
    ] = None,
    compression: Annotated[
        Compression | None, typer.Option(help="Codec; default: the topic's, or none.")
    ] = None,
    batch_bytes: Annotated[
        int, typer.Option(min=1, max=2**31 - 1, metavar="N", help="Before compression.")
    ] = 16_384,
    batch_records: Annotated[
        int | None, typer.Option(min=1, max=2**31 - 1, metavar="N", help="At most so many.")
    ] = None,
    timestamp: Annotated[
        str | None, typer.Option(metavar="TIME", help="Of all records; default: the clock.")
    ] = None,
    now: Annotated[
        str | None, typer.Option(metavar="TIME|wall|dir", help="The clock; default: wall.")
    ] = None,
    producer_id: Annotated[
        int | None,
        typer.Option(min=-1, max=2**63 - 1, metavar="ID", help="-1: not idempotent; default: new."),
    ] = None,
    producer_epoch: Annotated[
        int | None, typer.Option(min=0, max=32767, metavar="N", help="Default: as in the log.")
    ] = None,
    base_sequence: Annotated[
        int | None,
        typer.Option(min=0, max=2**31 - 1, metavar="N", help="Default: what the log expects."),
    ] = None,
    leader_epoch: Annotated[
        int | None,
        typer.Option(min=0, max=2**31 - 1, metavar="N", help="Default: the last one of the log."),
    ] = None,
    segment_bytes: Annotated[
        int | None,
        typer.Option(min=1, max=2**31 - 1, metavar="N", help="Default: the topic's setting."),
    ] = None,
    index_interval_bytes: Annotated[
        int | None,
        typer.Option(min=0, max=2**31 - 1, metavar="N", help="Default: the topic's setting."),
    ] = None,
    index_max_bytes: Annotated[
        int | None,
        typer.Option(min=24, max=2**31 - 1, metavar="N", help="Default: the topic's setting."),
    ] = None,
    producer_expiry_ms: Annotated[
        int, typer.Option(min=1, metavar="MS", help="After which a producer is forgotten.")
    ] = 86_400_000,
    fsync: Annotated[Fsync, typer.Option(help="When the log is synced.")] = Fsync.SEGMENT,
    topic_id: Annotated[
        str | None, typer.Option(metavar="ID", help="For a directory that has none yet.")
    ] = None,
    metadata_dir: Annotated[
        str | None,
        typer.Option(metavar="DIR", help="Log dir (or __cluster_metadata-0) with the metadata."),
    ] = None,
    single_copy: Annotated[
        bool, typer.Option("--single-copy", help="Other replicas do not count.")
    ] = False,
    broker_is_stopped: Annotated[
        bool, typer.Option("--broker-is-stopped", help="Where locks do not work: I know it.")
    ] = False,
    output: Annotated[OutputFormat, typer.Option(help="How to print.")] = OutputFormat.TEXT,
) -> None:
    """Append lines to a partition directory, as a producer and its broker would.

    Each line is the value of a record. The partition must be closed: stopped cleanly, or left by
    an earlier run. By default the plan is shown; --apply does it, and no broker may be running.
    """
    from eoctl.clients.produce_run import ProduceOptions, ProduceReport, Source, produce
    from eoctl.clients.producer import open_input, separator_bytes
    from eoctl.clients.target import TargetOptions
    from eoctl.clock import parse_time_ms
    from eoctl.output import Report, emit, line, use_format
    from eoctl.progress import Progress
    from storage.partition_store import FileChange, FlushPolicy

    use_format(output)
    options = ProduceOptions(
        target=TargetOptions(metadata_dir, topic_id, single_copy),
        apply=apply,
        broker_is_stopped=broker_is_stopped,
        key_separator=None if key_separator is None else separator_bytes(key_separator),
        compression=compression,
        batch_bytes=batch_bytes,
        timestamp_ms=None if timestamp is None else parse_time_ms(timestamp),
        now=now,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        leader_epoch=leader_epoch,
        segment_bytes=segment_bytes,
        index_interval_bytes=index_interval_bytes,
        index_max_bytes=index_max_bytes,
        expiration_ms=producer_expiry_ms,
        flush=FlushPolicy(fsync),
    )
    if batch_records is not None:
        options = options._replace(batch_records=batch_records)
    with ExitStack() as stack:
        opened = open_input(file, stack)
        progress = stack.enter_context(Progress("producing"))
        result = produce(path, Source(opened, file, progress.advance), options)
    emit(Report("append", ProduceReport._fields, [result.report]), output)
    if output is OutputFormat.TEXT:
        line("")
    emit(Report("file", FileChange._fields, result.changes, result.notes), output)
    if result.error is not None:
        raise result.error
