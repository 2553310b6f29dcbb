"""Pages, man pages and printed texts are plain English.

No pattern of `tests.plain_english` is in them, and sentences of pages are short.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.plain_english import (
    CODE,
    PATTERNS,
    Sentence,
    documented,
    hits,
    manual,
    markdown,
    printed,
    reading_ease,
    syllables,
    unlike_a_first_line,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

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
RULE_PAGES = tuple(f"docs/rules/{page.name}" for page in (ROOT / "docs/rules").glob("*.md"))
ROOMS = ("eoctl", "recovery", "storage")  # of modules that print
NOT_PRINTED = "eoctl/lab/"
# Headings of the report page; those of other pages are no sentences either.
HEADINGS = ("What is wrong", "Who is blocked", "What to do")
# Lists of modules in the docstrings of packages, whose form `tests/test_rooms.py` reads.
MODULES = "From the entry down:"
NAMES_IN_DOCSTRINGS = re.compile(r"\A(?:mended|tell): |\b(?:courses?|cut)(?=, |$)")
MAN_PAGES = tuple(f"man/{page.name}" for page in (ROOT / "man").glob("*.[1-9]"))


def rules(path: str, text: str) -> Iterator[Sentence]:
    """Give the sentences of a page of rules. A broker's action lists things, as a cell does."""
    return (each._replace(is_prose=False) for each in markdown(path, text))


# Kind of text -> its files, and the function that gives their sentences. Code joins here.
SOURCES: dict[str, tuple[Iterable[str], Callable[[str, str], Iterable[Sentence]]]] = {
    "pages": (PAGES, markdown),
    "man": (MAN_PAGES, manual),
    "rules": (RULE_PAGES, rules),
}
# File -> names and quotations in it that are no English of ours.
ALLOWED: dict[str, tuple[str, ...]] = {}
# File -> lines that are written from code: its texts are checked where they are.
FROM_CODE = {
    "docs/replication.md": r"^\| \[REPL-.*|^- `(?:kill|partition|stop|power)-.*|^- acks=all: .*",
}


@cache
def sentences_of(path: str) -> list[Sentence]:
    """Return the sentences of a file of `SOURCES`."""
    (read,) = [read for paths, read in SOURCES.values() if path in paths]
    text = (ROOT / path).read_text()
    if path in FROM_CODE:
        text = re.sub(FROM_CODE[path], "", text, flags=re.MULTILINE)
    return list(read(path, text))


def all_files() -> list[str]:
    return sorted(path for paths, _ in SOURCES.values() for path in paths)


@pytest.mark.parametrize("path", all_files())
def test_no_pattern(path: str) -> None:
    assert hits(sentences_of(path), ALLOWED.get(path, ())) == []


@pytest.mark.parametrize("path", all_files())
def test_no_long_sentence(path: str) -> None:
    assert [str(each) for each in sentences_of(path) if len(each.words) > WORDS_MAX] == []


@pytest.mark.parametrize("room", ROOMS)
def test_no_pattern_in_printed_texts(room: str) -> None:
    paths = (str(each.relative_to(ROOT)) for each in sorted((ROOT / room).rglob("*.py")))
    found = [
        each
        for path in paths
        if not path.startswith(NOT_PRINTED)
        for each in hits(
            sentence
            for sentence in printed(path, (ROOT / path).read_text())
            if sentence.text not in HEADINGS
        )
    ]
    assert found == []


@pytest.mark.parametrize("room", ROOMS)
def test_docstrings_and_comments(room: str) -> None:
    """No pattern, no long sentence, no first line that is a question or lacks its noun."""
    found: list[str] = []
    for each in sorted((ROOT / room).rglob("*.py")):
        path, text = str(each.relative_to(ROOT)), each.read_text()
        sentences = [
            sentence._replace(text=NAMES_IN_DOCSTRINGS.sub(CODE, sentence.text))
            for sentence in documented(path, text)
        ]
        found += hits(sentences)
        found += [
            str(sentence)
            for sentence in sentences
            if len(sentence.words) > WORDS_MAX and not sentence.text.startswith(MODULES)
        ]
        found += [f"{path}:{line}: {first}" for line, first in unlike_a_first_line(text)]
    assert found == []


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
    assert len(hits(found)) == 3  # of "What goes" two


def test_sentences_of_docstrings_and_comments() -> None:
    found = list(documented("p", DOCUMENTED))
    assert sorted((each.line, each.text) for each in found) == [
        (1, "Whether it is."),
        (6, "Return it."),
        (9, "name: of what."),
        (12, "It was told so."),
        (14, "x: told"),
    ]
    assert len(hits(found)) == 3
    assert list(unlike_a_first_line(DOCUMENTED)) == [(1, "Whether it is.")]


DOCUMENTED = """\
'''Whether it is.'''
# noqa: told


def told(name):
    '''Return it.

    Args:
        name: of what.
    '''

    # It was
    # told so.
    return f"{told}"  # x: told
"""
MODULE = """\
'''Told.'''


class Told:
    '''It is told.'''

    def told(self, name):
        super().told("it was told")
        return f"{name} is {'not ' + 'told so'}: who" f" {name!r} it, told"

    def mend(self, name):
        said("Cuts", "Mend it" if name == "told" else "cut", verbs=("mend", "told"))
"""


def test_sentences_of_a_module() -> None:
    found = list(printed("p", MODULE))
    assert sorted((each.line, each.text) for each in found) == [
        (8, "it was told"),
        (9, "not"),
        (9, "told so"),
        (9, "\u2042 is \u2042: who \u2042 it, told"),
        (12, "Cuts"),
        (12, "Mend it"),
        (12, "cut"),
        (12, "mend"),
        (12, "told"),
    ]
    assert len(hits(found)) == 8


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
