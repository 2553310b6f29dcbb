"""Pages and man pages are plain English: no pattern of `tests.plain_english`, short sentences."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from eoctl.clients.copying.copier import ComparisonOutcome
from eoctl.clients.copying.resume import Exactness
from recovery.changes.journals.journal import BackupKind, Status
from recovery.changes.plans.plan import Action
from recovery.cluster.in_sync import AckStanding
from recovery.duplicates.spill import DuplicateCause, DuplicateKind
from recovery.groups.group_log import OffsetPlace
from recovery.groups.incoming import Taken
from recovery.loss.rows import ChangeKind, LossKind
from recovery.rebuild.diff import FileState
from recovery.repair.strategies import Strategy
from recovery.replay.recover_state import EntryState
from recovery.replicas.compare import Likeness
from recovery.rules.findings import Severity
from recovery.start.files import StartAction
from recovery.transactions.open_transactions import TransactionVerdict
from recovery.truncate.price import CutOutcome
from storage.dirs.acknowledged import CopyStanding
from storage.dirs.log_dir import StoppedState
from storage.dirs.topic_settings import SettingSource
from storage.file_names import DirState
from storage.kernels.protocol import VerdictKind
from storage.log.decoded_records import BatchOutcome
from storage.writing.partition_store import FileAction
from tests.plain_english import PATTERNS, Sentence, hits, manual, markdown, reading_ease, syllables

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from enum import StrEnum

ROOT = Path(__file__).parents[1]
WORDS_MAX = 30
EASE_MIN = 50
LINES_MAX = {"docs": 3000, "README.md": 250}
EASY_PAGES = ("README.md", "docs/incidents.md", "docs/safety.md")
PAGES = (
    "README.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    *(f"docs/{page.name}" for page in (ROOT / "docs").glob("*.md")),
)
MAN_PAGES = tuple(f"man/{page.name}" for page in (ROOT / "man").glob("*.[1-9]"))
# Kind of text -> its files, and the function that gives their sentences. Code joins here.
SOURCES: dict[str, tuple[Iterable[str], Callable[[str, str], Iterable[Sentence]]]] = {
    "pages": (PAGES, markdown),
    "man": (MAN_PAGES, manual),
}
# File -> names and quotations in it that are no English of ours.
ALLOWED: dict[str, tuple[str, ...]] = {}


@cache
def sentences_of(path: str) -> list[Sentence]:
    """Return the sentences of a file of `SOURCES`."""
    (read,) = [read for paths, read in SOURCES.values() if path in paths]
    return list(read(path, (ROOT / path).read_text()))


def all_files() -> list[str]:
    return sorted(path for paths, _ in SOURCES.values() for path in paths)


@pytest.mark.parametrize("path", all_files())
def test_no_pattern(path: str) -> None:
    assert hits(sentences_of(path), ALLOWED.get(path, ())) == []


@pytest.mark.parametrize("path", all_files())
def test_no_long_sentence(path: str) -> None:
    assert [str(each) for each in sentences_of(path) if len(each.words) > WORDS_MAX] == []


@pytest.mark.parametrize("path", EASY_PAGES)
def test_an_operator_reads_it_easily(path: str) -> None:
    assert reading_ease(sentences_of(path)) >= EASE_MIN


def test_pages_are_short() -> None:
    """Rules are written from code, and are not in the sum."""
    lines = {
        "docs": sum(
            len((ROOT / page).read_text().splitlines())
            for page in PAGES
            if page.startswith("docs/")
        ),
        "README.md": len((ROOT / "README.md").read_text().splitlines()),
    }
    assert {name: count for name, count in lines.items() if count > LINES_MAX[name]} == {}


# --- terms ------------------------------------------------------------------------------------------

# Enumerations whose values are printed; the page has each value.
STATES: tuple[type[StrEnum], ...] = (
    Action, BackupKind, BatchOutcome, ChangeKind, ComparisonOutcome, CopyStanding, CutOutcome, DirState,
    DuplicateCause, DuplicateKind, EntryState, Exactness, AckStanding, FileAction, FileState, Likeness,
    LossKind, OffsetPlace, SettingSource, Severity, StartAction, Status, StoppedState, Strategy, Taken,
    TransactionVerdict, VerdictKind,
)  # fmt: skip


def defined_terms() -> set[str]:
    """Return the words in code of eoctl-terms(7): `.Cm` and the lists behind `Cm` in `.It`."""
    page = (ROOT / "man/eoctl-terms.7").read_text()
    lines = re.findall(r"^\.(?:It .*?)?Cm (.*)$", page, re.MULTILINE)
    return {each.strip(" .") for line in lines for each in line.split(" , ")}


def answer_labels() -> set[str]:
    """Return the labels of answers: what `Said` is called with."""
    found = set()
    for path in (ROOT / "eoctl").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            is_said = isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Said"
            if is_said and node.args and isinstance(node.args[0], ast.Constant):
                found.add(node.args[0].value)
    return found - {""}


def test_terms_of_outputs_are_defined() -> None:
    """A term of ours that an output prints is in eoctl-terms(7)."""
    labels = answer_labels()
    assert {"Start", "Lost", "Next", "Undo"} <= labels
    states = {value for each in STATES for value in each}
    assert sorted((labels | states) - defined_terms()) == []


# --- the reading of pages ---------------------------------------------------------------------------

PAGE = """\
# Who is there

Who reads it once needs `no more`. It is
[short](x.md), e.g. this; eoctl says so.

    what is there twice

- It was told
  so.

| a cell | another one. It ends |
|---|---|

```console
$ told
```
"""
MANUAL = """\
.Sh NAME
.Nm told
.Sh DESCRIPTION
It is
.Fl -told ,
as foretold.
.Bl -tag -width Ds
.It Cm told
What goes.
.El
.Bd -literal
told
.Ed
"""


def test_sentences_of_a_page() -> None:
    found = list(markdown("p", PAGE))
    assert [(each.line, each.text) for each in found] == [
        (3, "Who reads it once needs \u2042."),
        (3, "It is short, e.g. this; eoctl says so."),
        (8, "It was told so."),
        (11, "a cell"),
        (11, "another one."),
        (11, "It ends"),
    ]
    assert [each.is_prose for each in found] == [True] * 3 + [False] * 3
    assert len(hits(found)) == 4


def test_sentences_of_a_manual() -> None:
    found = list(manual("p", MANUAL))
    assert [(each.line, each.text) for each in found] == [
        (4, "It is \u2042, as foretold."),
        (9, "What goes."),
    ]
    assert len(hits(found)) == 2


def test_each_pattern_is_one() -> None:
    """A page that breaks a rule is seen, and names that are allowed are not."""
    broken = [
        Sentence("p", 1, text, is_prose=True)
        for text in ("For who has it.", "It is told.", "Where it is not, go on.")
    ]
    assert len(hits(broken)) == 3
    assert hits(broken[1:2], ["told"]) == []
    assert all(re.compile(pattern) for pattern in PATTERNS)


def test_reading_ease() -> None:
    easy = [Sentence("p", 1, "The cat sat on the mat.", is_prose=True)]
    hard = [
        Sentence(
            "p",
            1,
            "Transactional coordination necessitates comprehensive verification.",
            is_prose=True,
        )
    ]
    assert reading_ease(easy) > 100
    assert reading_ease(hard) < 0
    assert [syllables(word) for word in ("broker", "transaction", "closed", "table", "the")] == [
        2,
        3,
        1,
        2,
        1,
    ]
