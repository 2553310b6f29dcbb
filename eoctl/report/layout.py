"""The lanes that a page draws and their detail: the worst first, the rest summed up and counted."""

from __future__ import annotations

from collections import Counter, defaultdict
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple

from eoctl.console.columns import duration_text
from storage.counts import agreeing, counted

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from eoctl.report.model import HeldMark, Model, PartitionMark, TransactionMark, VolumeMark

VOLUME_BUDGET = 24_000  # bins of all lanes together, for both axes
COMMITTED_BUDGET = 40_000  # bars of committed transactions
MARKS_BUDGET = 200_000  # of aborted transactions. Open transactions and findings are always drawn
LEAST_BINS = 48
LEAST_BARS = 100
_PLAIN = "committed"
READ_END = "read up to"  # instead of the log end, if that is unknown
DIVERGED = ("diverged", "disjoint", "unknown")  # replicas that contradict each other, or may


class Lane(NamedTuple):
    """A lane of the timelines.

    Attributes:
        kind: `partition`, `id`, `producer`, `leader` or `broker`.
        key: the common key of its rows: a directory, an id.
        title: its label. `note`: a smaller label.
        first_offset, end_offset: of its axis of offsets. None: it has no such axis.
        marks: offsets of lines across it, by name.
        is_unread: nothing of it could be read, so that an empty lane has no meaning.
        is_healthy: a partition without findings and without an open transaction.
    """

    kind: str
    key: str
    title: str
    note: str
    first_offset: int | None = None
    end_offset: int | None = None
    marks: tuple[tuple[str, int], ...] = ()
    is_unread: bool = False
    is_healthy: bool = False


class LaidOut(NamedTuple):
    """The content of the page's picture.

    Attributes:
        lanes: in order.
        model: with as many rows as the page has room for.
        left_out: sentences about the rest.
    """

    lanes: tuple[Lane, ...]
    model: Model
    left_out: tuple[str, ...]


def lay_out(model: Model, max_lanes: int) -> LaidOut:
    """Choose the lanes, and sum up rows that would not fit."""
    left_out: list[str] = []
    partitions = _chosen(model, max_lanes, left_out)
    ids = _most(_by_id(model), max_lanes, "transactional ids", left_out)
    producers = _most(_by_producer(model), max_lanes, "producer ids", left_out)
    leaders = _most(_leaders(model, partitions), max_lanes, "partitions' leaders", left_out)
    brokers = _most(_brokers(model), max_lanes, "brokers", left_out)
    held = {each.path: each for each in model.held}
    copies = Counter(map(_name_of, partitions))
    wrong = concerned_paths(model)
    drawn = [
        _partition_lane(
            each,
            held.get(each.path),
            is_alone=copies[_name_of(each)] == 1,
            is_healthy=each.path not in wrong,
            now_ms=model.now_ms,
        )
        for each in partitions
    ]
    lanes = [*drawn, *brokers, *leaders, *ids, *producers]
    keys = {(each.kind, each.key) for each in lanes}
    paths = {each.path for each in partitions}
    aborted_count = sum(each.state == "aborted" for each in model.transactions)
    keeps_aborted = aborted_count <= MARKS_BUDGET
    if not keeps_aborted:
        left_out.append(
            f"{aborted_count:,} aborted transactions are drawn summed up: --output jsonl has each"
        )
    thin = model._replace(
        volume=tuple(_thin_volume(model.volume, paths)),
        transactions=tuple(_thin_transactions(model.transactions, paths, keeps=keeps_aborted)),
        segments=tuple(each for each in model.segments if each.path in paths),
        epochs=tuple(each for each in model.epochs if each.path in paths),
        states=tuple(each for each in model.states if ("id", each.transactional_id) in keys),
        producers=tuple(
            each for each in model.producers if ("producer", str(each.producer_id)) in keys
        ),
        changes=tuple(
            each
            for each in model.changes
            if ("broker", str(each.broker)) in keys
            or ("leader", f"{each.topic}-{each.partition}") in keys
            or each.what == "unread"
        ),
    )
    return LaidOut(tuple(lanes), thin, (*model.left_out, *left_out))


def concerned_paths(model: Model) -> set[str]:
    """Return the directories with a finding, an open transaction, or a replica that differs."""
    found = {each.path for each in model.findings}
    found |= {each.path for each in model.held} | {each.path for each in model.duplicates}
    found |= {each.path for each in model.transactions if each.state in ("open", "unknown")}
    for pair in model.comparisons:
        if pair.likeness != "equal":
            found |= {pair.path, pair.other_path}
    for row in model.partitions:
        if row.errors or row.warnings or row.notes or row.unreadable or row.batches is None:
            found.add(row.path)
    return found


def ranked_partitions(model: Model) -> list[PartitionMark]:
    """Return the partitions, partitions with problems first."""
    wrong = {each.path for each in model.held}
    for each in model.comparisons:
        if each.likeness in DIVERGED:
            wrong |= {each.path, each.other_path}
    return sorted(model.partitions, key=lambda each: _weight(each, wrong))


def _chosen(model: Model, max_lanes: int, left_out: list[str]) -> list[PartitionMark]:
    ranked = ranked_partitions(model)
    others = ranked[max_lanes:]
    if not others:
        return ranked
    batches = sum(each.batches or 0 for each in others)
    findings = sum((each.errors or 0) + (each.warnings or 0) for each in others)
    left_out.append(
        f"{counted(len(others), 'more partition')} {agreeing(len(others), 'is', 'are')} not drawn"
        f" ({counted(batches, 'batch', 'batches')}, {findings:,} errors and warnings):"
        " --max-lanes, or --topic"
    )
    return ranked[:max_lanes]


def _weight(row: PartitionMark, wrong_paths: set[str]) -> tuple[Any, ...]:
    is_unread = row.batches is None or bool(row.unreadable)
    is_own = row.topic.startswith("__")
    wrong = (not is_unread, -(row.errors or 0), row.path not in wrong_paths, -(row.warnings or 0))
    return (*wrong, is_own, not row.batches, row.topic, row.partition or 0, row.path)


def _name_of(row: PartitionMark) -> tuple[str, int | None, int | None]:
    return row.topic, row.partition, row.broker


def _partition_lane(
    row: PartitionMark, held: HeldMark | None, *, is_alone: bool, is_healthy: bool, now_ms: int
) -> Lane:
    first = row.local_log_start_offset
    marks = [
        ("log start", row.log_start_offset),
        ("recovery point", row.recovery_point),
        ("HW", row.high_watermark),
        ("LSO", row.last_stable_offset),
        (READ_END if row.is_end_read is False else "log end", row.end_offset),
    ]
    known = [each for _, each in marks if each is not None]
    notes = []
    is_unread = not row.batches and (row.batches is None or bool(row.unreadable))
    if is_unread or row.unreadable:
        notes.append("not read" if is_unread else "a part was not read")
        if row.is_end_read is False:
            notes[-1] += f", log end {row.end_offset} at least"
    if held is not None and held.held_offsets_count is not None:
        count = held.held_offsets_count
        notes.append(f"{counted(count, 'offset')} blocked")
        if held.since_timestamp_ms is not None:
            notes[-1] += f" for {duration_text(max(now_ms - held.since_timestamp_ms, 0))}"
    if row.broker is not None:
        notes.append(f"broker {row.broker}")
    if not is_alone:
        notes.append(row.path)
    return Lane(
        kind="partition",
        key=row.path,
        title=f"{row.topic}-{row.partition}",
        note=", ".join(notes),
        first_offset=min(known, default=0 if first is None else first),
        end_offset=max([*known, 1]),
        marks=tuple((name, each) for name, each in marks if each is not None),
        is_unread=is_unread,
        is_healthy=is_healthy,
    )


def _most(
    lanes: Iterable[tuple[int, Lane]], max_lanes: int, what: str, left_out: list[str]
) -> list[Lane]:
    """Return the lanes of the greatest weight, in their order."""
    weighed = list(lanes)
    if len(weighed) <= max_lanes:
        return [each for _, each in weighed]
    ranked = sorted(weighed, key=lambda each: -each[0])
    chosen = {each.key for _, each in ranked[:max_lanes]}
    left_out.append(f"{len(weighed) - max_lanes:,} more {what} are not drawn: --max-lanes")
    return [each for _, each in weighed if each.key in chosen]


def _by_id(model: Model) -> Iterator[tuple[int, Lane]]:
    open_ids = {each.transactional_id for each in model.transactions if each.state == "open"}
    counts: dict[str, int] = defaultdict(int)
    for each in model.states:
        counts[each.transactional_id] += 1
    for name, count in counts.items():
        yield (name in open_ids) * (1 << 40) + count, _other("id", name, name, "transactional id")


def _by_producer(model: Model) -> Iterator[tuple[int, Lane]]:
    batches: dict[int, int] = defaultdict(int)
    names: dict[int, str | None] = {}
    for each in model.producers:
        batches[each.producer_id] += each.batches
        names[each.producer_id] = each.transactional_id
    opened = {each.producer_id for each in model.transactions if each.state == "open"}
    for producer_id, count in sorted(batches.items()):
        title = f"producer {producer_id}"
        weight = (producer_id in opened) * (1 << 40) + count
        yield weight, _other("producer", str(producer_id), title, names[producer_id] or "")


def _leaders(model: Model, partitions: Sequence[PartitionMark]) -> Iterator[tuple[int, Lane]]:
    shown = {f"{each.topic}-{each.partition}" for each in partitions}
    counts: dict[str, int] = defaultdict(int)
    for each in model.changes:
        name = f"{each.topic}-{each.partition}"
        if each.what == "partition" and name in shown:
            counts[name] += 1 + each.is_unclean * (1 << 30)
    for name, weight in sorted(counts.items()):
        yield weight, _other("leader", name, name, "leader, ISR")


def _brokers(model: Model) -> Iterator[tuple[int, Lane]]:
    known = sorted({each.broker for each in model.changes if each.broker is not None})
    for each in known:
        yield 1, _other("broker", str(each), f"broker {each}", "registration")


def _other(kind: str, key: str, title: str, note: str) -> Lane:
    return Lane(kind=kind, key=key, title=title, note=note)


# --- summing up -----------------------------------------------------------------------------------


def _thin_volume(rows: Sequence[VolumeMark], paths: set[str]) -> Iterator[VolumeMark]:
    limit = max(VOLUME_BUDGET // max(2 * len(paths), 1), LEAST_BINS)
    groups: dict[tuple[str, str], list[VolumeMark]] = defaultdict(list)
    for each in rows:
        if each.path in paths:
            groups[each.path, each.axis].append(each)
    for group in groups.values():
        yield from _widened(group, limit)


def _widened(group: Sequence[VolumeMark], limit: int) -> Iterator[VolumeMark]:
    """Yield at most `limit` bins, doubling their width as often as necessary."""
    width, starts = group[0].end - group[0].start, [each.start for each in group]
    if len(starts) <= limit:
        yield from group
        return
    while len(starts) > limit:
        width *= 2
        starts = list(dict.fromkeys(each // width * width for each in starts))
    for start, rows in groupby(group, lambda each: each.start // width * width):
        yield _summed(start, start + width, *rows)


def _summed(start: int, end: int, *rows: VolumeMark) -> VolumeMark:
    """Return one bin for several."""
    if len(rows) == 1:
        return rows[0]._replace(start=start, end=end)
    columns = dict(zip(rows[0]._fields, zip(*rows, strict=True), strict=True))
    times = (each for each in columns["last_timestamp_ms"] if each is not None)
    return rows[0]._replace(
        start=start,
        end=end,
        batches=sum(columns["batches"]),
        records=sum(columns["records"]),
        log_bytes=sum(columns["log_bytes"]),
        first_offset=min(columns["first_offset"]),
        last_offset=max(columns["last_offset"]),
        first_timestamp_ms=_least_of(columns["first_timestamp_ms"]),
        last_timestamp_ms=max(times, default=None),
        goes_back=any(columns["goes_back"]),
    )


def _thin_transactions(
    rows: Sequence[TransactionMark], paths: set[str], *, keeps: bool
) -> Iterator[TransactionMark]:
    """Yield all open transactions, aborted transactions if room is left, sums of the others."""
    groups: dict[str, dict[str, list[TransactionMark]]] = defaultdict(lambda: defaultdict(list))
    for each in rows:
        is_summed = each.state == _PLAIN or (each.state == "aborted" and not keeps)
        if not is_summed:
            yield each
        elif each.path in paths:
            groups[each.path][each.state].append(each)
    limit = max(COMMITTED_BUDGET // max(len(paths), 1), LEAST_BARS)
    for by_state in groups.values():
        for group in by_state.values():
            step = -(-len(group) // limit)
            for start in range(0, len(group), step):
                yield _one_bar(group[start : start + step])


def _one_bar(group: Sequence[TransactionMark]) -> TransactionMark:
    """Return one bar for several neighbours."""
    first = group[0]
    if len(group) == 1:
        return first
    ids = {each.producer_id for each in group}
    is_one = len(ids) == 1
    return first._replace(
        producer_id=first.producer_id if is_one else None,
        producer_epoch=None,
        transactional_id=first.transactional_id if is_one else None,
        transactions=sum(each.transactions for each in group),
        last_offset=max(each.last_offset or 0 for each in group),
        first_timestamp_ms=_least_of(each.first_timestamp_ms for each in group),
        last_timestamp_ms=max(
            (e.last_timestamp_ms for e in group if e.last_timestamp_ms is not None), default=None
        ),
        batches=sum(each.batches or 0 for each in group),
        records=sum(each.records or 0 for each in group),
        log_bytes=sum(each.log_bytes or 0 for each in group),
        position=None,
    )


def _least_of(times: Iterable[int | None]) -> int | None:
    return min((each for each in times if each is not None), default=None)
