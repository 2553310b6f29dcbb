"""The notes before and after consumed records: isolation, open transactions, losses."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eoctl import output
from eoctl.clients.log.consumer import EndKind
from recovery.transactions.isolation import Isolation
from storage.counts import counted
from storage.errors import EXIT_FINDINGS, pasted

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from eoctl.clients.log.consumer import ConsumeOptions, Consumer, MergedConsumers
    from recovery.transactions.view import TransactionView


SHOWN_TRANSACTIONS = 10


VERIFIED = "verified: checksums and contents of all data batches read"


def report_before(consumer: Consumer, options: ConsumeOptions) -> None:
    """Print limits of the result: a running broker, open transactions, an incomplete index."""
    report_limits(consumer)
    view = consumer.view
    if view is not None and options.isolation is Isolation.READ_COMMITTED:
        gap = view.index_gap()
        if gap is not None:
            output.message(
                f"the .txnindex files lack {gap.missing_count} aborted transactions (the first:"
                f" producer id {gap.producer_id} from offset {gap.first_offset}). A broker would"
                f" show their records; eoctl rebuild {pasted(consumer.partition.path)}"
            )


def report_limits(consumer: Consumer) -> None:
    """Print that a broker is running, and which open transactions block later records."""
    log_dir = consumer.partition.log_dir
    if log_dir is not None and log_dir.lock.is_held:
        holder = log_dir.lock.holder
        output.message(f"{log_dir.path}: in use by {holder}; its log may grow while it is read")
    if consumer.view is not None:
        _report_open(consumer.view)


def _report_open(view: TransactionView) -> None:
    from recovery.replay.recover_state import exposed_text

    for each in view.exposed[:SHOWN_TRANSACTIONS]:
        output.message(exposed_text(*each), level="warning", **each._asdict())
    transactions = view.open_transactions
    for each in transactions[:SHOWN_TRANSACTIONS]:
        output.message(
            f"open transaction: producer id {each.producer_id} from offset {each.first_offset}",
            producer_id=each.producer_id,
            first_offset=each.first_offset,
        )
    if len(transactions) > SHOWN_TRANSACTIONS:
        output.message(f"and {len(transactions) - SHOWN_TRANSACTIONS} more open transactions")
    stable_offset, end_offset = view.last_stable_offset, view.log_end_offset
    if stable_offset < end_offset:
        held_count = end_offset - stable_offset
        output.message(
            f"the last stable offset is {stable_offset}, {held_count} offsets before the log end"
            f" {end_offset}",
            last_stable_offset=stable_offset,
            log_end_offset=end_offset,
        )


def report_skipped(consumer: Consumer) -> None:
    """Print the ranges that gave no records."""
    reader = consumer.reader
    for each in [] if reader is None else reader.skipped:
        output.message(f"skipped: {each.with_offsets}", level="warning", **each.fields)
    for each in [] if reader is None else reader.noted:
        output.message(f"damaged, and given: {each.with_offsets}", level="warning", **each.fields)
    if reader is not None and reader.wrong_end is not None:
        end = reader.wrong_end
        output.message(f"behind the last batch: {end.with_offsets}", level="warning", **end.fields)


def report_after(consumer: Consumer, options: ConsumeOptions) -> int:
    """Print what was consumed and how it ended, and return the exit status."""
    status = _report_end(consumer, options)
    output.message(_summary(consumer))
    return status


def report_after_topic(
    consumers: Sequence[Consumer], merged: MergedConsumers, options: ConsumeOptions
) -> int:
    """Print the same for all partitions of a topic, and return the exit status."""
    status = status_of_all([_report_end(each, options) for each in consumers])
    partitions = counted(len(consumers), "partition")
    output.message(f"{counted(merged.records_count, 'record')} of {partitions}; {VERIFIED}")
    return status


def status_of_all(statuses: Collection[int]) -> int:
    """Return the exit status of several partitions, where damage outranks skipped parts."""
    return EXIT_FINDINGS if EXIT_FINDINGS in statuses else max(statuses)


def _report_end(consumer: Consumer, options: ConsumeOptions) -> int:
    partition = consumer.partition
    end_offset = consumer.consumed.next_offset
    high_watermark = partition.high_watermark
    not_given = [] if options.max_messages else consumer.not_given()
    is_to_end = options.end.kind is EndKind.LOG_END and not (options.max_messages or not_given)
    if is_to_end and high_watermark is not None and high_watermark < end_offset:
        output.message(
            f"the high watermark was checkpointed as {high_watermark}: what follows it may be"
            " missing on other replicas, and --until hw leaves it out"
        )
    for each in (*consumer.around, *partition.problems, *partition.notes):
        output.message(str(each))
    for missing in [each for each in not_given if each not in consumer.reported_gaps]:
        output.message(f"{partition.path}: {missing}", level="warning", **missing._asdict())
    return consumer.status(not_given)


def _summary(consumer: Consumer) -> str:
    found = consumer.consumed
    noun = "record" if found.records == 1 else "records"
    offsets = "" if not found.records else f", offsets {found.first_offset} to {found.last_offset}"
    return f"{found.records} {noun}{offsets}; next offset {found.next_offset}; {VERIFIED}"
