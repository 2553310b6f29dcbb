"""docs/spark.md: what it shows is what comes out."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import shlex
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")

from pyarrow import parquet

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


@pytest.mark.exhaustive
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


def scripts() -> list[tuple[str, str]]:
    """(what is pasted behind the page's first example in Python, what is shown) of each of the others."""
    return [(words, shown) for language, words, shown in blocks() if language == "python"][1:]


def as_script(
    golden: Callable[[str], Path], directory: Path, pasted: str
) -> subprocess.CompletedProcess[str]:
    """Run an example as `python script.py` of an activated environment; only its paths are changed."""
    first = next(words for language, words, _ in blocks() if language == "python")
    text = f"{first}\n{pasted}".replace("/var/lib/kafka", str(golden("kafka-4.3.1") / "clean"))
    (directory / "script.py").write_text(text.replace("/data/audit", str(directory / "audit")))
    programs = Path(sys.executable).parent
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PYTHON", "PYSPARK", "SPARK"))
    }
    environment |= {"PATH": f"{programs}:{os.environ['PATH']}", "SPARK_LOCAL_IP": "127.0.0.1"}
    return subprocess.run(
        ["python", "script.py"], cwd=directory, env=environment, check=False, timeout=300,
        stdin=subprocess.DEVNULL, capture_output=True, text=True,
    )  # fmt: skip


@pytest.mark.exhaustive
@pytest.mark.java
@pytest.mark.xdist_group("spark")
@pytest.mark.slow
@pytest.mark.parametrize("number", range(len(scripts())))
def test_each_example_is_a_plain_script(
    golden: Callable[[str], Path], tmp_path: Path, number: int
) -> None:
    """Pasted into a file behind the first one, without those between them."""
    pytest.importorskip("pyspark.sql.streaming.datasource")
    pasted, shown = scripts()[number]
    done = as_script(golden, tmp_path, pasted)
    assert done.returncode == 0, done.stderr
    assert done.stdout.rstrip("\n") + "\n" == shown


@pytest.mark.java
@pytest.mark.xdist_group("spark")
@pytest.mark.slow
@pytest.mark.exhaustive
def test_the_audit_that_goes_on_is_a_plain_script(
    golden: Callable[[str], Path], tmp_path: Path
) -> None:
    """It would go on: it is stopped when it has counted what is there."""
    pytest.importorskip("pyspark.sql.streaming.datasource")
    found = re.search(
        r"^    from eoctl\.spark\.running_audit .*?^    query = [^\n]*$",
        PAGE.read_text(),
        re.MULTILINE | re.DOTALL,
    )
    assert found is not None
    end = """
query.processAllAvailable()
query.stop()
counts = spark.read.parquet("/data/audit/counts/batch=0")
print(counts.where("topic = 'txn'").first().open_transactions)
"""
    done = as_script(golden, tmp_path, textwrap.dedent(found[0]) + end)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "2\n"


def one_liners() -> list[str]:
    """The queries of the page that DuckDB runs."""
    lines = re.findall(r'^    (duckdb -c "[^"]*")$', PAGE.read_text(), re.MULTILINE)
    return [shlex.split(each)[2] for each in lines]


def test_one_liners(
    eoctl: Callable[..., Any], golden: Callable[[str], Path], tmp_path: Path
) -> None:
    """As they are pasted, but for their places; each has rows, and those of eoctl's own reports."""
    duckdb = pytest.importorskip("duckdb")
    logs, reports, export = golden("kafka-4.3.1") / "clean", tmp_path / "reports", tmp_path / "out"
    eoctl("spark-audit", logs, "--engine", "local", "--to", reports)
    eoctl("export", logs, "--engine", "local", "--to", export)
    found = []
    for query in one_liners():
        typed = query.replace("/tmp/reports", str(reports)).replace("/tmp/export", str(export))
        assert typed != query
        found.append(duckdb.sql(typed).fetchall())
    ids, opened, topics, hours = found

    def rows(report: str) -> list[dict[str, Any]]:
        text = eoctl("spark-audit", logs, "--report", report, "--output", "jsonl").text
        return [json.loads(each) for each in text.splitlines()]

    aborts = {
        each["transactional_id"]: each["aborted_transactions"] for each in rows("transactional-ids")
    }
    assert len(ids) == len(aborts) >= 5
    assert [each[1] for each in ids] == sorted(aborts.values(), reverse=True)
    assert {each[0]: each[1] for each in ids} == aborts
    holding = [each for each in rows("open") if each["holds_last_stable_offset"]]
    assert {each[:4] for each in opened} == {
        (each["topic"], each["partition"], each["first_offset"], each["transactional_id"])
        for each in holding
    }
    assert len(opened) == 2
    counted = {each["topic"]: each["batches"] for each in rows("topics") if each["batches"]}
    assert {each[0]: each[1] for each in topics} == counted
    assert topics[0][2] > 0
    files = [*export.rglob("topic=txn/*/*.parquet")]
    count = sum(parquet.read_metadata(each).num_rows for each in files)
    assert sum(each[1] for each in hours) == count > 0


def test_names_of_the_page() -> None:
    """The bundle has the name that the page tells, and the README leads to the page."""
    text = PAGE.read_text()
    assert f"dist/{BUNDLE_NAME}" in text
    assert "docs/spark.md" in (PAGE.parents[1] / "README.md").read_text()
