"""The rules: each id that a check, a message or a page names, with its texts.

The catalogue has the severity of a finding, the command that fixes it, and its exceptions. It is
the source of `eoctl check --explain` and of the pages of docs/rules (`python -m tests.rule_pages`).
The rows are in the modules `rules_of_...`, one or more pages each.
"""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, NamedTuple

from recovery.rules.brokers import LOADING, REPAIRING, WRITING
from recovery.rules.directories import DIRECTORIES
from recovery.rules.findings import Severity
from recovery.rules.formats import FORMATS, KRAFT
from recovery.rules.indexes import INDEXES
from recovery.rules.logs import LOG
from recovery.rules.producers import PRODUCERS
from recovery.rules.replication import REPLICATION
from recovery.rules.state import STATE
from recovery.rules.takings import TAKINGS
from storage.errors import as_argument

if TYPE_CHECKING:
    from recovery.rules.findings import Rule


class RulePage(NamedTuple):
    """The rules on one page of docs/rules."""

    name: str
    title: str
    rules: tuple[Rule, ...]


PAGES = (
    RulePage("log", "Segments and batches", LOG),
    RulePage("indexes", "Indexes", INDEXES),
    RulePage("producers", "Producers and transactions", PRODUCERS),
    RulePage("directories", "Log dirs, checkpoints and offsets", DIRECTORIES),
    RulePage("kraft", "The cluster's metadata", KRAFT),
    RulePage("formats", "Records within batches, and files of eoctl", FORMATS),
    RulePage("writing", "How a broker writes a log", WRITING),
    RulePage("loading", "How a broker loads and recovers a log", LOADING),
    RulePage("takings", "Deletions and cleanings after a start", TAKINGS),
    RulePage("state", "Producers and transactions in a broker", STATE),
    RulePage("replication", "How replicas keep together", REPLICATION),
    RulePage("repairing", "Requirements of a repair", REPAIRING),
)
RULES = {rule.check_id: rule for page in PAGES for rule in page.rules}

# Normal effects of compaction (COMP-4 to COMP-10, OFF-5, PRD-1).
NORMAL_WHEN_COMPACTED = frozenset(
    rule.check_id for rule in RULES.values() if rule.is_normal_when_compacted
)

_COMPACTED = "Compacted topics."


class Explanation(NamedTuple):
    """A rule as shown to people and programs. "" without a text."""

    check_id: str
    severity: str
    title: str
    broker_action: str
    fix: str
    excused: str
    kafka_class: str
    page: str


def rule_of(check_id: str) -> Rule:
    """Return the rule of this id. A KeyError is a bug of eoctl."""
    return RULES[check_id]


def severity_of(check_id: str) -> Severity:
    """Return the severity of a broken rule by its id. ERROR if the rule has none."""
    return rule_of(check_id).severity or Severity.ERROR


def fix_of(check_id: str, path: str) -> str:
    """Return the command that fixes a finding in this directory, "" if none does."""
    return rule_of(check_id).command.format(shlex.quote(as_argument(path)))


def page_of(check_id: str) -> RulePage:
    """Return the page of a rule."""
    return next(page for page in PAGES if RULES[check_id] in page.rules)


def find_rules(name: str) -> list[Rule]:
    """Return the rule of this id, or all of a family such as BAT. Case does not matter."""
    wanted = name.casefold()
    exact = [rule for rule in RULES.values() if rule.check_id.casefold() == wanted]
    return exact or [rule for rule in RULES.values() if rule.family.casefold() == wanted]


def near_names(name: str) -> list[str]:
    """Return at most six ids that resemble `name`."""
    from difflib import get_close_matches

    by_name = {check_id.casefold(): check_id for check_id in RULES}
    close = get_close_matches(name.casefold(), by_name, n=6, cutoff=0.6)
    return [by_name[each] for each in close]


def explain(rule: Rule) -> Explanation:
    """Return all texts of a rule except its test."""
    command = rule.command.format("DIR")
    excuses = [_COMPACTED] if rule.is_normal_when_compacted else []
    excused = " ".join([*excuses, rule.excuse] if rule.excuse else excuses)
    return Explanation(
        check_id=rule.check_id,
        severity=rule.severity or "",
        title=rule.title,
        broker_action=rule.broker,
        fix="; ".join(filter(None, (command, rule.fix))),
        excused=excused,
        kafka_class=rule.kafka,
        page=f"docs/rules/{page_of(rule.check_id).name}.md",
    )
