"""A page of HTML from the rows of a report: the first screen, timelines, forks, the data within."""

from __future__ import annotations

import base64
import json
import re
import zlib
from collections import defaultdict
from hashlib import sha256
from importlib.resources import files
from typing import TYPE_CHECKING, Any, NamedTuple

from eoctl.console.columns import duration_text, printable, size_text, time_text, with_durations
from eoctl.report.layout import DIVERGED, lay_out
from eoctl.report.markup import (
    BAR,
    LABEL,
    ROW,
    SEVERITIES,
    WIDTH,
    OffsetScale,
    anchor,
    bar,
    command_box,
    definitions,
    escaped,
    paragraph,
    picture,
    section,
    table,
    tag,
)
from storage.counts import counted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from eoctl.report.layout import Lane
    from eoctl.report.model import FindingMark, HeldMark, Model, ReplicaMark


# -- the rows of a page as a single block of data: columns as JSON, compressed, in base64
#
# A column of numbers is written as differences. A column of repeated texts is written as a list of
# the different texts and indexes of it. Both are much smaller. Integers that JavaScript cannot
# represent are written as text.


MAX_SAFE = (1 << 53) - 1
COMPRESSION_LEVEL = 9
LANE_FIELDS = (
    *("kind", "key", "title", "note", "first_offset", "end_offset", "marks"),
    *("is_unread", "is_healthy"),
)


def island(model: Model, lanes: Sequence[Lane]) -> str:
    """Return all data that the script of a page draws. Equal rows give equal text."""
    value = {
        "now": model.now_ms,
        "lanes": [dict(zip(LANE_FIELDS, map(_plain, each), strict=True)) for each in lanes],
        "tables": {
            kind: _table_columns(columns, rows)
            for kind, columns, rows in model.tables()
            if kind not in {"verdict", "source"}
        },
    }
    data = json.dumps(value, separators=(",", ":"), ensure_ascii=True).encode()
    return base64.b64encode(zlib.compress(data, COMPRESSION_LEVEL)).decode("ascii")


def _table_columns(columns: tuple[str, ...], rows: Sequence[Any]) -> dict[str, Any]:
    values = zip(*rows, strict=True) if rows else ([] for _ in columns)
    return {
        "count": len(rows),
        "columns": {name: _column(list(each)) for name, each in zip(columns, values, strict=True)},
    }


def _column(values: list[Any]) -> Any:
    known = [each for each in values if each is not None]
    if not known:
        return None if values else []
    kinds = set(map(type, known))
    if kinds == {int}:
        return _numbers(values, is_safe=max(known) <= MAX_SAFE and min(known) >= -MAX_SAFE)
    if kinds == {str}:
        return _texts(values)
    return [_plain(each) for each in values]


def _numbers(values: list[Any], *, is_safe: bool) -> Any:
    if not is_safe:
        return [_plain(each) for each in values]
    before, differences = 0, []
    for each in values:
        differences.append(None if each is None else each - before)
        before = before if each is None else each
    return {"d": differences}


def _texts(values: list[Any]) -> Any:
    numbers: dict[str, int] = {}
    places = [None if each is None else numbers.setdefault(each, len(numbers)) for each in values]
    return {"s": list(map(printable, numbers)), "i": places}


def _plain(value: Any) -> Any:
    """Return printable text, and numbers that JavaScript can represent."""
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, int):
        return value if abs(value) <= MAX_SAFE else str(value)
    if isinstance(value, tuple | list):
        return [_plain(each) for each in value]
    return str(value)


# -- the picture of replicas that differ: their common offsets, and the offset where they diverge


MAX_GROUPS = 30  # partitions whose replicas are drawn
KEY = (
    "Each bar is a copy: what it shares with the others, and, behind the line where copies part,"
    " what it has of its own. A short line is its high watermark."
)
# At least a third of the picture is after the fork, so that a few differing offsets are visible.
BEFORE_FORK = 2


class _Copies(NamedTuple):
    """The replicas of a partition. `forks`: the offset at which each diverges, by path."""

    name: str
    replicas: Sequence[ReplicaMark]
    forks: dict[str, int]
    is_diverged: bool


def forks_picture(model: Model) -> str:
    """Return a picture for each partition with replicas that differ, and the number left out.

    Replicas that contradict each other come before replicas that only end earlier, and users'
    topics before Kafka's own.
    """
    groups = sorted(
        _differing(model), key=lambda each: (not each.is_diverged, each.name.startswith("__"))
    )
    if not groups:
        return ""
    drawn = [_drawn(each) for each in groups[:MAX_GROUPS]]
    left = len(groups) - len(drawn)
    more = paragraph(f"and {left:,} more partitions", "more") if left else ""
    return paragraph(KEY, "hint") + "".join(drawn) + more


def _differing(model: Model) -> Iterator[_Copies]:
    replicas: dict[tuple[str, int | None], list[ReplicaMark]] = defaultdict(list)
    for replica in model.replicas:
        replicas[replica.topic, replica.partition].append(replica)
    forks: dict[tuple[str, int | None], dict[str, int]] = defaultdict(dict)
    differing: dict[tuple[str, int | None], bool] = {}
    for each in model.comparisons:
        key = each.topic, each.partition
        if each.likeness == "equal":
            continue
        differing[key] = differing.get(key, False) or each.likeness in DIVERGED
        for path in (each.path, each.other_path):
            if each.likeness in DIVERGED and each.divergence_offset is not None:
                known = forks[key].get(path, each.divergence_offset)
                forks[key][path] = min(known, each.divergence_offset)
    for key, is_diverged in differing.items():
        topic, partition = key
        name = topic if partition is None else f"{topic}-{partition}"
        yield _Copies(name=name, replicas=replicas[key], forks=forks[key], is_diverged=is_diverged)


def _drawn(copies: _Copies) -> str:
    end = max((each.log_end_offset for each in copies.replicas), default=1)
    first = min((each.log_start_offset for each in copies.replicas), default=0)
    fork = min(copies.forks.values(), default=None)
    if fork is not None:
        first = max(first, fork - BEFORE_FORK * max(end - fork, 1))
    scale = OffsetScale(first, end)
    rows = [
        tag("g", "".join(_copy(each, copies, scale, number * ROW)))
        for number, each in enumerate(copies.replicas)
    ]
    height = max(len(rows), 1) * ROW
    reported = "a copy ends earlier" if fork is None else f"copies diverge at offset {fork:,}"
    if fork is None and copies.is_diverged:
        reported = "copies have no offset in common, or could not be compared"
    if fork is not None:
        rows.append(bar("fork", scale.x(fork) - 1, scale.x(fork) + 1, 0, height, reported))
    title = f"{copies.name}: {reported}"
    svg = tag(
        "svg",
        tag("title", escaped(title)) + "".join(rows),
        viewBox=f"0 0 {WIDTH} {height}",
        role="img",
        class_="static",
    )
    about = f"{title}; drawn from offset {first:,} to {end:,}"
    return tag("figure", tag("figcaption", tag("bdi", escaped(about))) + svg, class_="forks")


def _copy(each: ReplicaMark, copies: _Copies, scale: OffsetScale, y: int) -> Iterator[str]:
    """Yield a replica's offsets in common with others, its own offsets, and its high watermark."""
    title = "broker unknown" if each.broker is None else f"broker {each.broker}"
    if each.should_lead:
        title += ": should lead"
    yield tag("text", escaped(title), x=4, y=y + 16)
    yield tag("text", escaped(f"{each.log_start_offset} to {each.log_end_offset}"), x=4, y=y + 29,
              class_="small")  # fmt: skip
    fork = min(copies.forks.get(each.path, each.log_end_offset), each.log_end_offset)
    if each.log_start_offset < fork:
        left = scale.x(each.log_start_offset)
        yield bar("volume", left, scale.x(fork), y + 4, BAR - 4, f"{title}: as in other copies")
    if fork < each.log_end_offset:
        text = f"{title}: offsets {fork} to {each.log_end_offset - 1} differ from another copy"
        yield bar("aborted", scale.x(fork), scale.x(each.log_end_offset), y + 4, BAR - 4, text)
    if each.high_watermark is not None:
        at = scale.x(each.high_watermark)
        yield bar("mark", at - 1, at + 1, y, BAR + 4, f"high watermark {each.high_watermark}")
    yield bar("base", LABEL, WIDTH - 10, y + BAR, 1)


# -- the first screen of a page: the problems, the blocked consumers, the next steps, the evidence


REPORTED_FINDINGS = 4  # at the top
REPORTED_FIXES = 3
GRAVE = ("error", "warning")
_TIMES = re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+Z")
WRONG = frozenset({"Start", "Removes", "Lost", "Torn", "Copies", "Election"})
# Names of check labels for people who do not know them.
WORDS = {
    "Removes": "Removed by a start",
    "Torn": "Torn transaction",
    "Start": "Start of the broker",
}
# Verdict of an open transaction in `eoctl txn list` -> the way in which it ends.
ENDINGS = {
    "ongoing": "its coordinator ends it",
    "overdue": "its coordinator should have ended it",
    "hanging": "no coordinator will end it",
    "unlisted": "no coordinator will end it",
    "unknown": "it is unknown whether a coordinator ends it",
}
NOTHING_WRONG = "Nothing wrong was found in what was read."


def header(model: Model) -> str:
    """Return the heading of the page: the data's size and time range."""
    read = [each for each in model.partitions if each.batches is not None]
    log_bytes = sum(each.log_bytes or 0 for each in read)
    times = [each.first_timestamp_ms for each in read if each.first_timestamp_ms is not None]
    ends = [each.last_timestamp_ms for each in read if each.last_timestamp_ms is not None]
    span = f", {_time(min(times))} to {_time(max(ends))}" if times and ends else ""
    text = (
        f"{counted(len(model.partitions), 'partition')}, {size_text(log_bytes)}{span}; read by"
        " eoctl"
        f" {model.version}, now is {_time(model.now_ms)}"
    )
    facts = [
        (name, ", ".join(each.value for each in model.sources if each.what == what))
        for what, name in FACTS.items()
    ]
    reported = "".join(
        tag("div", tag("dt", escaped(name)) + tag("dd", tag("bdi", escaped(value))))
        for name, value in facts
        if value
    )
    return (
        tag("p", escaped(model.title), class_="kicker")
        + tag("h1", escaped(sentence(model)))
        + tag("p", _with_times(text), class_="about")
        + tag("dl", reported, class_="facts")
    )


# Source facts at the top -> their names there.
FACTS = {
    "cluster": "cluster id", "node": "node", "host": "read on host", "path": "directory",
    "digest": "digest of the contents",
}  # fmt: skip


def sentence(model: Model) -> str:
    """Return the verdict in one sentence: the start, lost records, and the age of the block."""
    labels = {each.label: each for each in model.verdict}
    parts = []
    if "Start" in labels:
        start = labels["Start"].text.partition(", as far as")[0].partition("; ")[0]
        cuts = labels.get("Removes")
        parts.append(start if cuts is None else f"{start}: {cuts.text}")
    if any(each.severity == "error" for each in model.sources):
        parts.append("a part could not be read")
    lost = labels.get("Lost")
    if lost is not None:
        is_lost = lost.severity in ("error", "warning")
        number, _, _ = lost.text.partition(":")  # without a count, the places show the amount
        text = number if number[:1].isdigit() and "damaged" not in lost.text else lost.text
        parts.append(text if is_lost else "no record is known to be lost")
    if model.held:
        since = [e.since_timestamp_ms for e in model.held if e.since_timestamp_ms is not None]
        places = counted(len(model.held), "partition")
        age = f" for {duration_text(max(model.now_ms - min(since), 0))}" if since else ""
        parts.append(f"read_committed is blocked in {places}{age}")
    return "; ".join(parts) or "Nothing was read"


def _with_times(text: str) -> str:
    """Escape a sentence and keep the times in it on one line."""
    return _TIMES.sub(lambda found: tag("time", found[0]), escaped(text))


def _time(time_ms: int) -> str:
    return time_text(time_ms, is_utc=True)


def verdict(model: Model) -> str:
    """Return three answers: the problems, the blocked consumers, the next steps.

    Evidence follows.
    """
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
    held = "".join(tag("p", _held_sentence(each, model.now_ms)) for each in model.held[:3])
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
    parts.append(_answer("Who is blocked", grade, held))
    parts.append(_answer("What to do", "next", _next(model, labels)))
    rest = [each for each in model.verdict if each.label in {"Start", "Checked", "Election"}]
    reported = "".join(
        tag("li", _line(each.label, each.text)) for each in rest if each not in shown
    )
    return section(
        "verdict", "Verdict", *parts, tag("ul", reported, class_="stands") if reported else ""
    )


def _worst_findings(model: Model) -> str:
    """Return the worst broken rules, each with its first place, and the number of others."""
    by_rule: dict[str, list[FindingMark]] = {}
    for each in _worst_first(model):
        if not each.is_consequence:
            by_rule.setdefault(each.check_id, []).append(each)
    rules = list(by_rule.values())
    lines = [tag("li", _broken_rule(each)) for each in rules[:REPORTED_FINDINGS]]
    more = sum(map(len, rules[REPORTED_FINDINGS:]))
    if more:
        word = "findings" if more > 1 else "finding"
        lines.append(tag("li", tag("a", f"and {more:,} more {word}", href="#findings")))
    return tag("ul", "".join(lines), class_="worst") if lines else ""


def _broken_rule(rows: Sequence[FindingMark]) -> str:
    """Return the gravest finding of a rule, and the number of files with others."""
    first, files = rows[0], {each.file for each in rows}
    rule = tag("b", escaped(first.check_id))
    where = tag("bdi", escaped("/".join(first.file.split("/")[-2:])))
    count = f"in {len(files):,} files, first " if len(files) > 1 else ""
    if len(rows) > len(files):
        count = f"{len(rows):,} times {count or 'in '}"
    place = "" if first.start_pos is None else f" at position {first.start_pos}"
    link = ""
    if first.base_offset is not None and first.partition is not None:
        href = f"#{anchor(first.topic, first.partition, first.base_offset)}"
        link = " " + tag("a", f"offset {first.base_offset}", href=href)
    return f"{rule} {count}{where}{place}{link}: {escaped(with_durations(first.message))}"


def _worst_first(model: Model) -> list[FindingMark]:
    """Return errors, then warnings, without notes. Findings in logs come before derived files."""
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


def _held_sentence(row: HeldMark, now_ms: int) -> str:
    where = tag("b", tag("bdi", escaped(f"{row.topic}-{row.partition}")))
    text = f"read_committed readers stop at offset {row.first_offset}"
    if row.held_offsets_count is not None:
        held = counted(row.held_offsets_count, "offset")
        least, end = (
            ("", "the log end") if row.is_end_read else ("at least ", "what was read, offset")
        )
        text += f": {least}{held} up to {end} {row.end_offset}"
    if row.since_timestamp_ms is not None:
        age = duration_text(max(now_ms - row.since_timestamp_ms, 0))
        text += f", blocked for {age}, since {_time(row.since_timestamp_ms)}"
    by = "an open transaction"
    if row.producer_id is not None:
        by += f" of producer {row.producer_id}"
    name = "" if row.transactional_id is None else tag("bdi", escaped(row.transactional_id))
    named = f", transactional id {tag('b', name)}" if name else ""
    what = "" if row.verdict is None else escaped(f" ({row.verdict}: {ENDINGS[row.verdict]})")
    late = "; it is older than any may be" if row.is_late else "; it is not late"
    if not row.is_end_read:
        late += "; it is unknown whether it was ended after the part that was read"
    link = tag("a", "show", href=f"#{anchor(row.topic, row.partition, row.first_offset)}")
    return f"{where} {_with_times(text)}. By {escaped(by)}{named}{what}{escaped(late)}. {link}"


def _next(model: Model, labels: dict[str, Any]) -> str:
    """Return the first step, and the commands that repair the other findings."""
    text = labels["Next"].text if "Next" in labels else "see the findings"
    if model.next_command:
        _, _, why = text.partition("   # ")
        first = tag("p", command_box(model.next_command)) + (paragraph(why) if why else "")
        done = {model.next_command}
    else:
        first, done = paragraph(text), {text}
    then: dict[str, list[str]] = {}  # by rule: fixes other than the first step, each once
    for each in _worst_first(model):
        if each.fix and not each.is_consequence and each.fix not in done:
            done.add(each.fix)
            then.setdefault(each.check_id, []).append(each.fix)
    lines = [
        tag("li", escaped(f"{what}: ") + command_box(command))
        for what, command in _looks_beside(model)
        if command not in done
    ]
    lines += [
        tag("li", escaped(f"{rule}: ") + _fixes(fixes))
        for rule, fixes in list(then.items())[:REPORTED_FIXES]
    ]
    if len(then) > REPORTED_FIXES:
        more = f"and for {len(then) - REPORTED_FIXES:,} more rules, beside the findings"
        lines.append(tag("li", tag("a", more, href="#findings")))
    if not lines:
        return first
    return first + paragraph("then, by what was found:") + tag("ul", "".join(lines), class_="worst")


def _looks_beside(model: Model) -> Iterator[tuple[str, str]]:
    """Yield commands about problems that a check of a single partition cannot find."""
    if model.torn:
        yield WORDS["Torn"], model.torn[0].command
    diverged = [each for each in model.comparisons if each.likeness in DIVERGED]
    if diverged:  # contradictions first, and users' topics before Kafka's own
        first = min(
            diverged, key=lambda each: (each.likeness != DIVERGED[0], each.topic[:2] == "__")
        )
        yield "Copies", first.command


def _fixes(fixes: Sequence[str]) -> str:
    """Return the first fix, as a command if it is one, and the number of similar fixes."""
    fix, more = fixes[0], len(fixes) - 1
    first = command_box(fix) if fix.startswith("eoctl ") else escaped(fix)
    return first + (
        f" and {more:,} more like it, " + tag("a", "below", href="#findings") if more else ""
    )


# -- the page: readable without JavaScript. The script draws interactive timelines
#
# The page loads nothing. A policy within it forbids that, and allows the only script and style
# sheet by their digests.


SCRIPTS = ("rows", "marks", "drawing", "moving", "finding", "start")
MAX_ROWS = 500  # of a table on the page
MAX_PARTITIONS = 1000
OPEN_TABLES = ("finding", "held")
OPEN_ROWS = 30  # more would push everything else off the screen
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
    ("held", "blocked for read_committed"),
    ("error", "error: corrupt, lost, missing"),
    ("warning", "warning"),
    ("note", "note"),
    ("torn", "torn: ended otherwise elsewhere"),
    ("proved", "duplicate, proved"),
    ("suspected", "suspected only"),
    ("bound", "known as a bound only (HW)"),
    ("backwards", "timestamps run backwards"),
    ("commit", "committed offset of a group, and its lag"),
    ("event", "id fenced, timed out, new epoch"),
    ("deadline", "when a transaction times out"),
    ("kept", "producer state, until it expires"),
    ("unread", "not read, not known"),
)


def page_of(model: Model, *, max_lanes: int) -> bytes:
    """Return the page. Equal models give equal bytes."""
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
    """Return one script of all parts. The page has one digest, and the parts share their names."""
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
        or paragraph("No partition has two copies, so nothing was compared."),
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
    *("check_id", "severity", "topic", "partition", "base_offset", "message", "fix"),
    *("last_offset", "timestamp_ms", "broker_action", "start_pos", "file"),
)
_TRANSACTIONS = (
    *("topic", "partition", "state", "verdict", "producer_id", "transactional_id"),
    *("first_offset", "last_offset", "fix", "first_timestamp_ms", "last_timestamp_ms"),
    *("records", "holds_last_stable_offset", "held_offsets_count", "producer_epoch", "reason"),
    *("file", "position", "command"),
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
    "held": "Blocked",
    "transaction": "Transactions that were not committed",
    "torn_transaction": "Torn: partitions that contradict each other, or their coordinator",
    "duplicate": "Duplicates",
    "producer": "Producer ids",
    "replica": "Copies",
    "comparison": "Copies, compared",
    "commit": "Committed offsets",
    "change": "Changes of the cluster",
}


def _linked(offset: str) -> Callable[[Any], str | None]:
    """Return a function that links a row to its offset in this column."""

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
            is_open = kind in OPEN_TABLES and len(rows) <= OPEN_ROWS
            return _table(
                _CAPTIONS[kind], columns or every, rows, limit=limit, link=link, is_open=is_open
            )
    raise KeyError(kind)


def _table(
    caption: str,
    columns: Sequence[str],
    rows: Sequence[Any],
    *,
    limit: int,
    link: Callable[[Any], str | None] | None = None,
    is_open: bool = False,
) -> str:
    """Return a table of some columns. `link` gets whole rows."""
    shown = rows[:limit]
    is_placed = "topic" in columns and "partition" in columns
    names = [name for name in columns if not (is_placed and name == "topic")]
    cells = [[_value_of(row, name, is_placed=is_placed) for name in names] for row in shown]
    links = [None if link is None else link(row) for row in shown]
    return table(caption, names, cells, links=links, count=len(rows), is_open=is_open)


def _value_of(row: Any, name: str, *, is_placed: bool) -> Any:
    """Return the value of a cell. A partition is called `orders-0`."""
    value = getattr(row, name)
    if name == "partition" and is_placed:
        return row.topic if value is None else f"{row.topic}-{value}"
    return with_durations(value) if name == "message" and isinstance(value, str) else value


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
    caption = "States of their coordinators"
    return _table(caption, _STATES, list(newest.values()), limit=MAX_ROWS)
