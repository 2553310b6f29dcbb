"""`eoctl check --explain`: what the book of rules says of an id, for people and programs."""

from __future__ import annotations

import textwrap

from eoctl.output import OutputFormat, line, row_writer
from recovery.rules.catalogue import Explanation, explain, find_rules, near_names
from storage.errors import EXIT_OK, UsageError

_WIDTH = 80
_PARTS = (
    ("broker_action", "A broker"),
    ("fix", "To put it right"),
    ("excused", "Excused"),
    ("kafka_class", "In Kafka"),
    ("page", "See"),
)


def explain_rules(name: str, output: OutputFormat) -> int:
    """Print one rule, or a family of them. UsageError: there is none of this name."""
    rules = find_rules(name)
    if not rules:
        near = near_names(name)
        next_step = f"did you mean {', '.join(near)}?" if near else "see docs/rules/README.md"
        raise UsageError(f"no rule has the id {name!r}", next_step=next_step)
    explanations = [explain(rule) for rule in rules]
    if output is OutputFormat.TEXT:
        line("\n\n".join(map(_text, explanations)))
        return EXIT_OK
    put = row_writer(output)
    for each in explanations:
        put({"kind": "rule", **each._asdict()})
    return EXIT_OK


def _text(rule: Explanation) -> str:
    head = f"{rule.check_id}  {rule.severity}".rstrip()
    lines = [head, *textwrap.wrap(rule.title, _WIDTH, break_on_hyphens=False)]
    said = rule._asdict()
    for name, words in _PARTS:
        if said[name]:
            first = f"{words}: "
            lines += textwrap.wrap(
                said[name],
                _WIDTH,
                initial_indent=f"  {first}",
                subsequent_indent="    ",
                break_on_hyphens=False,
                break_long_words=False,
            )
    return "\n".join(lines)
