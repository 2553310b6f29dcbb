"""Partitions on a terminal: a bar of offsets for each, with its batches, its ends and its problems.

The rows are the rows of a report's page. The numbers are as in `eoctl describe` and `eoctl check`.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from eoctl.console.columns import UNKNOWN, size_text
from eoctl.console.style import BAD, DOUBTFUL, FAINT, HEADING
from eoctl.report.layout import ranked_partitions
from eoctl.report.terminal import INDENT, Scale, heights, spread, styled
from storage.counts import counted

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from eoctl.report.model import FindingMark, Model, PartitionMark
    from eoctl.report.terminal import Canvas

MAX_REPORTED = 3  # findings per partition
# If several are at one place, the first is drawn.
MARKS = (
    ("L", "last_stable_offset", "LSO"),
    ("H", "high_watermark", "HW"),
    ("S", "log_start_offset", "log start"),
    ("R", "recovery_point", "recovery point"),
    ("E", "end_offset", "log end"),
)
SEVERITIES = {"error": ("!", BAD), "warning": ("?", DOUBTFUL), "note": (".", FAINT)}
LEGEND = (
    "S log start",
    "R recovery point",
    "H high watermark",
    "L last stable offset",
    "E log end",
    "(of several at one place the first of L H S R E)",
    "{border} segment",
    "{held} blocked for read_committed",
    "! error",
    "? warning",
    ". note",
    "{least} to {most} bytes written",
)


def draw_offsets(canvas: Canvas, model: Model, max_lanes: int) -> None:
    """Draw at most `max_lanes` partitions, partitions with problems first.

    The rest is summed up.
    """
    drawing = _OffsetDrawing(canvas, model)
    ranked = ranked_partitions(model)
    for row in ranked[:max_lanes]:
        drawing.partition(row)
    if ranked[max_lanes:]:
        drawing.rest(ranked[max_lanes:])
    drawing.elsewhere()
    glyphs = canvas.glyphs
    words = {
        "border": glyphs.border,
        "held": glyphs.held,
        "least": glyphs.heights[0],
        "most": glyphs.heights[-1],
    }
    canvas.add()
    canvas.add_words([(each.format(**words), FAINT) for each in LEGEND], indent=0)


class _OffsetDrawing:
    def __init__(self, canvas: Canvas, model: Model) -> None:
        self._canvas = canvas
        self._volume: dict[str, list[tuple[int, int, int]]] = defaultdict(list)
        for each in model.volume:
            if each.axis == "offset":
                part = each.first_offset, each.last_offset, each.log_bytes
                self._volume[each.path].append(part)
        self._borders: dict[str, dict[str, int]] = defaultdict(dict)
        for segment in model.segments:
            self._borders[segment.path][segment.file] = segment.base_offset
        self._findings: dict[str, list[FindingMark]] = defaultdict(list)
        known = {each.path for each in model.partitions}
        for finding in model.findings:
            place = finding.path if finding.path in known else ""
            self._findings[place].append(finding)
        self._holders = {
            each.path: each for each in model.transactions if each.holds_last_stable_offset
        }

    def partition(self, row: PartitionMark) -> None:
        """Draw a partition: its name and size, its bar, its offsets, its problems."""
        canvas = self._canvas
        canvas.add_words(self._heading(row), indent=0, hanging=INDENT)
        first, end = _ends(row)
        if row.batches is not None and end > first:
            scale = Scale(first, end, canvas.bar_width)
            canvas.add("  ", *self._written(row, scale))
            canvas.add("  ", *self._marks(row, scale))
            if wrong := self._wrong(row, scale):
                canvas.add("  ", *wrong)
        if row.batches is not None:
            canvas.add_words(self._numbers(row))
        self._report(self._findings[row.path], row.path)

    def rest(self, rows: Sequence[PartitionMark]) -> None:
        """Sum up the partitions that are not drawn."""
        sums = {
            name: sum(getattr(each, name) or 0 for each in rows)
            for name in ("batches", "open_transactions", "errors", "warnings")
        }
        unread = sum(each.batches is None for each in rows)
        self._canvas.add()
        self._canvas.add_words(
            [
                f"and {counted(len(rows), 'more partition')}, not drawn:",
                counted(sums["batches"], "batch", "batches"),
                f"{sums['open_transactions']:,} open,",
                f"{counted(sums['errors'], 'error')},",
                f"{counted(sums['warnings'], 'warning')},",
                f"{unread:,} not read",
                "(--max-lanes, --topic)",
            ],
            indent=0,
        )

    def elsewhere(self) -> None:
        """Draw the findings about a log dir itself."""
        if any(each.severity != "note" for each in self._findings[""]):
            self._canvas.add(("beside the partitions", HEADING))
            self._report(self._findings[""], "")

    def _heading(self, row: PartitionMark) -> Iterator[str | tuple[str, str]]:
        canvas = self._canvas
        number = "" if row.partition is None else f"-{row.partition}"
        yield canvas.name(f"{row.topic}{number}"), HEADING
        if row.broker is not None:
            yield f"broker {row.broker}"
        if row.batches is None:
            yield "not read", BAD
            yield canvas.name(row.path)
            return
        yield counted(row.segments_count or 0, "segment")
        yield size_text(row.log_bytes or 0)
        for name, style in (("error", BAD), ("warning", DOUBTFUL), ("note", FAINT)):
            count = getattr(row, f"{name}s")
            if count:
                yield counted(count, name), style
        if row.unreadable:
            yield "a part was not read", BAD

    def _written(self, row: PartitionMark, scale: Scale) -> list[tuple[str, str]]:
        glyphs = self._canvas.glyphs
        bars = heights(glyphs, spread(scale, self._volume[row.path]))
        marks = [(each, "") for each in bars]
        bases = sorted(self._borders[row.path].values())
        for base in bases[1:]:
            marks[scale.cell(base)] = (glyphs.border, FAINT)
        return styled(marks)

    def _marks(self, row: PartitionMark, scale: Scale) -> list[tuple[str, str]]:
        """Return the named offsets, drawn over the blocked offsets."""
        marks = [(" ", "")] * scale.cells
        holder = self._holders.get(row.path)
        if holder is not None:
            for place in scale.covered(holder.first_offset, scale.end):
                marks[place] = (self._canvas.glyphs.held, DOUBTFUL)
        for letter, name, _ in reversed(MARKS):
            value = getattr(row, name)
            if value is not None:
                marks[scale.cell(value)] = (letter, "")
        return styled(marks)

    def _wrong(self, row: PartitionMark, scale: Scale) -> list[tuple[str, str]]:
        """Return the findings at their offsets, the worst on top.

        Empty: no finding has an offset.
        """
        marks = [(" ", "")] * scale.cells
        for each in sorted(self._findings[row.path], key=lambda each: _RANK[each.severity]):
            offset = self._offset_of(each, row.path)
            if offset is not None:
                last = offset if each.base_offset is None else each.last_offset
                for place in scale.covered(offset, max(offset, last or offset)):
                    marks[place] = SEVERITIES[each.severity]
        return styled(marks) if any(sign != " " for sign, _ in marks) else []

    def _offset_of(self, finding: FindingMark, path: str) -> int | None:
        """Return the offset at which a finding is drawn, for a segment its base offset."""
        if finding.base_offset is not None:
            return finding.base_offset
        if finding.last_offset is not None:
            return finding.last_offset
        return self._borders[path].get(finding.file)

    def _numbers(self, row: PartitionMark) -> Iterator[str | tuple[str, str]]:
        for _, name, label in sorted(MARKS, key=lambda each: "SRHLE".index(each[0])):
            value = getattr(row, name)
            is_least = name == "end_offset" and row.is_end_read is False
            least = " at least" if is_least else ""
            yield f"{label} {UNKNOWN if value is None else value}{least}"
        holder = self._holders.get(row.path)
        if holder is not None:
            whose = f"producer {holder.producer_id}"
            if holder.transactional_id is not None:
                whose += f" ({self._canvas.name(holder.transactional_id)})"
            held = counted(holder.held_offsets_count or 0, "offset")
            yield f"{held} blocked by {whose} since offset {holder.first_offset}", DOUBTFUL
        if row.open_transactions:
            yield f"{row.open_transactions:,} open"

    def _report(self, findings: Sequence[FindingMark], path: str) -> None:
        canvas = self._canvas
        ranked = sorted(findings, key=lambda each: -_RANK[each.severity])
        reported = [each for each in ranked if each.severity != "note"][:MAX_REPORTED]
        for each in reported:
            sign, style = SEVERITIES[each.severity]
            where = canvas.name("".join(_place_words(each)))
            text = canvas.cut(
                f"{where}: {canvas.name(each.message)}", canvas.width - 5 - len(each.check_id)
            )
            canvas.add("  ", (f"{sign} {each.check_id}", style), f" {text.rstrip()}")
        more = len(findings) - len(reported)
        if more and reported:
            call = reported[0].command if path else "eoctl check"
            canvas.add(f"    and {more:,} more: {canvas.name(call)}")


_RANK = {"error": 3, "warning": 2, "note": 1}


def _ends(row: PartitionMark) -> tuple[int, int]:
    """Return the ends of the bar: the lowest and the highest named offset."""
    values = [getattr(row, name) for _, name, _ in MARKS]
    known = [each for each in [*values, row.local_log_start_offset] if each is not None]
    return min(known, default=0), max(known, default=0)


def _place_words(finding: FindingMark) -> Iterator[str]:
    offset = finding.base_offset if finding.base_offset is not None else finding.last_offset
    if offset is not None:
        yield f"offset {offset}, "
    if finding.start_pos is not None:
        yield f"position {finding.start_pos} of "
    yield finding.file.rpartition("/")[2]
