"""What pages for engineers name is there: files, rooms, targets of make."""

from __future__ import annotations

import re
from itertools import product
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = (
    "CONTRIBUTING.md",
    "README.md",
    *(str(page.relative_to(ROOT)) for page in (ROOT / "docs").glob("*.md")),
)
_PATH = re.compile(
    r"`((?:eoctl|recovery|storage|native|tests|docs|man|scripts|bench)/[\w./{},<>-]+)`"
)
_LINK = re.compile(r"\]\(([\w./-]+)\)")
_MODULE = re.compile(r"`((?:eoctl|recovery|storage)(?:\.\w+)+)`")
# A name, and the file that has it.
_PLACE = re.compile(r"`(\w+)` of `([\w./-]+)`")
_TARGET = re.compile(r"\bmake ([a-z]+(?:-[a-z]+)*)\b(?=`|\s+#|;)")


def spelled_out(path: str) -> list[str]:
    """Return the paths that one with {a,b} means."""
    parts = [part.split(",") for part in re.split(r"[{}]", path)]
    return ["".join(each) for each in product(*parts)]


def module_is_there(name: str) -> bool:
    """Whether a dotted name is a module or a package of ours, or something in one."""
    parts = name.split(".")
    return any(
        (ROOT / Path(*parts[:end])).with_suffix(".py").exists()
        or (ROOT / Path(*parts[:end])).is_dir()
        for end in (len(parts), len(parts) - 1)
        if end > 1
    )


@pytest.mark.parametrize("page", PAGES)
def test_what_a_page_names_is_there(page: str) -> None:
    text = (ROOT / page).read_text()
    paths = [each for path in _PATH.findall(text) for each in spelled_out(path) if "<" not in each]
    folder = (ROOT / page).parent
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert [path for path in paths if not (ROOT / path).exists()] == []
    assert [link for link in _LINK.findall(text) if not (folder / link).exists()] == []
    assert [name for name in _MODULE.findall(text) if not module_is_there(name)] == []
    assert [name for name in _TARGET.findall(text) if name not in targets] == []


def test_where_a_change_goes() -> None:
    """What CONTRIBUTING says of a file is in it, and no row has more places than a person opens."""
    page = (ROOT / "CONTRIBUTING.md").read_text()
    table = page.partition("## Where a change goes")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (.+?) \| (.+) \|$", table, re.MULTILINE)[1:]
    places = _PLACE.findall(page)
    assert len(places) > 20
    assert [
        (name, path)
        for name, path in places
        if not re.search(rf"\b{name}\b", (ROOT / path).read_text())
    ] == []
    assert [change for change, reported in rows if len(_PATH.findall(reported)) > 3] == []


def test_rooms_are_drawn() -> None:
    """Each room of the table has its row in docs/architecture.md."""
    drawn = (ROOT / "docs/architecture.md").read_text()
    rooms = [path.parent for path in (ROOT / "recovery").glob("*/__init__.py")]
    assert [room.name for room in rooms if f"recovery.{room.name}" not in drawn] == []


def test_what_can_be_undone_is_said_of_each_command() -> None:
    """docs/safety.md has a row for each command that has --apply, and says of which undo knows."""
    page = (ROOT / "docs/safety.md").read_text()
    rows = re.findall(r"^\| `([a-z-]+)", page, re.MULTILINE)
    changing = {
        man.stem.removeprefix("eoctl-")
        for man in (ROOT / "man").glob("eoctl-*.1")
        if ".Fl -apply" in man.read_text()
    }
    assert changing
    assert changing <= {*rows}
