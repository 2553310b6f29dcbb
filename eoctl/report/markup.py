"""HTML from values: the only function that escapes, and tables."""

from __future__ import annotations

from collections import defaultdict
from html import escape
from typing import TYPE_CHECKING, Any, NamedTuple

from eoctl.console.columns import UNKNOWN, Kind, facts_of, printable, readable
from eoctl.report.layout import READ_END
from storage.counts import counted

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from eoctl.report.layout import LaidOut, Lane
    from eoctl.report.model import FindingMark, TransactionMark, VolumeMark


NAMES = frozenset({"topic", "transactional_id", "group", "client_id", "host", "other_path"})
SEVERITIES = {"error": "bad", "warning": "doubtful", "note": "mild", "ok": "good"}


def escaped(value: Any) -> str:
    """Return text for HTML, escaped for use between tags and in attributes."""
    return escape(printable(str(value)), quote=True)


def tag(name: str, content: str, **attributes: str | int | None) -> str:
    """Return an element around content that is HTML already. Attributes are escaped here."""
    given = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escaped(value)}"'
        for key, value in attributes.items()
        if value is not None
    )
    return f"<{name}{given}>{content}</{name}>"


def command_box(command: str) -> str:
    """Return a command to paste, with room for a copy button."""
    return tag("code", escaped(command), class_="command")


def section(name: str, title: str, *contents: str) -> str:
    """Return a linkable section of the page."""
    heading = tag("h2", escaped(title), id=f"{name}-title")
    return tag("section", heading + "".join(contents), id=name, aria_labelledby=f"{name}-title")


def paragraph(text: str, class_: str | None = None) -> str:
    """Return a paragraph of plain text."""
    return tag("p", escaped(text), class_=class_)


def table(
    caption: str,
    columns: Sequence[str],
    rows: Sequence[Sequence[Any]],
    *,
    links: Sequence[str | None],
    count: int,
    is_open: bool = False,
) -> str:
    """Return a table with headings. If `count` is larger, the number of missing rows is below it.

    `links` are the places in the timelines that belong to the rows.
    """
    if not rows:
        return ""
    heads = "".join(
        tag("th", escaped(facts_of(each).heading), scope="col", class_=_class_of(each))
        for each in columns
    )
    cells = zip(*map(_cells, columns, zip(*rows, strict=True)), strict=True)
    body = "".join(_row(columns, *each) for each in zip(rows, cells, links, strict=True))
    whole = tag("table", tag("thead", tag("tr", heads)) + tag("tbody", body))
    more = ""
    if count > len(rows):
        more = paragraph(f"and {count - len(rows):,} more: --output jsonl has all of them", "more")
    box = tag("div", whole, class_="scroll", tabindex=0, role="region", aria_label=caption)
    summary = tag("summary", f"{escaped(caption)} ({count:,})")
    return tag("details", summary + box + more, open="" if is_open else None, class_="rows")


def _row(
    columns: Sequence[str], row: Sequence[Any], cells: tuple[str, ...], href: str | None
) -> str:
    if href is not None and cells:
        first = tag("a", _shown(columns[0], row[0]), href=f"#{href}")
        cells = (tag("td", first), *cells[1:])
    severity = row[columns.index("severity")] if "severity" in columns else None
    return tag("tr", "".join(cells), class_=SEVERITIES.get(str(severity)))


def _cells(name: str, values: Iterable[Any]) -> Iterator[str]:
    """Yield the cells of a column. Equal values, which most columns have, are made once."""
    made: dict[tuple[type, str], str] = {}
    for value in values:
        key = type(value), str(value)
        shown = made.get(key)
        if shown is None:
            shown = made[key] = _cell(name, value)
        yield shown


def _cell(name: str, value: Any) -> str:
    kind = facts_of(name).kind
    if kind is Kind.COMMAND and value and value.startswith("eoctl "):  # not a sentence
        return tag("td", command_box(value))
    classes = [each for each in (_class_of(name), "unknown" if value is None else None) if each]
    return tag("td", _shown(name, value), class_=" ".join(classes) or None)


def _class_of(name: str) -> str | None:
    """Return the class of a column. Numbers are right-aligned, except partitions and times."""
    if name == "partition":
        return None
    if facts_of(name).kind is Kind.TIME:
        return "time"
    return "number" if facts_of(name).is_right else None


def _shown(name: str, value: Any) -> str:
    kind = facts_of(name).kind
    if value is None:
        return UNKNOWN
    text = escaped(readable(kind, value, is_utc=True))
    if kind is Kind.PATH or name in NAMES:
        return tag("bdi", text)
    return text


def definitions(pairs: Iterable[tuple[str, str]]) -> str:
    """Return a list of names and values, which are plain text."""
    return tag(
        "dl",
        "".join(tag("dt", escaped(name)) + tag("dd", escaped(value)) for name, value in pairs),
    )


def anchor(topic: str | None, partition: int | None, offset: int | None) -> str:
    """Return the link target for an offset of a partition: `txn-0@311`."""
    return f"{topic}-{partition}@{offset}"


# -- the picture of a page without JavaScript or on paper: a row for each partition, by offset


MAX_LANES = 60
MAX_MARKS = 120  # per lane
WIDTH, LABEL, ROW, BAR = 1000, 200, 34, 22


class OffsetScale(NamedTuple):
    """A scale of offsets from left to right."""

    first: int
    end: int

    def x(self, offset: int) -> float:
        """Return the position of an offset, limited to the ends of the scale."""
        width = max(self.end - self.first, 1)
        share = min(max((offset - self.first) / width, 0.0), 1.0)
        return LABEL + share * (WIDTH - LABEL - 10)


def picture(drawn: LaidOut) -> str:
    """Return the picture, and sentences about the lanes that it leaves out."""
    every = [each for each in drawn.lanes if each.kind == "partition"]
    lanes = [each for each in every if not each.is_healthy]
    volume: dict[str, list[VolumeMark]] = defaultdict(list)
    for each in drawn.model.volume:
        if each.axis == "offset":
            volume[each.path].append(each)
    marks: dict[str, list[TransactionMark]] = defaultdict(list)
    for row in drawn.model.transactions:
        if row.state != "committed":
            marks[row.path].append(row)
    findings: dict[str, list[FindingMark]] = defaultdict(list)
    for finding in drawn.model.findings:
        findings[finding.path].append(finding)
    parts = []
    for number, lane in enumerate(lanes[:MAX_LANES]):
        y = number * ROW
        found = [
            *_label(lane, y),
            *_volume(lane, volume[lane.key], y),
            *_transactions(lane, marks[lane.key], y),
            *_findings(lane, findings[lane.key], y),
        ]
        parts.append(tag("g", "".join(found)))
    height = max(min(len(lanes), MAX_LANES) * ROW, ROW)
    title = "partitions by offset: written bytes, transactions not committed, findings"
    svg = tag(
        "svg",
        tag("title", title) + "".join(parts),
        viewBox=f"0 0 {WIDTH} {height}",
        role="img",
        class_="static",
    )
    more, healthy = len(lanes) - MAX_LANES, len(every) - len(lanes)
    reported = f"and {counted(more, 'more partition')}" if more > 0 else ""
    fine = f"{counted(healthy, 'partition')} without a finding" if healthy else ""
    return (svg if lanes else "") + "".join(tag("p", escaped(e)) for e in (reported, fine) if e)


def _label(lane: Lane, y: int) -> Iterator[str]:
    title = lane.title if len(lane.title) <= 28 else f"{lane.title[:27]}\N{HORIZONTAL ELLIPSIS}"
    yield tag("text", escaped(title), x=4, y=y + 16)
    yield tag("text", escaped(f"{lane.first_offset} to {lane.end_offset}"), x=4, y=y + 29,
              class_="small")  # fmt: skip
    if lane.is_unread:
        yield bar("unread", LABEL, WIDTH - 10, y, BAR, "not read")
    for name, offset in lane.marks:
        if name == READ_END and not lane.is_unread:
            yield bar("unread", _scale(lane).x(offset), WIDTH - 10, y, BAR, "not read")
    yield bar("base", LABEL, WIDTH - 10, y + BAR, 1)


def bar(kind: str, left: float, right: float, y: float, height: float, text: str = "") -> str:
    """Return a rectangle of visible width. `text` is its tooltip."""
    inner = tag("title", escaped(text)) if text else ""
    width = max(right - left, 1.5)
    return tag(
        "rect",
        inner,
        class_=kind,
        x=f"{left:.1f}",
        y=f"{y:.1f}",
        width=f"{width:.1f}",
        height=f"{height:.1f}",
    )


def _scale(lane: Lane) -> OffsetScale:
    return OffsetScale(lane.first_offset or 0, lane.end_offset or 1)


def _volume(lane: Lane, rows: list[VolumeMark], y: int) -> Iterator[str]:
    """Yield at most MAX_MARKS bars, each for all rows in its place."""
    scale = _scale(lane)
    sums = [0] * MAX_MARKS
    step = (WIDTH - LABEL - 10) / MAX_MARKS
    for each in rows:
        place = int((scale.x(each.first_offset) - LABEL) / step)
        sums[min(place, MAX_MARKS - 1)] += each.log_bytes
    top = max(sums, default=0) or 1
    for place, value in enumerate(sums):
        if value:
            height = max(BAR * value / top, 1)
            left = LABEL + place * step
            yield bar("volume", left, left + step, y + BAR - height, height)


def _transactions(lane: Lane, rows: list[TransactionMark], y: int) -> Iterator[str]:
    scale, last = _scale(lane), -10.0
    for each in sorted(rows, key=lambda each: (each.state != "open", each.first_offset)):
        left = scale.x(each.first_offset)
        if each.state == "open":
            if each.holds_last_stable_offset:
                yield bar("held", left, WIDTH - 10, y, BAR)
            text = f"open since offset {each.first_offset}, producer {each.producer_id}"
            yield bar("open", left, WIDTH - 10, y + BAR, 4, text)
        elif left - last >= WIDTH / MAX_MARKS:
            last = left
            end = each.first_offset if each.last_offset is None else each.last_offset
            text = f"{each.state} {each.first_offset}"
            yield bar(each.state, left, scale.x(end), y + BAR, 4, text)


def _findings(lane: Lane, rows: list[FindingMark], y: int) -> Iterator[str]:
    scale = _scale(lane)
    seen: set[tuple[str, int]] = set()
    for each in rows:
        offset = each.base_offset if each.base_offset is not None else each.last_offset
        left = scale.x(lane.first_offset or 0 if offset is None else offset)
        place = (each.severity, int(left / 4))
        if place in seen or len(seen) >= MAX_MARKS:
            continue
        seen.add(place)
        last = each.last_offset if each.last_offset is not None else offset
        right = left if last is None else scale.x(last + 1)
        yield bar(each.severity, left, max(right, left + 3), y + BAR + 5, 6,
                   f"{each.check_id} {each.message}")  # fmt: skip
