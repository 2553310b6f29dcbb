"""The first screen of a page: what is wrong, who is held, what to do, and what that stands on."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from eoctl.face.units import duration_text, size_text, time_text
from eoctl.report.layout import PARTED
from eoctl.report.markup import SEVERITIES, anchor, command_box, escaped, paragraph, section, tag

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from eoctl.report.model import FindingMark, HeldMark, Model

TOLD_FINDINGS = 4  # at the top
TOLD_FIXES = 3
GRAVE = ("error", "warning")
_TIMES = re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+Z")
WRONG = frozenset({"Start", "Cuts", "Lost", "Torn", "Copies", "Election"})
# What a label of a check is called for somebody who never saw one.
WORDS = {"Cuts": "Cut by a start", "Torn": "Torn transaction", "Start": "Start of the broker"}
# Who ends an open transaction, by its verdict in `eoctl txn list`.
ENDINGS = {
    "ongoing": "its coordinator ends it",
    "overdue": "its coordinator should have ended it",
    "hanging": "no coordinator will end it",
    "unlisted": "no coordinator will end it",
    "unknown": "whether a coordinator ends it is not known",
}
NOTHING_WRONG = "Nothing wrong was found in what was read."


def header(model: Model) -> str:
    """What this is a page of: how much, from when to when."""
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


def verdict(model: Model) -> str:
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
    """The worst rules that are broken, each with its first place, and how much more there is."""
    by_rule: dict[str, list[FindingMark]] = {}
    for each in _worst_first(model):
        if not each.is_consequence:
            by_rule.setdefault(each.check_id, []).append(each)
    rules = list(by_rule.values())
    lines = [tag("li", _broken_rule(each)) for each in rules[:TOLD_FINDINGS]]
    more = sum(map(len, rules[TOLD_FINDINGS:]))
    if more:
        word = "findings" if more > 1 else "finding"
        lines.append(tag("li", tag("a", f"and {more:,} more {word}", href="#findings")))
    return tag("ul", "".join(lines), class_="worst") if lines else ""


def _broken_rule(rows: Sequence[FindingMark]) -> str:
    """The gravest finding of a rule, and in how many files there are others."""
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
    return f"{rule} {count}{where}{place}{link}: {escaped(first.message)}"


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
    what = "" if row.verdict is None else escaped(f" ({row.verdict}: {ENDINGS[row.verdict]})")
    late = "; it is older than any may be" if row.is_late else "; it is not late"
    if not row.is_end_read:
        late += "; whether it was ended behind what was read is not known"
    link = tag("a", "show", href=f"#{anchor(row.topic, row.partition, row.first_offset)}")
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
    then: dict[str, list[str]] = {}  # of each rule, what is not the first step and of no other one
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
        for rule, fixes in list(then.items())[:TOLD_FIXES]
    ]
    if len(then) > TOLD_FIXES:
        more = f"and for {len(then) - TOLD_FIXES:,} more rules, beside the findings"
        lines.append(tag("li", tag("a", more, href="#findings")))
    if not lines:
        return first
    return first + paragraph("then, by what was found:") + tag("ul", "".join(lines), class_="worst")


def _looks_beside(model: Model) -> Iterator[tuple[str, str]]:
    """What shows more of what no check of a single partition finds."""
    if model.torn:
        yield WORDS["Torn"], model.torn[0].command
    parted = [each for each in model.comparisons if each.likeness in PARTED]
    if parted:  # those that contradict each other, and of users, first
        first = min(parted, key=lambda each: (each.likeness != PARTED[0], each.topic[:2] == "__"))
        yield "Copies", first.command


def _fixes(fixes: Sequence[str]) -> str:
    """The first of them, a call with room for a button, and how many are like it."""
    fix, more = fixes[0], len(fixes) - 1
    first = command_box(fix) if fix.startswith("eoctl ") else escaped(fix)
    return first + (
        f" and {more:,} more like it, " + tag("a", "below", href="#findings") if more else ""
    )
