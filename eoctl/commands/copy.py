"""`eoctl copy`: append what a partition has to another one, exactly once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from eoctl import options
from eoctl.change_options import PLAN_ONLY, ChangeOptions, with_change
from eoctl.declared import argument, option
from eoctl.options import Compare
from eoctl.output import OutputFormat
from recovery.transactions.isolation import Isolation
from storage.limits import INT64_MAX

if TYPE_CHECKING:
    from eoctl.runs.clients.copy import CopyResult


@with_change(without=("save_plan",))
def command(
    source: Annotated[
        str, argument(metavar="SRC", help="A directory TOPIC-N; with --to-topic a log dir.")
    ],
    destination: Annotated[
        str, argument(metavar="DST", help="Target partition; it need not exist yet.")
    ],
    topic: Annotated[
        str | None,
        option(
            "--to-topic",
            "--topic",
            metavar="TOPIC",
            help="Copy each partition of this topic to the one of the same number.",
        ),
    ] = None,
    isolation: Annotated[
        Isolation, option(help="Isolation level for reading the source.")
    ] = Isolation.READ_COMMITTED,
    start: Annotated[
        str,
        option(
            "--from",
            metavar="WHERE",
            help="Where a new session starts: earliest, latest, an offset or a time.",
        ),
    ] = "earliest",
    until: Annotated[
        str, option(metavar="WHERE", help="Stop before log-end, hw, lso or an offset.")
    ] = "log-end",
    follow: Annotated[
        bool, option("--follow", "-f", help="Wait for new records of the source.")
    ] = False,
    session: Annotated[
        str | None,
        option(
            metavar="FILE",
            help="Save the position in FILE.",
            show_default="in LOG-DIR.eoctl/copies",
        ),
    ] = None,
    producer_id: Annotated[
        int | None,
        option(
            min=0,
            max=INT64_MAX,
            metavar="ID",
            help="Producer id of the copy.",
            show_default="its own",
        ),
    ] = None,
    compare: Annotated[
        Compare,
        option(help="Compare at the end what this run copied, everything, or nothing."),
    ] = Compare.RUN,
    no_compare: Annotated[bool, option("--no-compare", help="Same as --compare none.")] = False,
    fsync: options.FsyncChoice = options.Fsync.SEGMENT,
    now: options.WriteNow = None,
    leader_epoch: options.LeaderEpoch = None,
    segment_bytes: options.SegmentBytes = None,
    index_interval_bytes: options.IndexIntervalBytes = None,
    index_max_bytes: options.IndexMaxBytes = None,
    topic_id: options.TopicId = None,
    metadata_dir: options.MetadataDir = None,
    single_copy: options.SingleCopy = False,
    change: ChangeOptions = PLAN_ONLY,
    output: options.Output = OutputFormat.TEXT,
) -> int:
    """Append what a partition has to another one, exactly once, and compare the two.

    Batches go as bytes, under a producer id of the copier. A second run goes on behind what the
    destination has. By default the plan is shown; --apply does it, with no broker on DST; one may
    be running on SRC, which is only read.
    """
    from eoctl.clients.log.consumer import ConsumeOptions, EndKind, parse_end, parse_start
    from eoctl.clients.partitions.open_partition import WriteOptions
    from eoctl.clients.partitions.target import TargetOptions
    from eoctl.runs.clients.copy import CopyOptions, copy
    from storage.errors import UsageError
    from storage.writing.partition_store import FlushPolicy

    end = parse_end(until)
    if follow and end.kind is EndKind.OFFSET:
        raise UsageError("--follow has no end, and --until OFFSET is one")
    if no_compare and compare is Compare.ALL:
        raise UsageError("--no-compare and --compare all: one of them")
    chosen = CopyOptions(
        consume=ConsumeOptions(parse_start(start), end, isolation, follow=follow),
        target=TargetOptions(metadata_dir, topic_id, single_copy),
        write=WriteOptions(
            leader_epoch=leader_epoch,
            segment_bytes=segment_bytes,
            index_interval_bytes=index_interval_bytes,
            index_max_bytes=index_max_bytes,
            flush=FlushPolicy(fsync),
            change=change,
        ),
        topic=topic,
        now=now,
        session=session,
        producer_id=producer_id,
        compare=Compare.NONE if no_compare else compare,
    )
    result = copy(source, destination, chosen)
    _report(result, output, has_backup=not change.no_backup)
    return result.status


def _report(result: CopyResult, output: OutputFormat, *, has_backup: bool) -> None:
    from eoctl.output import Report
    from eoctl.runs.appended import AppendedRows, show_appended
    from eoctl.runs.clients.copy import CopyReport, answer_of

    report = Report("copy", CopyReport._fields, result.reports)
    show_appended(
        AppendedRows(
            reports=[report],
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
