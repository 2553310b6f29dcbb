"""`eoctl produce`: append records to a partition directory, as a producer and its broker would."""

from __future__ import annotations

from contextlib import ExitStack
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

from eoctl import options
from eoctl.change_options import PLAN_ONLY, ChangeOptions, with_change
from eoctl.clients.text.inputs import BytesAs, InputFormat
from eoctl.declared import argument, option
from eoctl.output import OutputFormat
from storage.limits import INT16_MAX, INT32_MAX, INT64_MAX

if TYPE_CHECKING:
    from eoctl.runs.clients.produce_report import ProduceResult


ALL_RECORDS = 2**62  # of the input: one transaction


class Compression(StrEnum):
    """What `--compression` takes."""

    NONE = "none"
    GZIP = "gzip"
    SNAPPY = "snappy"
    LZ4 = "lz4"
    ZSTD = "zstd"


@with_change(without=("save_plan",))
def command(
    path: Annotated[
        str,
        argument(
            metavar="PARTITION",
            help="A directory TOPIC-N, which may not exist yet; with --to-topic a log dir.",
        ),
    ],
    file: Annotated[
        str, argument(metavar="[FILE]", help="Records to append; - is the standard input.")
    ] = "-",
    topic: options.TargetTopic = None,
    partitions: options.PartitionsCount = None,
    input_format: Annotated[
        InputFormat, option("--format", help="Format of the input.")
    ] = InputFormat.LINES,
    bytes_as: Annotated[
        BytesAs, option("--bytes", help="How strings of jsonl and msgpack are read.")
    ] = BytesAs.TEXT,
    key_separator: Annotated[
        str | None, option(metavar="TEXT", help="Separates key and value of each line.")
    ] = None,
    compression: Annotated[
        Compression | None,
        option(help="Compression codec.", show_default="the topic's, or none"),
    ] = None,
    batch_bytes: Annotated[
        int,
        option(min=1, max=INT32_MAX, metavar="N", help="Largest batch, before compression."),
    ] = 16_384,
    batch_records: Annotated[
        int | None, option(min=1, max=INT32_MAX, metavar="N", help="Most records in a batch.")
    ] = None,
    timestamp: Annotated[
        str | None,
        option(metavar="TIME", help="Timestamp of all records.", show_default="the clock"),
    ] = None,
    now: options.WriteNow = None,
    producer_id: Annotated[
        int | None,
        option(
            min=-1,
            max=INT64_MAX,
            metavar="ID",
            help="Producer id; -1: not idempotent.",
            show_default="a new one",
        ),
    ] = None,
    producer_epoch: Annotated[
        int | None,
        option(
            min=0, max=INT16_MAX, metavar="N", help="Producer epoch.", show_default="as in the log"
        ),
    ] = None,
    base_sequence: Annotated[
        int | None,
        option(
            min=0,
            max=INT32_MAX,
            metavar="N",
            help="First sequence number.",
            show_default="what the log expects",
        ),
    ] = None,
    lease: Annotated[
        str | None,
        option(
            metavar="APP", help="Use the producer id leased to this application (eoctl lease-pid)."
        ),
    ] = None,
    leader_epoch: options.LeaderEpoch = None,
    segment_bytes: options.SegmentBytes = None,
    index_interval_bytes: options.IndexIntervalBytes = None,
    index_max_bytes: options.IndexMaxBytes = None,
    producer_expiry_ms: Annotated[
        int, option(min=1, metavar="MS", help="producer.id.expiration.ms of the broker.")
    ] = 86_400_000,
    fsync: options.FsyncChoice = options.Fsync.SEGMENT,
    txn_records: Annotated[
        int | None,
        option(min=1, metavar="N", help="Records in each transaction."),
    ] = None,
    abort_every: Annotated[
        int | None, option(min=1, metavar="N", help="Abort every Nth transaction.")
    ] = None,
    transactional_id: Annotated[
        str | None,
        option(
            metavar="ID", help="Run transactions with the coordinator of this id in the log dir."
        ),
    ] = None,
    transaction_timeout_ms: options.TransactionTimeoutMs = 60_000,
    transaction_version: Annotated[
        int | None,
        option(
            min=0,
            max=2,
            metavar="0|1|2",
            help="transaction.version; 2: a new epoch for each transaction.",
            show_default="2",
        ),
    ] = None,
    coordinator_epoch: Annotated[
        int,
        option(min=0, max=INT32_MAX, metavar="N", help="Coordinator epoch of the markers."),
    ] = 0,
    producer_session: Annotated[
        str | None,
        option(metavar="FILE", help="Keep the position in FILE, so that a second run continues."),
    ] = None,
    acks_to: Annotated[
        str | None,
        option(metavar="FILE", help="Append a line to FILE for each acknowledged batch."),
    ] = None,
    in_flight: Annotated[
        int, option(min=1, max=5, metavar="N", help="Most unacknowledged batches.")
    ] = 1,
    fault: Annotated[
        str | None,
        option(
            metavar="FAULTS", help="Simulate network faults: drop=P,reorder=P,lost-ack=P,seed=N."
        ),
    ] = None,
    topic_id: options.TopicId = None,
    metadata_dir: options.MetadataDir = None,
    single_copy: options.SingleCopy = False,
    change: ChangeOptions = PLAN_ONLY,
    output: options.Output = OutputFormat.TEXT,
) -> None:
    """Append records to a partition directory, as a producer and its broker would.

    Each line of the input is the value of a record. A partition that was not stopped cleanly is
    recovered first. By default the plan is shown; --apply does it, and no broker may be running.
    """
    from eoctl.clients.partitions.open_partition import WriteOptions
    from eoctl.clients.partitions.target import TargetOptions
    from eoctl.clients.producing.producer import parse_faults
    from eoctl.clients.producing.topic_producer import ProduceOptions, Transactions
    from eoctl.clients.text.inputs import open_input, separator_bytes
    from eoctl.clock import parse_time_ms
    from eoctl.progress import Progress
    from eoctl.runs.clients.produce import ProduceInput, produce
    from storage.errors import UsageError
    from storage.writing.partition_store import FlushPolicy

    if txn_records is None and transactional_id is not None:
        txn_records = ALL_RECORDS
    if abort_every is not None and txn_records is None:
        raise UsageError("--abort-every: there are no transactions", next_step="--txn-records N")
    transactions = None
    if txn_records is not None:
        if producer_id == -1:
            raise UsageError("--txn-records: a transaction needs a producer id")
        transactions = Transactions(
            records=txn_records,
            abort_every=abort_every,
            version=2 if transaction_version is None else transaction_version,
            coordinator_epoch=coordinator_epoch,
        )
    transactional = None
    if transactional_id is not None:
        from eoctl.clients.coordinators.log_dir_coordinator import TransactionalOptions

        transactional = TransactionalOptions(
            transactional_id, transaction_timeout_ms, version=transaction_version
        )
    chosen = ProduceOptions(
        target=TargetOptions(metadata_dir, topic_id, single_copy),
        write=WriteOptions(
            compression=compression,
            leader_epoch=leader_epoch,
            segment_bytes=segment_bytes,
            index_interval_bytes=index_interval_bytes,
            index_max_bytes=index_max_bytes,
            expiration_ms=producer_expiry_ms,
            flush=FlushPolicy(fsync),
            change=change,
        ),
        topic=topic,
        partitions_count=partitions,
        now=now,
        input_format=input_format,
        bytes_as=bytes_as,
        key_separator=None if key_separator is None else separator_bytes(key_separator),
        batch_bytes=batch_bytes,
        timestamp_ms=None if timestamp is None else parse_time_ms(timestamp),
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        transactions=transactions,
        transactional=transactional,
        lease=lease,
        session=producer_session,
        in_flight=in_flight,
        faults=None if fault is None else parse_faults(fault),
        acks_to=acks_to,
    )
    if batch_records is not None:
        chosen = chosen._replace(batch_records=batch_records)
    with ExitStack() as stack:
        opened = open_input(file, stack)
        progress = stack.enter_context(Progress("producing"))
        result = produce(path, ProduceInput(opened, file, progress.advance), chosen)
    _report(result, output, has_backup=not change.no_backup)


def _report(result: ProduceResult, output: OutputFormat, *, has_backup: bool) -> None:
    from eoctl.output import Report
    from eoctl.runs.appended import AppendedRows, show_appended
    from eoctl.runs.clients.produce_report import ProduceReport, answer_of

    reports = [Report("append", ProduceReport._fields, result.reports)]
    if result.link is not None:
        reports.append(Report("link", tuple(result.link), [tuple(result.link.values())]))
    show_appended(
        AppendedRows(
            reports=reports,
            recoveries=result.recoveries,
            changes=result.changes,
            notes=result.notes,
            error=result.error,
            answer=answer_of(result.reports),
            journal=result.journal,
            has_backup=has_backup,
        ),
        output,
    )
