"""The reports of `eoctl txn describe`, `torn` and `stats`."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from eoctl.clock import format_time_ms
from eoctl.commands.shared.audit_run import VERIFIED as AUDIT_VERIFIED
from eoctl.commands.shared.audit_run import AuditOptions, run_audit
from eoctl.commands.shared.engine import EngineOptions
from eoctl.commands.txn.readers import VERIFIED, known
from eoctl.messages import UNREAD, Said
from eoctl.options import EngineName
from eoctl.output import PLACE, Columns
from recovery.audit.reports import COLUMNS as AUDIT_COLUMNS
from recovery.replay.recover_state import recover_state
from recovery.replay.snapshots import Clock
from recovery.rules.findings import Severity
from recovery.transactions.open_transactions import PreparedSearch
from storage.counts import counted
from storage.file_names import TRANSACTION_STATE_TOPIC
from storage.formats.transaction_state import TransactionStatus
from storage.producers.pairs import NO_DATA

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from eoctl.commands.txn.readers import TxnContext
    from eoctl.progress import Progress
    from recovery.cluster.coordinator_log import CoordinatorLog, IdRecord
    from storage.dirs.partition import Partition


Row = tuple[Any, ...]
ALL_VERIFIED = (
    "verified: headers and checksums of all batches, records of __transaction_state; records of "
    "other topics were not decompressed"
)

ID_COLUMNS = Columns((
    *("transactional_id", "producer_id", "producer_epoch", "status", "timeout_ms"),
    *("partitions", "not_here", "start_timestamp_ms", "last_update_timestamp_ms"),
    *("previous_producer_id", "next_producer_id", "client_transaction_version"),
    *("coordinator_partition", "coordinator_epoch", "record_offset"),
), answers=(
    "transactional_id", "producer_id", "producer_epoch", "status", "partitions",
    "last_update_timestamp_ms",
))  # fmt: skip
TORN_COLUMNS = Columns((
    *("why", "transactional_id", "producer_id", "producer_epoch", "topic", "partition", "offset"),
    *("committed_in", "aborted_in", "open_in", "without_marker", "not_here", "detail"),
), answers=(
    "why", "transactional_id", "producer_id", *PLACE, "committed_in", "aborted_in", "open_in",
    "not_here",
))  # fmt: skip
STATS_COLUMNS = Columns((
    *("topic", "partition", "committed_count", "aborted_count", "open_count"),
    *("empty_markers_count", "producers_count", "longest_offsets_count", "oldest_open_offset"),
    *("oldest_open_age_ms", "last_stable_offset", "log_end_offset", "path"),
), answers=(
    *PLACE, "committed_count", "aborted_count", "open_count", "last_stable_offset",
    "oldest_open_age_ms",
))  # fmt: skip
COORDINATOR_COLUMNS = ("status", "ids_count", "oldest_update_timestamp_ms", "partitions_read")
FORGOTTEN = "forgotten"  # a tombstone


# --- describe -------------------------------------------------------------------------------------


def find_ids(
    context: TxnContext, transactional_id: str | None, producer_id: int | None
) -> list[tuple[CoordinatorLog, IdRecord]]:
    """Find the newest record of an id, or of the id that a producer id belongs to."""
    found = []
    for log in context.logs:
        if transactional_id is not None:
            record = log.ids.get(transactional_id)
        else:
            record = None if producer_id is None else log.owner_of(producer_id)
        if record is not None:
            found.append((log, record))
    return found


def where_it_would_be(context: TxnContext, transactional_id: str) -> str:
    """Return which partition of the coordinators' topic an id without a record belongs to."""
    for log in context.logs:
        number = log.partition_of(transactional_id)
        if number is not None:
            name = f"__transaction_state-{number}"
            what = "which has none" if log.has_whole(number) else "which was not given or not whole"
            return f"no record of {transactional_id!r}: it would be in {name}, {what}"
    return f"no record of {transactional_id!r}; which partition it belongs to is unknown"


def who_has_it(context: TxnContext, producer_id: int) -> str:
    """Return how certain it is that no transactional id has a producer id."""
    what = f"no record of producer id {producer_id}"
    if context.logs and all(each.is_complete for each in context.logs):
        return f"{what}: no transactional id has it"
    return f"{what} in what was given of {TRANSACTION_STATE_TOPIC}, which is not all of it"


def id_row(context: TxnContext, log: CoordinatorLog, record: IdRecord) -> Row:
    """Return a row of ID_COLUMNS."""
    place = log.partitions[record.partition]
    end = (record.partition, known(place.leader_epoch), record.offset)
    state = record.state
    if state is None:
        return (record.transactional_id, None, None, FORGOTTEN, *([None] * 8), *end)
    partitions = sorted(state.partitions or ())
    return (
        record.transactional_id,
        state.producer_id,
        state.producer_epoch,
        state.status.label,
        state.timeout_ms,
        [f"{topic}-{number}" for topic, number in partitions],
        [
            f"{topic}-{number}"
            for topic, number in partitions
            if (topic, number) not in given(context)
        ],
        known(state.start_timestamp_ms),
        known(state.last_update_timestamp_ms),
        known(state.previous_producer_id),
        known(state.next_producer_id),
        state.client_transaction_version,
        *end,
    )


def given(context: TxnContext) -> set[tuple[str, int]]:
    """Return the partitions that were given, by topic and number."""
    names = (each.partition.name for each in context.found.selected)
    return {(each.topic, each.partition) for each in names}


# --- torn -----------------------------------------------------------------------------------------


def torn_rows(
    context: TxnContext, paths: Sequence[str], *, old_in: Collection[str] | None = None
) -> list[Row]:
    """Return rows of TORN_COLUMNS.

    If several replicas of a partition were given, the replica that reaches furthest is compared
    with other partitions. Every replica is checked by itself.

    Args:
        context: the partitions, and their coordinators.
        paths: the paths whose partitions are compared.
        old_in: directories to search for markers of older coordinators, None for all.
    """
    rows = _outcome_rows(context, paths) if paths else []
    rows += context.each_partition(
        lambda partition, _: _old_markers(context, partition), only=old_in
    )
    return rows + _prepared_rows(context)


def _outcome_rows(context: TxnContext, paths: Sequence[str]) -> list[Row]:
    options = AuditOptions(
        engine=EngineOptions(EngineName.LOCAL), coordinator_dirs=context.options.coordinator_dirs
    )
    result = run_audit(paths, options)
    context.is_corrupt |= result.is_corrupt
    context.is_unreadable |= result.is_unreadable
    # One note says what both read. Nobody chose the engine.
    context.notes[context.notes.index(VERIFIED)] = ALL_VERIFIED
    ours = {*context.notes, AUDIT_VERIFIED}
    context.notes += [
        each for each in result.notes if each not in ours and not each.startswith("engine: ")
    ]
    rows = [_outcome_row(context, row) for row in result.audit.rows("torn")]
    ids = {row[0]: row[2] for row in result.audit.rows("torn")}
    for row in result.audit.rows("violations"):
        values = dict(zip(AUDIT_COLUMNS["violations"], row, strict=True))
        if values["violation"] == "data-after-marker":
            rows.append(_late_row(context, values, ids))
    return rows


def _name_of(context: TxnContext, producer_id: int) -> str | None:
    owners = (log.owner_of(producer_id) for log in context.logs)
    return next((each.transactional_id for each in owners if each is not None), None)


def _outcome_row(context: TxnContext, row: Sequence[Any]) -> Row:
    producer_id, epoch, transactional_id, why, committed, aborted, opened, offset = row
    listed: set[tuple[str, int]] = set()
    for log in context.logs:
        owner = log.owner_of(producer_id)
        if owner is not None and owner.state and owner.state.producer_id == producer_id:
            listed |= {*(owner.state.partitions or ())}
    not_here = sorted(f"{topic}-{number}" for topic, number in listed - given(context))
    place: tuple[Any, ...] = (None, None)
    if opened:
        topic, _, number = opened[0].rpartition("-")
        place = (topic, int(number))
    return (
        *(why, transactional_id, producer_id, epoch, *place, offset),
        *(committed, aborted, opened, [], not_here, None),
    )


def _late_row(context: TxnContext, values: dict[str, Any], ids: dict[int, str | None]) -> Row:
    producer_id = values["producer_id"]
    name = ids.get(producer_id) or _name_of(context, producer_id)
    detail = f"data of epoch {values['found']} behind a marker of epoch {values['expected']}"
    place = values["topic"], values["partition"], values["offset"]
    why = values["violation"]
    return (why, name, producer_id, values["found"], *place, [], [], [], [], [], detail)


def _old_markers(context: TxnContext, partition: Partition) -> Iterator[Row]:
    """Yield PRD-5: a marker with an older coordinator epoch than its producer's previous marker."""
    state = recover_state(partition, Clock(context.moment.ms), from_scratch=True)
    for each in dict.fromkeys(state.violations):
        if each.check_id == "PRD-5":
            place = partition.topic, partition.partition, each.offset
            detail = f"coordinator epoch {each.found} behind one of {each.expected}"
            name = _name_of(context, each.producer_id)
            yield (
                *("older-coordinator-epoch", name, each.producer_id, None, *place),
                *([], [], [], [], [], detail),
            )


def _prepared_rows(context: TxnContext) -> list[Row]:
    searches = {id(log): PreparedSearch(log) for log in context.logs}

    def read(partition: Partition, _: Progress) -> Iterator[Row]:
        log = context.coordinators(partition.log_dir)
        name = partition.topic, partition.partition
        search = None if log is None else searches[id(log)]
        if search is not None and name in search.listed:
            opened, _state = context.open_of(partition)
            search.add_partition(*name, {each.producer_id for each in opened})
            for block in context.read_ended(partition) if search.is_needed else ():
                search.add_ended(*name, block)
        yield from ()

    if any(each.is_needed for each in searches.values()):
        for _row in context.each_partition(read):
            pass
    rows = []
    for search in searches.values():
        for each in search.found():
            place = TRANSACTION_STATE_TOPIC, each.coordinator_partition, None
            places = (
                *(list(each.committed_in), list(each.aborted_in), list(each.open_in)),
                *(list(each.without_marker), list(each.not_here)),
            )
            name = each.transactional_id, each.producer_id, each.producer_epoch
            detail = f"{each.status.label} since {format_time_ms(each.last_update_timestamp_ms)}"
            rows.append(("prepare-not-completed", *name, *place, *places, detail))
    return rows


# --- stats ----------------------------------------------------------------------------------------


def stats_rows(context: TxnContext) -> Iterator[Row]:
    """Yield a row of STATS_COLUMNS for each partition."""

    def read(partition: Partition, progress: Progress) -> Iterator[Row]:
        import numpy as np

        opened, state = context.open_of(partition)
        committed = aborted = empty = longest = 0
        producer_ids = {each.producer_id for each in opened}
        for block in context.read_ended(partition, progress):
            has_data = block.first_offset != NO_DATA
            empty += int((~has_data).sum())
            aborted += int((has_data & block.is_abort).sum())
            committed += int((has_data & ~block.is_abort & ~block.is_unknown).sum())
            if has_data.any():
                span = (block.marker_offset - block.first_offset)[has_data]
                longest = max(longest, int(span.max()))
            producer_ids.update(np.unique(block.producer_id[has_data]).tolist())
        oldest = opened[0] if opened else None
        end_offset = state.offset
        high_watermark = partition.high_watermark
        stable = None
        if high_watermark is not None:
            stable = min(high_watermark, end_offset)
            stable = stable if oldest is None else min(stable, oldest.first_offset)
        yield (
            *(partition.topic, known(partition.partition), committed, aborted, len(opened)),
            *(empty, len(producer_ids), longest),
            None if oldest is None else oldest.first_offset,
            None if oldest is None else oldest.age_ms,
            *(stable, end_offset, partition.path),
        )

    return context.each_partition(read)


def coordinator_rows(context: TxnContext) -> Iterator[Row]:
    """Yield a row of COORDINATOR_COLUMNS for each status of the ids."""
    for log in context.logs:
        updates: dict[str, list[int]] = {}
        for record in log.ids.values():
            state = record.state
            name = FORGOTTEN if state is None else state.status.label
            update = -1 if state is None else state.last_update_timestamp_ms
            updates.setdefault(name, []).append(update)
        order = [*(each.label for each in TransactionStatus), FORGOTTEN]
        for name in sorted(updates, key=order.index):
            oldest = min((each for each in updates[name] if each >= 0), default=None)
            yield name, len(updates[name]), oldest, sorted(log.partitions)


def stats_lines(rows: Sequence[Row], ids: Sequence[Row], *, is_whole: bool) -> Iterator[Said]:
    """Yield the number of transactions, and the states of the coordinators' ids.

    `is_whole`: the logs were read completely.
    """
    unread = "" if is_whole else UNREAD
    names = ("committed_count", "aborted_count", "open_count")
    sums = {each: sum(row[STATS_COLUMNS.index(each)] for row in rows) for each in names}
    reported = ", ".join(f"{count:,} {name.partition('_')[0]}" for name, count in sums.items())
    yield Said("Counts", f"{reported}, in {counted(len(rows), 'partition')}{unread}")
    states = ", ".join(f"{row[1]:,} {row[0]}" for row in ids)
    yield Said("Ids", states or "no coordinator's log is here")


def torn_lines(rows: Sequence[Row], *, is_whole: bool) -> Iterator[Said]:
    """Yield the number of torn transactions by kind. `is_whole`: everything was read."""
    unread = "" if is_whole else UNREAD
    if not rows:
        yield Said("Torn", f"no transaction{unread}", 0 if is_whole else Severity.WARNING.rank)
        return
    whys = Counter(row[TORN_COLUMNS.index("why")] for row in rows)
    reported = ", ".join(f"{count:,} {why}" for why, count in whys.most_common())
    count = counted(len(rows), "transaction")
    yield Said("Torn", f"{count}: {reported}{unread}", Severity.ERROR.rank)
