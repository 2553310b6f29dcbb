"""The book of rules: every id that is named anywhere resolves, and all that is said derives from it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from recovery.checks.context.collector import Collector
from recovery.rules.catalogue import PAGES, RULES, explain, find_rules, fix_of, severity_of
from recovery.rules.findings import Severity
from tests import rule_pages

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(rule_pages.__file__).parent.parent
TOKEN = re.compile(r"(?<![\w-])([A-Z]{2,5})-\d+[a-z]?(?![\w-])")
# Names of standards, and of Kafka's proposals and issues; TOPIC and XYZ stand for anything in tests.
NOT_RULES = frozenset({"CRC", "FLIP", "KAFKA", "KIP", "PIP", "SHA", "TOPIC", "UTF", "XYZ"})
SHOWN_UNNAMED = {"AUD-1", "CTL-3", "RLM-1", "RLM-2"}  # their tests go by message
NO_CHECK = {"BAT-15", "EPC-5"}  # nothing tells of them: what they say is normal


def unknown_ids(text: str) -> list[str]:
    return [
        match[0]
        for match in TOKEN.finditer(text)
        if match[1] not in NOT_RULES and match[0] not in RULES
    ]


def sources() -> list[Path]:
    found = [ROOT / "README.md", ROOT / "CHANGELOG.md"]
    for folder in ("eoctl", "recovery", "storage", "tests", "bench", "scripts", "man", "docs"):
        paths = (ROOT / folder).rglob("*")
        found += [each for each in paths if each.suffix in {".py", ".md", ".sh", ".1", ".5", ".7"}]
    return found


def test_an_id_that_is_no_rule_is_seen() -> None:
    assert unknown_ids("as BAT-1, REC-6 and CRC-32 have it") == []
    assert unknown_ids("BAT-99 (ZZZ-1), BAT-1c") == ["BAT-99", "ZZZ-1", "BAT-1c"]


def test_every_id_in_code_manual_and_docs_resolves() -> None:
    this = Path(__file__)
    found = {
        (str(path.relative_to(ROOT)), name)
        for path in sources()
        if path != this
        for name in unknown_ids(path.read_text())
    }
    assert found == set()


def test_no_text_cites_what_the_project_does_not_have() -> None:
    """A chapter of a paper elsewhere tells a reader nothing: name a rule, or say it."""
    cited = re.compile(r"\b(design|reference) \d|\bids of the reference\b|\u00a7", re.IGNORECASE)
    found = {
        (str(path.relative_to(ROOT)), match[0])
        for path in sources()
        for match in cited.finditer(path.read_text())
        if path != Path(__file__)
    }
    assert found == set()


def test_every_rule_is_said_once_and_in_full() -> None:
    rules = [rule for page in PAGES for rule in page.rules]
    assert len(rules) == len(RULES)
    for rule in rules:
        assert rule.title.endswith(".")
        assert rule.kafka
        assert bool(rule.severity) == bool(rule.broker), rule.check_id
        assert not rule.command or "{}" in rule.command
        # A step stands alone in an answer: it names its object.
        has_pronoun = re.match(r"(?!None|eoctl)[^,;]*\b(it|them)\b", rule.fix)
        assert not has_pronoun, rule.fix


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_test_that_a_rule_names_is_there(page: Any) -> None:
    tests = list((ROOT / "tests").rglob("*.py"))
    for rule in page.rules:
        if rule.check_id in NO_CHECK:
            continue
        *parents, name = rule.test.split("/")
        found = [each for each in tests if each.name == name and {*parents} <= {*each.parts}]
        assert found, rule
        if rule.severity and rule.check_id not in SHOWN_UNNAMED:
            named = re.compile(rf"\b{rule.check_id}(?!\w)")
            assert any(named.search(each.read_text()) for each in found), rule


def test_each_page_says_what_the_book_says() -> None:
    made = rule_pages.pages()
    on_disk = {path.name: path.read_text() for path in rule_pages.DIRECTORY.iterdir()}
    assert on_disk.keys() == made.keys()
    stale = [name for name in made if on_disk[name] != made[name]]
    assert stale == [], "python -m tests.rule_pages writes them"


def test_a_finding_of_no_rule_is_a_fault_of_ours() -> None:
    collector = Collector("t", 0)
    with pytest.raises(KeyError, match="BAT-99"):
        collector.add("BAT-99", "/a/t-0", "nothing", severity=Severity.NOTE)
    collector.add("BAT-9", "/a/t-0", "something")
    assert [each.severity for each in collector.kept] == [Severity.WARNING]


def test_severity_and_fix_derive_from_the_rule() -> None:
    assert severity_of("BAT-1") is Severity.ERROR
    assert severity_of("TXO-1") is Severity.NOTE
    assert fix_of("BAT-1", "/a b/t-0") == "eoctl repair '/a b/t-0'"
    assert fix_of("SEG-4", "/a/t-0") == ""
    assert explain(RULES["IDX-6"]).excused.startswith("Compacted topics.")
    assert [rule.check_id for rule in find_rules("vAr")] == ["VAR-1", "VAR-2"]


def test_explain_for_people(eoctl: Callable[..., Any]) -> None:
    outcome = eoctl("check", "--explain", "bat-1")
    assert (outcome.status, outcome.errors) == (0, "")
    lines = outcome.text.splitlines()
    assert lines[0] == "BAT-1  error"
    assert "  See: docs/rules/log.md" in lines
    assert max(map(len, lines)) <= 80
    whole_family = eoctl("check", "--explain", "REC").text
    assert whole_family.split("\n\n")[0].startswith("REC-2\n")


def test_explain_for_programs(eoctl: Callable[..., Any]) -> None:
    outcome = eoctl("check", "--explain", "TXO", "--output", "jsonl")
    rows = [json.loads(line) for line in outcome.text.splitlines()]
    assert [row["check_id"] for row in rows] == ["TXO-1", "TXO-2", "TXO-3"]
    assert {row["kind"] for row in rows} == {"rule"}
    assert rows[0]["severity"] == "note"
    assert rows[0]["fix"] == "eoctl txn hanging DIR"


def test_explain_of_no_rule_names_near_ones(eoctl: Callable[..., Any], tmp_path: Path) -> None:
    outcome = eoctl("check", "--explain", "BAT-77")
    assert (outcome.status, outcome.text) == (2, "")
    assert "BAT-7" in outcome.errors
    assert eoctl("check", "--explain", "BAT-7", tmp_path).status == 2


def test_every_id_in_what_a_check_prints_resolves(
    golden: Callable[[str], Path], eoctl: Callable[..., Any]
) -> None:
    log_dir = golden("kafka-4.3.1") / "clean"
    outcome = eoctl("check", "--deep", "--predict", "--output", "jsonl", log_dir)
    assert "TXO-1" in outcome.text
    assert unknown_ids(outcome.text + outcome.errors) == []
