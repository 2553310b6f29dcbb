"""Transactions on a terminal: a bar of time per producer of a partition, and the LSO's blocker.

The rows are the rows of a report's page. The numbers are as in `eoctl txn list`.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from eoctl.console.columns import UNKNOWN, duration_text
from eoctl.console.style import BAD, DOUBTFUL, FAINT, GOOD, HEADING
from eoctl.report.terminal import INDENT, Scale, styled
from storage.counts import counted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eoctl.report.model import Model, PartitionMark, TransactionMark
    from eoctl.report.terminal import Canvas

LABEL_WIDTH = 26
LEAST_CELLS = 8
STATES = ("committed", "aborted", "unknown", "open")
HOLDER = "holder"
# Layers with their styles, from bottom to top.
LAYERS = {"committed": GOOD, "aborted": DOUBTFUL, "unknown": DOUBTFUL, "open": BAD, HOLDER: BAD}
LEGEND = (
    "{holder} open, and blocks read_committed",
    "{open} open",
    "{aborted} aborted",
    "{committed} committed",
    "(of several at one place the first of these)",
    "c committed  a aborted  o open",
)


class _Lane(NamedTuple):
    """A producer in a partition. Its id is None if several producers were summed up."""

    path: str
    producer_id: int | None
    rows: list[TransactionMark]
    counts: Counter[str]

    @property
    def rank(self) -> tuple[bool, int, int, int, int]:
        """The sort key of a lane, the worst first."""
        holds = any(each.holds_last_stable_offset for each in self.rows)
        committed, aborted, unknown, opened = (-self.counts[each] for each in STATES)
        return not holds, opened, unknown, aborted, committed


def draw_transactions(canvas: Canvas, model: Model, max_lanes: int, *, is_all: bool) -> None:
    """Draw at most `max_lanes` lanes, lanes that block consumers first. The rest is summed up."""
    unread = sum(each.batches is None or bool(each.unreadable) for each in model.partitions)
    lanes = sorted(_lanes(model, is_all=is_all), key=lambda each: each.rank)
    if not lanes:
        kinds = "transactions" if is_all else "open transactions"
        where = "what was read of " if unread else ""
        canvas.add(f"no {kinds} in {where}{counted(len(model.partitions), 'partition')}")
    else:
        _TransactionDrawing(canvas, model).lanes(lanes[:max_lanes], lanes[max_lanes:])
    if not is_all:
        ended = sum((each.committed_transactions or 0) + (each.aborted_transactions or 0)
                    for each in model.partitions)  # fmt: skip
        if ended:
            canvas.add(f"{ended:,} more have ended: --all")
    if unread:
        canvas.add((f"{counted(unread, 'partition')} not read, or not whole", BAD))


def _lanes(model: Model, *, is_all: bool) -> list[_Lane]:
    found: dict[tuple[str, int | None], _Lane] = {}
    for row in model.transactions:
        if not is_all and row.state != "open":
            continue
        key = row.path, row.producer_id
        lane = found.setdefault(
            key,
            _Lane(path=row.path, producer_id=row.producer_id, rows=[], counts=Counter()),
        )
        lane.rows.append(row)
        lane.counts[row.state] += row.transactions
    return list(found.values())


def _tally(counts: Counter[str]) -> str:
    return " ".join(f"{counts[each]:,}{each[0]}" for each in STATES if counts[each])


class _TransactionDrawing:
    def __init__(self, canvas: Canvas, model: Model) -> None:
        self._canvas = canvas
        self._partitions = {each.path: each for each in model.partitions}

    def lanes(self, shown: Sequence[_Lane], others: Sequence[_Lane]) -> None:
        """Draw lanes by partition, with the axis above and the legend below them."""
        canvas = self._canvas
        tally_width = max(len(_tally(each.counts)) for each in shown)
        label_width = min(LABEL_WIDTH, canvas.width // 3)
        cells = max(canvas.width - label_width - tally_width - 3, LEAST_CELLS)
        scale = self._scale(shown, cells)
        self._axis(scale)
        by_path: dict[str, list[_Lane]] = {}
        for each in shown:
            by_path.setdefault(each.path, []).append(each)
        for path, lanes in by_path.items():
            self._heading(self._partitions[path], lanes)
            for lane in lanes:
                label = canvas.cut(f"  {self._label(lane)}", label_width)
                canvas.add(f"{label} ", *self._bar(lane, scale), f"  {_tally(lane.counts)}")
        if others:
            self._rest(others)
        untimed = sum(1 for lane in shown for row in lane.rows if _first_ms(row) is None)
        if untimed:
            canvas.add(f"without a time, and in no bar: {untimed:,}")
        glyphs = canvas.glyphs._asdict()
        canvas.add()
        legend = [*LEGEND]
        if any(each.counts["unknown"] for each in shown):
            legend.append("{unknown} unknown outcome (u): the marker is damaged or absent")
        canvas.add_words([(each.format(**glyphs), FAINT) for each in legend], indent=0)

    def _scale(self, lanes: Sequence[_Lane], cells: int) -> Scale:
        """Return the scale from the first drawn record to the last, or to the log's end.

        The log's end is included if a transaction is open.
        """
        firsts = [_first_ms(row) for lane in lanes for row in lane.rows]
        ends = [self._last_ms(row) for lane in lanes for row in lane.rows]
        known = [each for each in firsts if each is not None]
        first = min(known, default=0)
        return Scale(first, max([first, *(each for each in ends if each is not None)]), cells)

    def _last_ms(self, row: TransactionMark) -> int | None:
        """Return the end of a transaction's bar, for an open transaction the end of the log."""
        if row.state != "open":
            return row.last_timestamp_ms
        end_ms = self._partitions[row.path].last_timestamp_ms
        known = [each for each in (end_ms, row.last_timestamp_ms) if each is not None]
        return max(known, default=None)

    def _axis(self, scale: Scale) -> None:
        first, end = (self._canvas.time(each) for each in (scale.first, scale.end))
        step_ms = max((scale.end - scale.first) // max(scale.cells - 1, 1), 1)
        whole, step = (duration_text(each) for each in (scale.end - scale.first, step_ms))
        self._canvas.add_words([f"{first} to {end}", f"({whole}; a character: {step})"], indent=0)

    def _heading(self, row: PartitionMark, lanes: Sequence[_Lane]) -> None:
        canvas = self._canvas
        number = "" if row.partition is None else f"-{row.partition}"
        words: list[str | tuple[str, str]] = [(canvas.name(f"{row.topic}{number}"), HEADING)]
        if row.broker is not None:
            words.append(f"broker {row.broker}")
        for label, value in (("LSO", row.last_stable_offset), ("log end", row.end_offset)):
            words.append(f"{label} {UNKNOWN if value is None else value}")
        for each in (row for lane in lanes for row in lane.rows if row.holds_last_stable_offset):
            held = counted(each.held_offsets_count or 0, "offset")
            words.append((f"{held} blocked since offset {each.first_offset}", DOUBTFUL))
            first_ms, last_ms = _first_ms(each), self._last_ms(each)
            if first_ms is not None and last_ms is not None:
                words.append(f"{duration_text(max(last_ms - first_ms, 0))} of the log")
            words.append(f"verdict: {each.verdict or UNKNOWN}")
        canvas.add()
        canvas.add_words(words, indent=0, hanging=INDENT)

    def _label(self, lane: _Lane) -> str:
        if lane.producer_id is None:
            return "several producers"
        names = [each.transactional_id for each in lane.rows if each.transactional_id is not None]
        name = f" {self._canvas.name(names[0])}" if names else ""
        return f"{lane.producer_id}{name}"

    def _bar(self, lane: _Lane, scale: Scale) -> list[tuple[str, str]]:
        order = list(LAYERS)
        places = [-1] * scale.cells
        for row in lane.rows:
            first_ms, last_ms = _first_ms(row), self._last_ms(row)
            if first_ms is None:
                continue
            layer = order.index(HOLDER if row.holds_last_stable_offset else row.state)
            for place in scale.covered(first_ms, max(first_ms, last_ms or first_ms)):
                places[place] = max(places[place], layer)
        glyphs = self._canvas.glyphs._asdict()
        return styled(
            [(glyphs[order[at]], LAYERS[order[at]]) if at >= 0 else (" ", "") for at in places]
        )

    def _rest(self, others: Sequence[_Lane]) -> None:
        counts: Counter[str] = Counter()
        for each in others:
            counts.update(each.counts)
        partitions = len({each.path for each in others})
        self._canvas.add()
        self._canvas.add_words(
            [
                f"and {counted(len(others), 'more producer')}, not drawn,",
                f"in {counted(partitions, 'partition')}:",
                *(f"{counts[each]:,} {each}" for each in STATES),
                "(--max-lanes, --topic)",
            ],
            indent=0,
        )


def _first_ms(row: TransactionMark) -> int | None:
    return row.last_timestamp_ms if row.first_timestamp_ms is None else row.first_timestamp_ms
