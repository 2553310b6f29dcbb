"""docs/spark.md: what it shows is what comes out."""

from __future__ import annotations

import contextlib
import io
import json
import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")

from eoctl.spark.bundle import BUNDLE_NAME
from tests.spark.running import spark

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["spark"]

PAGE = Path(__file__).parents[2] / "docs" / "spark.md"
LIST = re.compile(r"jq -c '\[([.\w,]+)\]'")


def blocks() -> list[tuple[str, str, str]]:
    """(language, what is typed, what is shown) of each example."""
    found: list[tuple[str, str, str]] = []
    for language, body in re.findall(
        r"^```(\w+)\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL
    ):
        if language == "text":
            found[-1] = (*found[-1][:2], body)
        elif language == "console":
            command, _, shown = body.partition("\n")
            found.append((language, command.removeprefix("$ "), shown))
        else:
            found.append((language, body, ""))
    return found


def listed(text: str, pattern: str) -> str:
    """What jq makes of it; the tests do without."""
    names = [each.removeprefix(".") for each in pattern.split(",")]
    rows = [json.loads(line) for line in text.splitlines()]
    lines = [json.dumps([row[name] for name in names], separators=(",", ":")) for row in rows]
    return "".join(f"{line}\n" for line in lines)


def run(eoctl: Callable[..., Any], command: str) -> str:
    before, _, after = command.partition(" | ")
    outcome = eoctl(*shlex.split(before)[1:])
    assert outcome.status == 0, outcome.errors
    if not after:
        return ""
    pattern = LIST.fullmatch(after)
    assert pattern is not None, after
    return listed(outcome.text, pattern[1])


@pytest.mark.usefixtures("spark")
@pytest.mark.java
@pytest.mark.xdist_group("spark")
def test_examples(eoctl: Callable[..., Any], golden: Callable[[str], Path], tmp_path: Path) -> None:
    places = {
        "/var/lib/kafka": str(golden("kafka-4.3.1") / "clean"),
        "/tmp/reports": str(tmp_path / "reports"),
    }
    names: dict[str, Any] = {}
    kinds = set()
    for language, words, shown in blocks():
        typed = words
        for place, real in places.items():
            typed = typed.replace(place, real)
        if language == "console":
            printed = run(eoctl, typed)
        else:
            output = io.StringIO()
            with contextlib.redirect_stdout(output):
                exec(compile(typed, PAGE.name, "exec"), names)
            printed = output.getvalue().rstrip("\n") + "\n" if output.getvalue() else ""
        assert printed == shown, typed
        kinds.add((language, bool(shown)))
    assert kinds == {("console", True), ("console", False), ("python", True), ("python", False)}


def test_names_of_the_page() -> None:
    """The bundle has the name that the page tells, and the README leads to the page."""
    text = PAGE.read_text()
    assert f"dist/{BUNDLE_NAME}" in text
    assert "docs/spark.md" in (PAGE.parents[1] / "README.md").read_text()
