"""The page: all of it can be read without JavaScript; the script draws the timelines to click at.

Nothing is loaded: a policy within the page forbids it, and names the one script and the one style
sheet by their digests.
"""

from __future__ import annotations

import base64
from hashlib import sha256
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from eoctl.report.drawing import picture
from eoctl.report.first_screen import header, verdict
from eoctl.report.forks import forks_picture
from eoctl.report.island import island
from eoctl.report.layout import lay_out
from eoctl.report.markup import (
    anchor,
    definitions,
    escaped,
    paragraph,
    section,
    table,
    tag,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from eoctl.report.model import Model

SCRIPTS = ("rows", "marks", "drawing", "moving", "finding", "start")
MAX_ROWS = 500  # of a table on the page
MAX_PARTITIONS = 1000
HINT = (
    "Click a mark for its offsets, file, position and a command. Drag to zoom, 0 to see all;"
    " arrow keys go from mark to mark and from lane to lane."
)
LEGEND = (
    ("volume", "written bytes"),
    ("committed", "committed"),
    ("aborted", "aborted"),
    ("unknown", "unknown outcome: its marker is damaged or absent"),
    ("open", "open transaction"),
    ("hanging", "open, and older than any may be"),
    ("held", "held back from read_committed"),
    ("error", "error: corrupt, lost, missing"),
    ("warning", "warning"),
    ("note", "note"),
    ("torn", "torn: ended otherwise elsewhere"),
    ("proved", "duplicate, proved"),
    ("suspected", "suspected only"),
    ("bound", "known as a bound only (HW)"),
    ("backwards", "timestamps go back"),
    ("commit", "committed offset of a group, and its lag"),
    ("event", "id fenced, timed out, new epoch"),
    ("deadline", "when a transaction times out"),
    ("kept", "producer state, until it expires"),
    ("unread", "not read, not known"),
)


def page_of(model: Model, *, max_lanes: int) -> bytes:
    """Return the page; equal models give equal bytes."""
    drawn = lay_out(model, max_lanes)
    style, script = _asset("report.css"), _script()
    title = escaped(model.title)
    head = "".join(
        (
            '<meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{_policy(style, script)}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            '<meta name="color-scheme" content="light dark">',
            '<meta name="referrer" content="no-referrer">',
            f"<title>{title}</title>",
            f"<style>{style}</style>",
        )
    )
    body = "".join(
        (
            '<a class="skip" href="#timelines">to the timelines</a>',
            tag("header", header(model)),
            tag(
                "main",
                verdict(model)
                + _timelines(picture(drawn), drawn.left_out)
                + "".join(_sections(model)),
            ),
            tag(
                "script",
                island(drawn.model, drawn.lanes),
                type="application/octet-stream",
                id="data",
            ),
            f"<script>{script}</script>",
        )
    )
    html = f'<!DOCTYPE html>\n<html lang="en"><head>{head}</head><body>{body}</body></html>\n'
    return html.encode()


def _script() -> str:
    """One script of the parts: a page has one digest, and the parts see each other's names."""
    parts = "\n".join(_asset(f"{each}.js") for each in SCRIPTS)
    return f'"use strict";\n{{\n{parts}}}\n'


def _asset(name: str) -> str:
    return (files("eoctl.report") / "assets" / name).read_text("utf-8")


def _policy(style: str, script: str) -> str:
    digests = [
        base64.b64encode(sha256(each.encode()).digest()).decode() for each in (style, script)
    ]
    return (
        f"default-src 'none'; style-src 'sha256-{digests[0]}'; script-src 'sha256-{digests[1]}';"
        " base-uri 'none'; form-action 'none'"
    )


# --- timelines ------------------------------------------------------------------------------------


def _timelines(static: str, left_out: Sequence[str]) -> str:
    legend = "".join(
        tag("li", tag("span", "", class_=f"key {name}") + escaped(text)) for name, text in LEGEND
    )
    notes = "".join(tag("li", escaped(each)) for each in left_out)
    return section(
        "timelines",
        "Timelines",
        tag("p", escaped(HINT), class_="hint", id="hint", hidden=""),
        tag("ul", legend, class_="legend", aria_label="legend"),
        tag("div", "", id="controls", hidden=""),
        tag("div", static, id="lanes"),
        tag("ul", notes, class_="left-out") if notes else "",
        tag("aside", "", id="detail", aria_label="selected mark", aria_live="polite", hidden=""),
    )


# --- tables ---------------------------------------------------------------------------------------


def _sections(model: Model) -> Iterator[str]:
    yield section("inventory", "Inventory", _rows(model, "partition", MAX_PARTITIONS, _INVENTORY))
    yield section(
        "findings",
        "Findings",
        _rows(model, "finding", 2 * MAX_ROWS, _FINDINGS, _linked("base_offset"))
        or paragraph("None, in what was read."),
    )
    yield section(
        "transactions",
        "Transactions",
        _rows(model, "held", MAX_ROWS, None, _linked("first_offset")),
        _transactions(model),
        _rows(model, "torn_transaction", MAX_ROWS, None, _linked("offset")),
        _rows(model, "duplicate", MAX_ROWS, None, _linked("repeat_base_offset")),
    )
    yield section("ids", "Transactional ids", _ids(model) or paragraph("None were given."))
    yield section(
        "producers",
        "Producers",
        _rows(model, "producer", MAX_ROWS, _PRODUCERS, _linked("first_offset"))
        or paragraph("No batch has a producer id."),
    )
    yield section(
        "replicas",
        "Replicas",
        forks_picture(model),
        (_rows(model, "replica", MAX_ROWS) + _rows(model, "comparison", MAX_ROWS))
        or paragraph("No partition is there twice, so that nothing was compared."),
        _rows(model, "change", MAX_ROWS, _CHANGES),
    )
    yield section(
        "groups",
        "Groups",
        _rows(model, "commit", MAX_ROWS, None, _linked("committed_offset"))
        or paragraph("No committed offset was given."),
    )
    made = [(each.what, each.value) for each in model.sources]
    yield section("made", "How it was made", definitions(made))


_INVENTORY = (
    *("topic", "partition", "broker", "log_start_offset", "high_watermark", "last_stable_offset"),
    *("end_offset", "is_end_read", "segments_count", "batches", "log_bytes", "first_timestamp_ms"),
    *("last_timestamp_ms", "committed_transactions", "aborted_transactions", "open_transactions"),
    *("errors", "warnings", "notes", "unreadable", "start", "path"),
)
_FINDINGS = (
    *("check_id", "severity", "topic", "partition", "base_offset", "last_offset", "message"),
    *("timestamp_ms", "broker_action", "start_pos", "file", "fix"),
)
_TRANSACTIONS = (
    *("topic", "partition", "state", "verdict", "producer_id", "producer_epoch"),
    *("transactional_id", "first_offset", "last_offset", "first_timestamp_ms", "last_timestamp_ms"),
    *("records", "holds_last_stable_offset", "held_offsets_count", "reason", "file", "position"),
    *("command", "fix"),
)
_PRODUCERS = (
    *("producer_id", "topic", "partition", "transactional_id", "first_epoch", "last_epoch"),
    *("batches", "records", "first_offset", "last_offset", "first_timestamp_ms"),
    *("last_timestamp_ms", "expires_at_ms", "is_expired"),
)
_CHANGES = (
    *("timestamp_ms", "what", "topic", "partition", "broker", "text", "leader", "leader_epoch"),
    *("replicas", "isr", "elr", "is_unclean", "is_under_min_isr", "metadata_offset"),
)
_STATES = (
    *("transactional_id", "status", "producer_id", "producer_epoch", "timestamp_ms", "timeout_ms"),
    *("event", "due_at_ms", "partitions_count", "coordinator_partition", "record_offset"),
    "command",
)
_CAPTIONS = {
    "partition": "Partitions",
    "finding": "Findings of eoctl check",
    "held": "Held back",
    "transaction": "Transactions that were not committed",
    "torn_transaction": "Torn: partitions that contradict each other, or their coordinator",
    "duplicate": "Duplicates",
    "producer": "Producer ids",
    "replica": "Copies",
    "comparison": "Copies, compared",
    "commit": "Committed offsets",
    "change": "What became of the cluster",
}


def _linked(offset: str) -> Callable[[Any], str | None]:
    """Link a row to the place where it has this offset."""

    def link(row: Any) -> str | None:
        value = getattr(row, offset)
        if value is None or row.partition is None or not row.topic:
            return None
        return anchor(row.topic, row.partition, value)

    return link


def _rows(
    model: Model,
    kind: str,
    limit: int,
    columns: Sequence[str] | None = None,
    link: Callable[[Any], str | None] | None = None,
) -> str:
    for name, every, rows in model.tables():
        if name == kind:
            return _table(_CAPTIONS[kind], columns or every, rows, limit=limit, link=link)
    raise KeyError(kind)


def _table(
    caption: str,
    columns: Sequence[str],
    rows: Sequence[Any],
    *,
    limit: int,
    link: Callable[[Any], str | None] | None = None,
) -> str:
    """A table of some columns; `link` is asked with whole rows."""
    shown = rows[:limit]
    cells = [[getattr(row, name) for name in columns] for row in shown]
    links = [None if link is None else link(row) for row in shown]
    return table(caption, columns, cells, links=links, count=len(rows))


def _transactions(model: Model) -> str:
    rows = [each for each in model.transactions if each.state != "committed"]
    rows.sort(key=lambda each: each.state != "open")
    committed = sum(e.transactions for e in model.transactions if e.state == "committed")
    aborted = sum(each.transactions for each in rows if each.state == "aborted")
    opened = sum(each.transactions for each in rows if each.state == "open")
    unknown = sum(each.transactions for each in rows if each.state == "unknown")
    counts = f"{committed:,} committed, {aborted:,} aborted, {opened:,} open"
    if unknown:
        counts += f", {unknown:,} with unknown outcome"
    link = _linked("first_offset")
    return paragraph(counts) + _table(
        _CAPTIONS["transaction"], _TRANSACTIONS, rows, limit=MAX_ROWS, link=link
    )


def _ids(model: Model) -> str:
    newest = {each.transactional_id: each for each in model.states}
    caption = "What their coordinators know"
    return _table(caption, _STATES, list(newest.values()), limit=MAX_ROWS)
