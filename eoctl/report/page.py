"""The page: all of it can be read without JavaScript; the script draws the timelines to click at.

Nothing is loaded: a policy within the page forbids it, and names the one script and the one style
sheet by their digests.
"""

from __future__ import annotations

import base64
import re
from hashlib import sha256
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from eoctl.face.units import duration_text, size_text, time_text
from eoctl.report.drawing import picture
from eoctl.report.forks import forks_picture
from eoctl.report.island import island
from eoctl.report.layout import lay_out
from eoctl.report.markup import (
    SEVERITIES,
    command_box,
    definitions,
    escaped,
    paragraph,
    section,
    table,
    tag,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from eoctl.report.model import FindingMark, HeldMark, Model

SCRIPTS = ("rows", "marks", "drawing", "moving", "finding", "start")
MAX_ROWS = 500  # of a table on the page
MAX_PARTITIONS = 1000
TOLD_FINDINGS = 4  # at the top
TOLD_FIXES = 3
GRAVE = ("error", "warning")
_TIMES = re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+Z")
WRONG = frozenset({"Start", "Cuts", "Lost", "Torn", "Copies", "Election"})
# What a label of a check is called for somebody who never saw one.
WORDS = {"Cuts": "Cut by a start", "Torn": "Torn transaction", "Start": "Start of the broker"}
NOTHING_WRONG = "Nothing wrong was found in what was read."
HINT = (
    "Click a mark for its offsets, file, position and a command. Drag to zoom, 0 to see all;"
    " arrow keys go from mark to mark and from lane to lane."
)
LEGEND = (
    ("volume", "written bytes"),
    ("committed", "committed"),
    ("aborted", "aborted"),
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
            tag("header", _header(model)),
            tag(
                "main",
                _verdict(model)
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


# --- the first screen -----------------------------------------------------------------------------


def _header(model: Model) -> str:
    read = [each for each in model.partitions if each.batches is not None]
    log_bytes = sum(each.log_bytes or 0 for each in read)
    times = [each.first_timestamp_ms for each in read if each.first_timestamp_ms is not None]
    ends = [each.last_timestamp_ms for each in read if each.last_timestamp_ms is not None]
    span = f", {_time(min(times))} to {_time(max(ends))}" if times and ends else ""
    text = (
        f"{len(model.partitions):,} partitions, {size_text(log_bytes)}{span}; read by eoctl"
        f" {model.version}, now is {_time(model.now_ms)}"
    )
    return tag("h1", escaped(model.title)) + tag("p", _with_times(text), class_="about")


def _with_times(text: str) -> str:
    """Escape a sentence; the times in it are not broken."""
    return _TIMES.sub(lambda found: tag("time", found[0]), escaped(text))


def _time(time_ms: int) -> str:
    return time_text(time_ms, is_utc=True)


def _verdict(model: Model) -> str:
    """Three sentences: what is wrong, who is held, what to do; and what they stand on."""
    labels = {each.label: each for each in model.verdict}
    unread = [each for each in model.sources if each.severity]
    wrong = [each for each in model.verdict if each.label in WRONG]
    worst = [each for each in wrong if each.severity != "ok"]
    rank = {"error": 0, "warning": 1}
    worst.sort(key=lambda each: rank.get(each.severity, 2))
    parts = [
        tag(
            "p", escaped(f"{each.what}: {each.value}"), class_=f"banner {SEVERITIES[each.severity]}"
        )
        for each in unread
    ]
    shown = worst or [each for each in wrong if each.label == "Lost"]
    severity = worst[0].severity if worst else "warning" if unread else "ok"
    sentences = [tag("p", _line(each.label, each.text)) for each in shown]
    found = _worst_findings(model)
    if found and severity == "ok":
        severity = "warning"
    if not worst and not found:
        sentences.insert(0, paragraph(NOTHING_WRONG))
    parts.append(_answer("What is wrong", severity, "".join(sentences) + found))
    held = "".join(tag("p", each) for each in map(_held_sentence, model.held[:3]))
    if len(model.held) > 3:
        held += paragraph(f"and {len(model.held) - 3:,} more partitions, below")
    late = any(each.is_late for each in model.held)
    if not held:
        held = paragraph(
            "Nobody that was seen: some of it was not read."
            if unread
            else "Nobody: no transaction is open."
        )
    grade = "warning" if late else "note" if model.held else "warning" if unread else "ok"
    parts.append(_answer("Who is held", grade, held))
    parts.append(_answer("What to do", "next", _next(model, labels)))
    rest = [each for each in model.verdict if each.label in {"Start", "Checked", "Election"}]
    told = "".join(tag("li", _line(each.label, each.text)) for each in rest if each not in shown)
    return section("verdict", "Verdict", *parts, tag("ul", told, class_="stands") if told else "")


def _worst_findings(model: Model) -> str:
    """The worst of them, each with its rule and its place, and how many more there are.

    Of each rule and file one is told: the others say the same again.
    """
    own = [each for each in _worst_first(model) if not each.is_consequence]
    told = list({(each.check_id, each.file): each for each in reversed(own)}.values())[::-1]
    told.sort(key=_graveness)
    lines = []
    for each in told[:TOLD_FINDINGS]:
        rule = tag("b", escaped(each.check_id))
        where = tag("bdi", escaped("/".join(each.file.split("/")[-2:])))
        place = "" if each.start_pos is None else f" at position {each.start_pos}"
        link = ""
        if each.base_offset is not None and each.partition is not None:
            href = f"#{_place(each.topic, each.partition, each.base_offset)}"
            link = " " + tag("a", f"offset {each.base_offset}", href=href)
        lines.append(tag("li", f"{rule} {where}{place}{link}: {escaped(each.message)}"))
    more = len(own) - len(lines)
    if more > 0:
        lines.append(tag("li", tag("a", f"and {more:,} more findings", href="#findings")))
    return tag("ul", "".join(lines), class_="worst") if lines else ""


def _worst_first(model: Model) -> list[FindingMark]:
    """No notes; errors before warnings, and records before what is made of them."""
    return sorted((each for each in model.findings if each.severity in GRAVE), key=_graveness)


def _graveness(row: FindingMark) -> tuple[int, bool, bool]:
    is_derived = row.file.endswith((".index", ".timeindex", ".txnindex", ".snapshot"))
    return GRAVE.index(row.severity), is_derived, row.base_offset is None


def _line(label: str, text: str) -> str:
    return f"{tag('b', escaped(WORDS.get(label, label)))} {_with_times(text)}"


def _answer(title: str, severity: str, content: str) -> str:
    word = {"error": "error", "warning": "look at it", "ok": "fine", "note": "note"}.get(severity)
    badge = "" if word is None else " " + tag("span", word, class_="badge")
    kind = SEVERITIES.get(severity, "next")
    return tag("div", tag("h3", escaped(title) + badge) + content, class_=f"answer {kind}")


def _held_sentence(row: HeldMark) -> str:
    where = tag("b", tag("bdi", escaped(f"{row.topic}-{row.partition}")))
    text = f"read_committed readers stop at offset {row.first_offset}"
    if row.held_offsets_count is not None:
        word = "offset" if row.held_offsets_count == 1 else "offsets"
        least, end = (
            ("", "the log end") if row.is_end_read else ("at least ", "what was read, offset")
        )
        text += f": {least}{row.held_offsets_count:,} {word} up to {end} {row.end_offset}"
    if row.since_timestamp_ms is not None:
        text += f", since {_time(row.since_timestamp_ms)}"
        if row.until_timestamp_ms is not None:
            lasts_ms = max(row.until_timestamp_ms - row.since_timestamp_ms, 0)
            text += f" ({duration_text(lasts_ms)} of the log)"
    by = "an open transaction"
    if row.producer_id is not None:
        by += f" of producer {row.producer_id}"
    name = "" if row.transactional_id is None else tag("bdi", escaped(row.transactional_id))
    named = f", transactional id {tag('b', name)}" if name else ""
    what = "" if row.verdict is None else escaped(f" ({row.verdict})")
    late = "; it is older than any may be" if row.is_late else "; it is not late"
    if not row.is_end_read:
        late += "; whether it was ended behind what was read is not known"
    link = tag("a", "show", href=f"#{_place(row.topic, row.partition, row.first_offset)}")
    return f"{where} {_with_times(text)}. By {escaped(by)}{named}{what}{escaped(late)}. {link}"


def _next(model: Model, labels: dict[str, Any]) -> str:
    """What is first, and what puts right what else was found."""
    text = labels["Next"].text if "Next" in labels else "see the findings"
    if model.next_command:
        _, _, why = text.partition("   # ")
        first = tag("p", command_box(model.next_command)) + (paragraph(why) if why else "")
        done = {model.next_command}
    else:
        first, done = paragraph(text), {text}
    then: dict[str, str] = {}
    for each in _worst_first(model):
        if each.fix and not each.is_consequence:
            then.setdefault(each.fix, each.check_id)
    others = [(fix, rule) for fix, rule in then.items() if fix not in done]
    lines = [
        tag("li", escaped(f"{rule}: ") + (command_box(fix) if _is_call(fix) else escaped(fix)))
        for fix, rule in others[:TOLD_FIXES]
    ]
    if len(others) > TOLD_FIXES:
        more = f"and {len(others) - TOLD_FIXES:,} more, beside the findings"
        lines.append(tag("li", tag("a", more, href="#findings")))
    if not lines:
        return first
    return first + paragraph("then, by what was found:") + tag("ul", "".join(lines), class_="worst")


def _is_call(fix: str) -> bool:
    return fix.startswith("eoctl ")


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


def _place(topic: str | None, partition: int | None, offset: int | None) -> str:
    """What a link to an offset of a partition is: `txn-0@311`."""
    return f"{topic}-{partition}@{offset}"


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
        return _place(row.topic, row.partition, value)

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
    counts = f"{committed:,} committed, {aborted:,} aborted, {opened:,} open"
    link = _linked("first_offset")
    return paragraph(counts) + _table(
        _CAPTIONS["transaction"], _TRANSACTIONS, rows, limit=MAX_ROWS, link=link
    )


def _ids(model: Model) -> str:
    newest = {each.transactional_id: each for each in model.states}
    caption = "What their coordinators know"
    return _table(caption, _STATES, list(newest.values()), limit=MAX_ROWS)
