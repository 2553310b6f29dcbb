"""The pages of docs/rules, written from the book of rules: `python -m tests.rule_pages`."""

from __future__ import annotations

import textwrap
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

from recovery.rules.catalogue import PAGES, RulePage, explain

if TYPE_CHECKING:
    from recovery.rules.findings import Rule

DIRECTORY = Path(__file__).parent.parent / "docs" / "rules"
_MADE = "<!-- Made by `python -m tests.rule_pages` from recovery/rules; edit the rules there. -->"
_INTRODUCTION = """
Every id that `eoctl` prints, or that its manual and its code name, with its rule. `eoctl check
--explain ID` prints the same. Rules with a severity are checked. An **error** is lost data, or a
broker that will misbehave or not start. A **warning** is something that no healthy broker writes, or
that a person has to judge. A **note** is worth knowing, and harmless. A check gives another severity
if the circumstances demand it. "Excused" says when. The other rules describe a broker. The
predictions, rebuilt files and repairs of eoctl follow them.

The rules come from Kafka's sources and were compared with real brokers, 0.10.2 to 4.4.0. If the two
differ, the broker is right.
"""


def pages() -> dict[str, str]:
    """Return the text of each page by the name of its file."""
    made = {f"{page.name}.md": _page(page) for page in PAGES}
    return {"README.md": _index(), **made}


def _index() -> str:
    lines = ["# The book of rules", "", _MADE, _INTRODUCTION]
    for page in PAGES:
        families = dict.fromkeys(rule.family for rule in page.rules)
        lines.append(f"- [{page.title}]({page.name}.md): {', '.join(families)}")
    lines += ["", "| rule | severity | statement |", "|---|---|---|"]
    for page in PAGES:
        for rule in page.rules:
            link = f"[{rule.check_id}]({page.name}.md#{rule.check_id.lower()})"
            lines.append(f"| {link} | {rule.severity or ''} | {rule.title} |")
    return "\n".join(lines) + "\n"


def _page(page: RulePage) -> str:
    parts = [f"# {page.title}\n\n{_MADE}\n"]
    for _, rules in groupby(page.rules, key=lambda rule: rule.family):
        parts += map(_section, rules)
    return "\n".join(parts)


def _section(rule: Rule) -> str:
    said = explain(rule)
    facts = (
        ("Severity", said.severity),
        ("A broker", said.broker_action),
        ("To put it right", said.fix),
        ("Excused", said.excused),
        ("In Kafka", said.kafka_class),
        ("Shown by", f"tests: {rule.test}" if rule.test else "no test: no check reports it"),
    )
    lines = [f"## {rule.check_id}\n", *_wrapped(rule.title), ""]
    for name, words in facts:
        if words:
            lines += _wrapped(f"- **{name}**: {words}", "  ")
    return "\n".join(lines) + "\n"


def _wrapped(text: str, indent: str = "") -> list[str]:
    return textwrap.wrap(
        text, 100, subsequent_indent=indent, break_on_hyphens=False, break_long_words=False
    )


if __name__ == "__main__":
    DIRECTORY.mkdir(exist_ok=True)
    for _name, _text in pages().items():
        (DIRECTORY / _name).write_text(_text)
