"""Transactions that ended in one partition, but not or differently in another.

A transaction of a producer ends in all its partitions alike (TXN-2). It is torn if it ended in the
log of one partition, and another partition has one of these:

    the other outcome for the same epoch  outcome-differs: markers that raise the epoch end one
                                          transaction each (TXN-7, see `ended_epochs`)
    an open transaction                   marker-missing: a marker has a higher epoch than the
                                          open data, or ended data that the producer sent later
                                          (by its own clock) under the same epoch
                                          marker-missing-by-clock: a marker has the same epoch
                                          and is later than all open data, if the clocks of
                                          producer and broker agree

With transaction versions 0 and 1, two outcomes under one epoch may also be two transactions.
A coordinator that stops between its markers leaves a torn transaction too. It completes the
transaction when it starts again.
"""

from __future__ import annotations

from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np

from recovery.audit.replica_check import Copy, compare_copies
from recovery.summaries.producer_summary import PART_DTYPE, pending
from recovery.summaries.summary import CHECK_IDS, DUPLICATE, NAMES, Extent, Summary
from recovery.timeline.spans import epochs_of, join_ended
from recovery.transactions.events import Ends
from recovery.transactions.unknown_ends import UnknownEnds, find_ends_of_places, log_files_of_places
from storage.formats.control_record import ABORT, COMMIT, NO_MARKER
from storage.places.list_places import open_place

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from recovery.summaries.codec import HeldSummary
    from recovery.summaries.partition import FoundDamage, PartitionSummary
    from recovery.timeline.piece import Timeline
    from recovery.transactions.unknown_ends import DecidedData
    from storage.dirs.acknowledged_offsets import Acknowledged
    from storage.places.listing import DirectoryPlace, SegmentPlace


OUTCOME_DIFFERS, MARKER_MISSING = "outcome-differs", "marker-missing"
MISSING_BY_CLOCK = "marker-missing-by-clock"


class _Ends(NamedTuple):
    """The last transaction with data that each producer ended."""

    producer_id: NDArray[np.int64]
    kind: NDArray[np.int8]
    epoch: NDArray[np.int16]
    timestamp_ms: NDArray[np.int64]
    data_timestamp_ms: NDArray[np.int64]


class TransactionEnds(NamedTuple):
    """The transaction data of a partition that `find_torn` compares.

    It keeps no reference to the rest of the summary, so that memory can be released.

    Attributes:
        ended: rows of ENDED_DTYPE.
        last: for producers that ended a transaction.
        open_producer_id, open: for producers with an open transaction, rows of PART_DTYPE.
    """

    ended: NDArray[Any]
    last: _Ends
    open_producer_id: NDArray[np.int64]
    open: NDArray[Any]


class TornTransaction(NamedTuple):
    """One torn transaction. Partitions are indexes into the given sequence.

    Attributes:
        epoch: of the marker (outcome-differs) or of the open data (marker-missing).
        committed, aborted, open: the partitions where it is committed, aborted or open.
        first_offset: of the open data, in the first partition of `open`, or -1.
    """

    kind: str
    producer_id: int
    epoch: int
    committed: tuple[int, ...]
    aborted: tuple[int, ...]
    open: tuple[int, ...]
    first_offset: int


def ends_of(summary: Summary) -> TransactionEnds:
    """Return the data of a partition that `find_torn` needs."""
    rows = summary.producers
    has_ended = rows["last_end"]["kind"] != NO_MARKER
    end = rows["last_end"]
    opened = pending(rows)
    is_open = opened["batches"] > 0
    return TransactionEnds(
        ended=summary.ended,
        last=_Ends(
            producer_id=rows["producer_id"][has_ended],
            kind=end["kind"][has_ended],
            epoch=end["epoch"][has_ended],
            timestamp_ms=end["timestamp_ms"][has_ended],
            data_timestamp_ms=rows["last_end_data_timestamp_ms"][has_ended],
        ),
        open_producer_id=rows["producer_id"][is_open],
        open=opened[is_open],
    )


def find_torn(partitions: Sequence[TransactionEnds]) -> list[TornTransaction]:
    """Find torn transactions over different partitions, by producer id and epoch."""
    found = [*_differing(partitions), *_missing(partitions)]
    return sorted(found, key=lambda each: (each.producer_id, each.epoch, each.kind, each.open))


def _differing(partitions: Sequence[TransactionEnds]) -> list[TornTransaction]:
    rows = join_ended(*(each.ended for each in partitions))
    place, epochs = epochs_of(rows["committed"] & rows["aborted"], rows)
    found = []
    for row, epoch in zip(rows[place].tolist(), epochs.tolist(), strict=True):
        producer_id, word, *_ = row
        outcomes: list[tuple[int, ...]] = []
        for name in ("committed", "aborted"):
            bit = np.uint64(1 << (epoch % 64))
            outcomes.append(
                tuple(
                    number
                    for number, each in enumerate(partitions)
                    if _word(each.ended, producer_id, word, name) & bit
                )
            )
        found.append(
            TornTransaction(
                kind=OUTCOME_DIFFERS,
                producer_id=producer_id,
                epoch=epoch,
                committed=outcomes[0],
                aborted=outcomes[1],
                open=(),
                first_offset=-1,
            )
        )
    return found


def _word(rows: NDArray[Any], producer_id: int, word: int, name: str) -> np.uint64:
    first, end = np.searchsorted(rows["producer_id"], [producer_id, producer_id + 1])
    at = first + int(np.searchsorted(rows["word"][first:end], word))
    is_there = at < end and rows["word"][at] == word
    return np.uint64(rows[name][at]) if is_there else np.uint64(0)


class _AllEnds(NamedTuple):
    """The ends of all partitions, by producer id."""

    partition: NDArray[np.int64]
    ends: _Ends


def _all_ends(partitions: Sequence[TransactionEnds]) -> _AllEnds:
    partition = np.repeat(
        np.arange(len(partitions)), [len(each.last.producer_id) for each in partitions]
    )
    parts = zip(*(each.last for each in partitions), strict=True)
    whole = _Ends._make(map(np.concatenate, parts))
    order = np.argsort(whole.producer_id, kind="stable")
    return _AllEnds(partition[order], _Ends._make(column[order] for column in whole))


class _Missing(NamedTuple):
    """An open transaction that ended in other partitions."""

    partition: int
    first_offset: int
    why: str
    proofs: frozenset[tuple[int, int]]  # partition and kind of the marker


def _missing(partitions: Sequence[TransactionEnds]) -> list[TornTransaction]:
    if len(partitions) < 2:
        return []
    ends = _all_ends(partitions)
    found: dict[tuple[int, int], list[_Missing]] = {}
    for number, each in enumerate(partitions):
        for producer_id, part in zip(each.open_producer_id.tolist(), each.open, strict=True):
            missing = _ended_elsewhere(ends, producer_id, number, part)
            if missing is not None:
                found.setdefault((producer_id, int(part["epoch"])), []).append(missing)
    return [_torn(producer_id, epoch, each) for (producer_id, epoch), each in found.items()]


def _ended_elsewhere(
    ends: _AllEnds, producer_id: int, partition: int, part: np.void
) -> _Missing | None:
    """Return the open transaction if another partition has the marker that it lacks."""
    bounds = [producer_id, producer_id + 1]
    first, end = np.searchsorted(ends.ends.producer_id, bounds).tolist()
    own = _Ends._make(column[first:end] for column in ends.ends)
    where = ends.partition[first:end]
    is_same = (own.epoch == part["epoch"]) & (where != partition)
    is_proof = (own.epoch > part["epoch"]) & (where != partition)
    is_proof |= is_same & (own.data_timestamp_ms > part["first_timestamp_ms"])
    why = MARKER_MISSING
    if not is_proof.any():
        is_proof = is_same & (own.timestamp_ms > part["last_timestamp_ms"])
        why = MISSING_BY_CLOCK
    if not is_proof.any():
        return None
    proofs = zip(where[is_proof].tolist(), own.kind[is_proof].tolist(), strict=True)
    return _Missing(
        partition=partition,
        first_offset=int(part["first_offset"]),
        why=why,
        proofs=frozenset(proofs),
    )


def _torn(producer_id: int, epoch: int, found: list[_Missing]) -> TornTransaction:
    proofs = frozenset().union(*(each.proofs for each in found))
    return TornTransaction(
        kind=MARKER_MISSING
        if any(each.why == MARKER_MISSING for each in found)
        else MISSING_BY_CLOCK,
        producer_id=producer_id,
        epoch=epoch,
        committed=tuple(sorted(place for place, kind in proofs if kind == COMMIT)),
        aborted=tuple(sorted(place for place, kind in proofs if kind != COMMIT)),
        open=tuple(each.partition for each in found),
        first_offset=found[0].first_offset,
    )


# -- the reports of an audit, from the summaries of partition directories.
#
# A summary is unpacked when a report reaches its directory, one at a time. Memory holds only data
# that does not grow with producers (`Outline`), the rows of small reports, and for `torn` the
# transaction ends of all partitions.
#
# Live directories of one topic and partition in one cluster are copies of it. Counts by topic and
# by transactional id, and torn transactions, use one copy of each partition. This is the copy
# with the highest offset, then with most batches, then the first by path.


MAX_GAPS_COUNT = 1000  # listed for one directory; all are counted

FIGURES = tuple(Summary().figures())
NO_FIGURES = tuple(Summary().figures().values())  # for a directory that could not be listed


class Outline(NamedTuple):
    """The data of a directory that does not grow with its producers.

    Attributes:
        figures: values of FIGURES.
        batches: number of batches.
        behind: transactions whose marker may be damaged or absent.
    """

    figures: tuple[int | None, ...]
    extent: Extent
    batches: int
    damage: FoundDamage
    behind: UnknownEnds


class Audited(NamedTuple):
    """A partition directory, its segments, and their summary.

    `held` and `outline` are None for a directory that could not be listed.
    """

    place: DirectoryPlace
    segments: tuple[SegmentPlace, ...]
    held: HeldSummary | None = None
    outline: Outline | None = None

    @classmethod
    def of(
        cls,
        place: DirectoryPlace,
        segments: tuple[SegmentPlace, ...],
        held: HeldSummary | None,
        known: Acknowledged,
    ) -> Audited:
        """Create it from a summary, and apply what was acknowledged for the directory."""
        if held is None:
            return cls(place, segments)
        found = held.unpacked().against(known, place.directory, segments)
        behind = _behind(found, segments)
        summary = _with(found.summary, behind)
        outline = Outline(
            figures=tuple(summary.figures().values()),
            extent=summary.extent,
            batches=summary.counts.batches,
            damage=found.damage,
            behind=behind,
        )
        return cls(place, segments, held, outline)

    def summary(self) -> Summary:
        """Unpack the summary. It is empty if the directory could not be listed."""
        if self.held is None or self.outline is None:
            return Summary()
        return _with(self.held.unpacked().summary, self.outline.behind)

    def timeline(self) -> Timeline | None:
        """Unpack the timeline, or return None if there is none."""
        return None if self.held is None else self.held.unpacked().timeline

    @property
    def extent(self) -> Extent:
        """The extent of its batches."""
        return Extent() if self.outline is None else self.outline.extent


def _behind(found: PartitionSummary, segments: tuple[SegmentPlace, ...]) -> UnknownEnds:
    """Decide transactions behind damage, or behind absent offsets that compaction cannot explain.

    If no offset is absent, there are as many records, including markers, as offsets.
    """
    counts, extent = found.summary.counts, found.summary.extent
    if not (segments and found.summary.producers["transactional_batches"].any()):
        return UnknownEnds(Ends.none())
    offsets_count = extent.top_offset + 1 - extent.first_offset
    is_suspect = any(each.is_lost for each in found.findings)
    if counts.records != offsets_count:
        is_suspect = is_suspect or log_files_of_places(segments, open_place).gaps_are_losses()
    if not is_suspect:
        return UnknownEnds(Ends.none())
    return find_ends_of_places(segments, open_place)


def _with(summary: Summary, behind: UnknownEnds) -> Summary:
    if not behind.decided:
        return summary
    return summary._replace(producers=_with_decided(summary.producers, behind.decided))


def _with_decided(rows: NDArray[Any], decided: Sequence[DecidedData]) -> NDArray[Any]:
    """Count data again whose own marker may be damaged: the next marker does not decide it.

    Data that may be open stays open, as a broker has it and `txn list` prints it.
    """
    rows = rows.copy()
    names = {COMMIT: "committed", ABORT: "aborted"}
    opened = set[int]()
    for each in decided:
        if each.may_be_open:
            opened.add(each.producer_id)
            continue
        row = int(np.searchsorted(rows["producer_id"], each.producer_id))
        counts = (("batches", each.batches_count), ("records", each.records_count))
        counted, name = names.get(each.marker_kind), names.get(each.kind)
        for what, count in counts:
            if counted is not None:
                rows[f"{counted}_{what}"][row] -= count
            if name is not None:
                rows[f"{name}_{what}"][row] += count
        if counted is not None and each.next_offset < 0:
            rows[f"{counted}_transactions"][row] -= 1
            rows["empty_markers"][row] += 1
        if name is not None:
            rows[f"{name}_transactions"][row] += 1
        if counted is None:
            part = "head" if rows["first_marker"]["kind"][row] == NO_MARKER else "tail"
            for what, count in counts:
                rows[part][what][row] -= count
            if each.producer_id in opened:
                continue  # the part begins with the data before, which may be open
            rows[part]["first_offset"][row] = max(each.next_offset, 0)
            if each.next_offset < 0:
                rows[part][row] = np.zeros(1, PART_DTYPE)[0]
    return rows


Row = list[Any]


class ReportTable(NamedTuple):
    """A report.

    Attributes:
        kind: kind of its rows.
        columns: names of the columns.
        build: returns the rows.
        is_large: it has a row per producer, transaction or finding, so its rows are not kept.
    """

    kind: str
    columns: tuple[str, ...]
    build: Callable[[Audit], Iterable[Row]]
    is_large: bool = False


class Audit:
    """The builder of the reports in `REPORTS`. Rows are sorted.

    Args:
        audited: directories in any order. Topic and partition may repeat, places may not.
        transactional_ids: by cluster id and producer id. Ids that are missing here are unknown.
    """

    def __init__(
        self,
        audited: Iterable[Audited],
        transactional_ids: Mapping[tuple[str | None, int], str],
    ) -> None:
        self._all = sorted(audited, key=_order)
        self._ids = transactional_ids
        self._copies: dict[tuple[str | None, str, int], list[Audited]] = {}
        for each in self._all:
            if each.place.is_live:
                key = each.place.cluster, each.place.topic, each.place.partition
                self._copies.setdefault(key, []).append(each)
        self._chosen = [max(group, key=_fullness) for group in self._copies.values()]
        self._built: dict[str, list[Row]] = {}

    def each_row(self, name: str) -> Iterable[Row]:
        """Return the rows of one report. Rows of a large report come one directory at a time."""
        report = self.REPORTS[name]
        return report.build(self) if report.is_large else self.rows(name)

    def rows(self, name: str) -> list[Row]:
        """Return the rows of one report."""
        if name not in self._built:
            report = self.REPORTS[name]
            found = [*report.build(self)]
            if report.is_large:
                return found
            self._built[name] = found
        return self._built[name]

    def _partitions(self) -> Iterable[Row]:
        for each in self._all:
            outline = each.outline
            yield [
                each.place.topic,
                _number(each.place.partition),
                *((None,) * len(FIGURES) if outline is None else outline.figures),
                1 if outline is None else outline.damage.findings_count,
                _number(each.extent.first_offset),
                _number(each.extent.top_offset),
                each.place.broker,
                each.place.directory,
            ]

    def _topics(self) -> Iterable[Row]:
        chosen = sorted(self._chosen, key=_order)
        for topic, group in groupby(chosen, key=lambda each: each.place.topic):
            figures = [
                NO_FIGURES if each.outline is None else each.outline.figures for each in group
            ]
            yield [topic, len(figures), *map(_sum, zip(*figures, strict=True))]

    def _producers(self) -> Iterable[Row]:
        names = COLUMNS["producers"][4:-1]
        for each in self._all:
            yield from self._producers_of(each, names)

    def _producers_of(self, each: Audited, names: Sequence[str]) -> Iterable[Row]:
        figures = _producer_figures(each.summary())
        values = zip(*(figures[name].tolist() for name in names), strict=True)
        for producer_id, row in zip(figures["producer_id"].tolist(), values, strict=True):
            yield [
                each.place.topic,
                _number(each.place.partition),
                producer_id,
                self._id_of(each, producer_id),
                *row,
                each.place.broker,
            ]

    def _id_of(self, each: Audited, producer_id: int) -> str | None:
        return self._ids.get((each.place.cluster, producer_id))

    def _transactional_ids(self) -> Iterable[Row]:
        names = COLUMNS["transactional-ids"][3:]
        totals: dict[str, dict[str, Any]] = {}
        for each in self._chosen:
            self._add_ids(totals, each, names)
        for transactional_id, total in sorted(totals.items()):
            counts = (total[name] for name in names)
            yield [transactional_id, sorted(total["ids"]), len(total["partitions"]), *counts]

    def _add_ids(
        self, totals: dict[str, dict[str, Any]], each: Audited, names: Sequence[str]
    ) -> None:
        """Add the producers' figures of a partition, by transactional id."""
        figures = _producer_figures(each.summary())
        for place, producer_id in enumerate(figures["producer_id"].tolist()):
            transactional_id = self._id_of(each, producer_id)
            if transactional_id is None:
                continue
            total = totals.setdefault(
                transactional_id,
                {"ids": set(), "partitions": set()} | dict.fromkeys(names, 0),
            )
            total["ids"].add(producer_id)
            total["partitions"].add((each.place.cluster, each.place.topic, each.place.partition))
            for name in names:
                total[name] += int(figures[name][place])

    def _open(self) -> Iterable[Row]:
        for each in self._all:
            yield from self._open_of(each)

    def _open_of(self, each: Audited) -> Iterable[Row]:
        producers = each.summary().producers
        opened = pending(producers)
        rows = np.flatnonzero(opened["batches"] > 0)
        rows = rows[np.argsort(opened["first_offset"][rows], kind="stable")]
        for number, row in enumerate(rows.tolist()):
            part, producer_id = opened[row], int(producers["producer_id"][row])
            yield [
                each.place.topic,
                _number(each.place.partition),
                int(part["first_offset"]),
                producer_id,
                int(part["epoch"]),
                self._id_of(each, producer_id),
                int(part["batches"]),
                int(part["records"]),
                int(part["last_offset"]),
                int(part["first_timestamp_ms"]),
                int(part["last_timestamp_ms"]),
                number == 0,
                each.place.broker,
            ]

    def _violations(self) -> Iterable[Row]:
        for each in self._all:
            yield from _violations_of(each)

    def _torn(self) -> Iterable[Row]:
        chosen = sorted(self._chosen, key=lambda each: each.place.cluster or "")
        for cluster, group in groupby(chosen, key=lambda each: each.place.cluster):
            yield from self._torn_in(cluster, [*group])

    def _torn_in(self, cluster: str | None, chosen: Sequence[Audited]) -> Iterable[Row]:
        names = [f"{each.place.topic}-{each.place.partition}" for each in chosen]
        for each in find_torn([ends_of(each.summary()) for each in chosen]):
            yield [
                each.producer_id,
                each.epoch,
                self._ids.get((cluster, each.producer_id)),
                each.kind,
                [names[place] for place in each.committed],
                [names[place] for place in each.aborted],
                [names[place] for place in each.open],
                each.first_offset if each.open else None,
            ]

    def _replicas(self) -> Iterable[Row]:
        for (_, topic, partition), group in self._copies.items():
            known = [each for each in group if each.outline is not None]
            if len(known) < 2 or partition < 0:
                continue
            best = max(known, key=_fullness)
            of_best = _copy(best)
            for each in known:
                if each is best:
                    continue
                found = compare_copies(of_best, _copy(each))
                yield [
                    topic,
                    partition,
                    found.is_equal,
                    found.first_different_offset,
                    found.first_common_offset,
                    found.last_common_offset,
                    _number(best.extent.top_offset),
                    _number(each.extent.top_offset),
                    best.place.broker,
                    each.place.broker,
                    best.place.directory,
                    each.place.directory,
                ]

    def _corrupt(self) -> Iterable[Row]:
        for each in self._all:
            for found in () if each.outline is None else each.outline.damage.findings:
                offsets, reason = (found.base_offset, found.last_offset), found.reason
                if found.is_empty:
                    offsets, reason = (None, None), f"{reason}; no offset is missing"
                yield [
                    each.place.topic,
                    _number(each.place.partition),
                    found.kind,
                    found.check_id or None,
                    found.start_pos,
                    found.end_pos,
                    *offsets,
                    reason,
                    each.place.broker,
                    found.path,
                ]

    REPORTS: ClassVar[dict[str, ReportTable]] = {
        "partitions": ReportTable(
            "partition",
            (
                *("topic", "partition", *FIGURES, "problems_count"),
                *("first_offset", "last_offset", "broker", "path"),
            ),
            _partitions,
        ),
        "topics": ReportTable("topic", ("topic", "partitions_count", *FIGURES), _topics),
        "producers": ReportTable(
            "producer",
            (
                *("topic", "partition", "producer_id", "transactional_id", "last_epoch"),
                *("batches", "records", "bytes", "transactional_batches"),
                *("committed_transactions", "aborted_transactions", "committed_records"),
                *("aborted_batches", "aborted_records", "open_batches", "duplicate_batches"),
                *("gaps", "missing_sequences", "epoch_regressions", "late_batches"),
                *("empty_markers", "first_offset", "last_offset", "last_timestamp_ms", "broker"),
            ),
            _producers,
            is_large=True,
        ),
        "transactional-ids": ReportTable(
            "transactional-id",
            (
                *("transactional_id", "producer_ids", "partitions_count", "batches", "records"),
                *("bytes", "committed_transactions", "aborted_transactions", "open_transactions"),
                *("committed_records", "aborted_records", "duplicate_batches"),
                *("gaps", "missing_sequences"),
            ),
            _transactional_ids,
        ),
        "open": ReportTable(
            "open-transaction",
            (
                *("topic", "partition", "first_offset", "producer_id", "producer_epoch"),
                *("transactional_id", "batches", "records", "last_offset"),
                *("first_timestamp_ms", "last_timestamp_ms", "holds_last_stable_offset", "broker"),
            ),
            _open,
            is_large=True,
        ),
        "violations": ReportTable(
            "violation",
            (
                *("topic", "partition", "violation", "check_id", "offset", "last_offset"),
                *("producer_id", "producer_epoch", "expected", "found", "broker"),
            ),
            _violations,
            is_large=True,
        ),
        "torn": ReportTable(
            "torn-transaction",
            (
                *("producer_id", "producer_epoch", "transactional_id", "why"),
                *("committed_in", "aborted_in", "open_in", "first_offset"),
            ),
            _torn,
        ),
        "replicas": ReportTable(
            "replica",
            (
                *("topic", "partition", "is_equal", "first_different_offset"),
                *("first_common_offset", "last_common_offset", "last_offset", "other_last_offset"),
                *("broker", "other_broker", "path", "other_path"),
            ),
            _replicas,
        ),
        "corrupt": ReportTable(
            "corrupt-range",
            (
                *("topic", "partition", "finding", "check_id", "start_pos", "end_pos"),
                *("base_offset", "last_offset", "reason", "broker", "path"),
            ),
            _corrupt,
            is_large=True,
        ),
    }


REPORTS = Audit.REPORTS
COLUMNS = {name: each.columns for name, each in REPORTS.items()}


def _violations_of(each: Audited) -> list[Row]:
    """Return the violations and gaps of a directory, by offset."""
    place = each.place.topic, _number(each.place.partition)
    summary = each.summary()
    rows: list[tuple[tuple[int, str, str], Row]] = []
    for row in summary.violations.tolist():
        offset, kind, producer_id, expected, found, last_offset = row
        epoch = expected if kind == DUPLICATE else found
        sequence = (None, found) if kind == DUPLICATE else (expected, found)
        values = (NAMES[kind], CHECK_IDS[kind], offset, last_offset, producer_id, epoch)
        row_of = [*place, *values, *sequence, each.place.broker]
        rows.append(((offset, NAMES[kind], CHECK_IDS[kind]), row_of))
    gaps = summary.gaps()
    wanted = (gaps.producer_id, gaps.producer_epoch, gaps.first_sequence, gaps.missing_count)
    columns = (column[:MAX_GAPS_COUNT].tolist() for column in (*wanted, gaps.next_offset))
    for producer_id, epoch, first, count, next_offset in zip(*columns, strict=True):
        offset = _number(next_offset)
        values = ("sequence-gap", "PRD-1", offset, offset, producer_id, epoch)
        row_of = [*place, *values, first, first + count, each.place.broker]
        rows.append(((-1 if offset is None else offset, "sequence-gap", "PRD-1"), row_of))
    return [row for _, row in sorted(rows, key=itemgetter(0))]


def _copy(each: Audited) -> Copy:
    return Copy(each.segments, each.extent, each.summary().fingerprint)


def _producer_figures(summary: Summary) -> dict[str, NDArray[np.int64]]:
    """Return figures by producer id, one value per producer."""
    rows, gaps = summary.producers, summary.gaps()
    opened = pending(rows)["batches"]
    place = np.searchsorted(rows["producer_id"], gaps.producer_id)
    figures = {name: rows[name] for name in rows.dtype.names or () if rows[name].dtype.kind == "i"}
    return figures | {
        "open_batches": opened,
        "open_transactions": (opened > 0).astype(np.int64),
        "gaps": np.bincount(place, minlength=len(rows)),
        "missing_sequences": np.bincount(place, gaps.missing_count, len(rows)).astype(np.int64),
    }


def _order(each: Audited) -> tuple[Any, ...]:
    return each.place.topic, each.place.partition, each.place.directory


def _fullness(each: Audited) -> tuple[int, int]:
    return each.extent.top_offset, 0 if each.outline is None else each.outline.batches


def _number(value: int) -> int | None:
    """Return None for an absent value."""
    return None if value < 0 else value


def _sum(values: Sequence[int | None]) -> int | None:
    return None if None in values else sum(value or 0 for value in values)
