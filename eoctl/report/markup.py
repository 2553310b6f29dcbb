"""HTML from values: the one function that escapes, and tables."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any

from eoctl.face.columns import UNKNOWN, Kind, facts_of, printable, readable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

NAMES = frozenset({"topic", "transactional_id", "group", "client_id", "host", "other_path"})
SEVERITIES = {"error": "bad", "warning": "doubtful", "note": "mild", "ok": "good"}


def escaped(value: Any) -> str:
    """Return text for HTML, between tags and in attributes; nothing in it is acted on."""
    return escape(printable(str(value)), quote=True)


def tag(name: str, content: str, **attributes: str | int | None) -> str:
    """Return an element around content that is HTML already; attributes are escaped here."""
    given = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escaped(value)}"'
        for key, value in attributes.items()
        if value is not None
    )
    return f"<{name}{given}>{content}</{name}>"


def command_box(command: str) -> str:
    """A call to paste, with room for a button that copies it."""
    return tag("code", escaped(command), class_="command")


def section(name: str, title: str, *contents: str) -> str:
    """A part of the page that can be linked to."""
    heading = tag("h2", escaped(title), id=f"{name}-title")
    return tag("section", heading + "".join(contents), id=name, aria_labelledby=f"{name}-title")


def paragraph(text: str, class_: str | None = None) -> str:
    """A sentence that is plain text."""
    return tag("p", escaped(text), class_=class_)


def table(
    caption: str,
    columns: Sequence[str],
    rows: Sequence[Sequence[Any]],
    *,
    links: Sequence[str | None],
    count: int,
) -> str:
    """A table with headings; how many more rows there are of `count` is said below it.

    `links` are the places in the timelines that rows are about.
    """
    if not rows:
        return ""
    heads = "".join(tag("th", escaped(facts_of(each).heading), scope="col") for each in columns)
    cells = zip(*map(_cells, columns, zip(*rows, strict=True)), strict=True)
    body = "".join(_row(columns, *each) for each in zip(rows, cells, links, strict=True))
    whole = tag(
        "table",
        tag("caption", f"{escaped(caption)} ({count:,})")
        + tag("thead", tag("tr", heads))
        + tag("tbody", body),
    )
    more = ""
    if count > len(rows):
        more = paragraph(f"and {count - len(rows):,} more: --output jsonl has all of them", "more")
    return tag("div", whole, class_="scroll", tabindex=0, role="region", aria_label=caption) + more


def _row(
    columns: Sequence[str], row: Sequence[Any], cells: tuple[str, ...], href: str | None
) -> str:
    if href is not None and cells:
        first = tag("a", _shown(columns[0], row[0]), href=f"#{href}")
        cells = (tag("td", first), *cells[1:])
    severity = row[columns.index("severity")] if "severity" in columns else None
    return tag("tr", "".join(cells), class_=SEVERITIES.get(str(severity)))


def _cells(name: str, values: Iterable[Any]) -> Iterator[str]:
    """The values of a column; equal ones, of which most columns have many, are made once."""
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
    classes = ["number"] if facts_of(name).is_right or kind is Kind.TIME else []
    if value is None:
        classes.append("unknown")
    return tag("td", _shown(name, value), class_=" ".join(classes) or None)


def _shown(name: str, value: Any) -> str:
    kind = facts_of(name).kind
    if value is None:
        return UNKNOWN
    text = escaped(readable(kind, value, is_utc=True))
    if kind is Kind.PATH or name in NAMES:
        return tag("bdi", text)
    return text


def definitions(pairs: Iterable[tuple[str, str]]) -> str:
    """Names and values, plain text."""
    return tag(
        "dl",
        "".join(tag("dt", escaped(name)) + tag("dd", escaped(value)) for name, value in pairs),
    )


def anchor(topic: str | None, partition: int | None, offset: int | None) -> str:
    """What a link to an offset of a partition is: `txn-0@311`."""
    return f"{topic}-{partition}@{offset}"
