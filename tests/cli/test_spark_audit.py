"""`eoctl spark-audit` on real directories, against kafka-dump-log's words, and on damaged copies."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgpack
import pytest

from tests.audit_logs import COUNTED, Batch, write_segments
from tests.dump_counts import counts_of
from tests.spark.running import SPARK_MARKS, spark

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["spark"]

ROOT = Path(__file__).parents[2]
STATES = ["crash", "recovered", "clean", "hard", "hard-clean", "tv2", "tv2-clean"]
REQUIRED = [
    "topic",
    "partition",
    "batches",
    "records",
    "bytes",
    "control_batches",
    "transactional_batches",
    "aborted_batches",
    "duplicate_batches",
]
FIELDS = ["kind", "topic", "partition", *COUNTED, "problems_count", "path"]
VERIFIED = "verified: headers and checksums of all batches; records of format 2 were not looked at"
needs_spark = [
    pytest.mark.usefixtures("spark"),
    *SPARK_MARKS,
]


def with_spark(test: Any) -> Any:
    for mark in needs_spark:
        test = mark(test)
    return test


def rows_of(outcome: Any) -> list[dict[str, Any]]:
    return [json.loads(line) for line in outcome.text.splitlines()]


def notes_of(outcome: Any) -> list[str]:
    return [json.loads(line)["message"] for line in outcome.errors.splitlines()]


def check_rows(rows: list[dict[str, Any]], root: Path, dumps: Path) -> None:
    assert [(row["topic"], row["partition"]) for row in rows] == sorted(
        (row["topic"], row["partition"]) for row in rows
    )
    for row in rows:
        assert list(row) == FIELDS
        name = f"{row['topic']}-{row['partition']}"
        assert row["path"] == str(root / name)
        assert {each: row[each] for each in COUNTED} == counts_of(dumps / name), name
        assert row["problems_count"] == 0
    assert {Path(row["path"]).name for row in rows} == {
        path.name for path in dumps.iterdir() if path.is_dir()
    }


# --- real directories -----------------------------------------------------------------------------


@with_spark
@pytest.mark.parametrize("state", STATES)
def test_golden_states(
    eoctl: Callable[..., Any], golden: Callable[[str], Path], state: str
) -> None:
    root = golden("kafka-4.3.1") / state
    outcome = eoctl("spark-audit", root, "--output", "jsonl")
    assert (outcome.status, notes_of(outcome)) == (0, [VERIFIED])
    rows = rows_of(outcome)
    assert list(rows[0])[1:10] == REQUIRED
    check_rows(rows, root, golden("kafka-4.3.1.dump") / state)
    open_count = {"hard": 106, "hard-clean": 104, "tv2": 0, "tv2-clean": 0}.get(state, 2)
    assert sum(row["open_transactions"] for row in rows) == open_count


@with_spark
def test_legacy(eoctl: Callable[..., Any], golden: Callable[[str], Path]) -> None:
    root = golden("kafka-0.10.2-legacy")
    outcome = eoctl("spark-audit", root, "--output", "jsonl")
    assert outcome.status == 0
    check_rows(rows_of(outcome), root, golden("kafka-0.10.2-legacy.dump"))


@with_spark
def test_several_brokers_at_once(eoctl: Callable[..., Any], golden: Callable[[str], Path]) -> None:
    root = golden("kafka-4.3.1-three-brokers") / "diverged"
    dumps = golden("kafka-4.3.1-three-brokers.dump") / "diverged"
    brokers = sorted(path.name for path in root.iterdir())
    outcome = eoctl("spark-audit", *(root / each for each in brokers), "--output", "jsonl")
    assert outcome.status == 0
    rows = rows_of(outcome)
    assert len({row["path"] for row in rows}) == len(rows)
    for broker in brokers:
        of_broker = [row for row in rows if Path(row["path"]).parent.name == broker]
        check_rows(of_broker, root / broker, dumps / broker)
    copies = [row["records"] for row in rows if row["topic"] == "div"]
    assert len(copies) == 3
    assert len(set(copies)) > 1


@with_spark
def test_text_and_msgpack(
    eoctl: Callable[..., Any],
    golden: Callable[[str], Path],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(golden("kafka-4.3.1") / "clean")
    outcome = eoctl("spark-audit", "txn-0", "./plain-1")
    counts = [155, 329, 27718, 38, 104, 37, 0, 1, 24, 14, 0, 0]
    assert outcome.text.splitlines() == [
        "\t".join(FIELDS[1:]),
        "plain\t1\t10\t221\t34712\t0\t0\t0\t0\t0\t0\t0\t0\t0\t./plain-1",
        "\t".join(map(str, ["txn", 0, *counts, "txn-0"])),
    ]
    assert outcome.errors.splitlines() == [VERIFIED]
    outcome = eoctl("spark-audit", "txn-0", "--output", "msgpack")
    row = msgpack.unpackb(outcome.stdout)
    assert list(row) == FIELDS
    assert [row[each] for each in [*COUNTED, "problems_count"]] == counts


@with_spark
def test_example_of_the_man_page(eoctl: Callable[..., Any], golden: Callable[[str], Path]) -> None:
    page = (ROOT / "man" / "eoctl-spark-audit.1").read_text()
    match = re.search(r"^\$ eoctl (.*)\n(\{(?:.*\n)+?)\.Ed", page, re.MULTILINE)
    assert match is not None
    place = str(golden("kafka-4.3.1") / "clean")
    outcome = eoctl(*match[1].replace("/var/lib/kafka", place).split())
    shown = re.sub(r"\n ?", "", match[2]).replace("/var/lib/kafka", place)
    assert outcome.text == shown + "\n"


# --- damage and odd directories -------------------------------------------------------------------


@with_spark
def test_damaged_copy(
    eoctl: Callable[..., Any], golden: Callable[[str], Path], tmp_path: Path
) -> None:
    root = tmp_path / "clean"
    root.mkdir()
    for name in ("txn-0", "txn-1", "rolled-0"):
        shutil.copytree(golden("kafka-4.3.1") / "clean" / name, root / name)
    log = root / "txn-0" / f"{0:020d}.log"
    log.chmod(0o644)
    data = bytearray(log.read_bytes())
    data[100] ^= 1
    log.write_bytes(data)
    middle = sorted((root / "rolled-0").glob("*.log"))[1]
    middle.chmod(0o644)
    middle.write_bytes(b"")
    outcome = eoctl("spark-audit", root, "--output", "jsonl")
    assert outcome.status == 1
    rolled, damaged, sound = rows_of(outcome)
    dumps = golden("kafka-4.3.1.dump") / "clean"
    assert {each: sound[each] for each in COUNTED} == counts_of(dumps / "txn-1")
    expected = counts_of(dumps / "txn-0")
    assert damaged["batches"] == expected["batches"] - 1
    assert (damaged["corrupt_batches"], damaged["problems_count"]) == (1, 1)
    assert 0 < rolled["batches"] < counts_of(dumps / "rolled-0")["batches"]
    assert rolled["problems_count"] == 0
    (note,) = notes_of(outcome)[1:]
    assert note.startswith(f"{log}: positions 0 to 151: corrupt: ")


@with_spark
def test_duplicates_across_segments(eoctl: Callable[..., Any], tmp_path: Path) -> None:
    segments = [[Batch(count=3), Batch(sequence=3)], [Batch(count=3), Batch(sequence=4)]]
    directory = write_segments(tmp_path / "t-0", *segments)
    outcome = eoctl("spark-audit", directory, "--output", "jsonl")
    assert outcome.status == 0
    assert rows_of(outcome)[0]["duplicate_batches"] == 1


@with_spark
def test_a_partition_without_segments_and_one_that_goes(
    eoctl: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "data"
    root.mkdir()
    (root / "empty-0").mkdir()
    write_segments(root / "some-3", [Batch()])
    write_segments(root / "some-12", [Batch(), Batch(sequence=1)])
    outcome = eoctl("spark-audit", root, "--output", "jsonl")
    assert outcome.status == 0
    assert [(row["topic"], row["partition"], row["batches"]) for row in rows_of(outcome)] == [
        ("empty", 0, 0), ("some", 3, 1), ("some", 12, 2),
    ]  # fmt: skip

    def removing(*_: Any) -> list[Any]:
        shutil.rmtree(root / "some-3")
        return []

    monkeypatch.setattr("eoctl.spark.audit.audit_directories", removing)
    outcome = eoctl("spark-audit", root, "--output", "jsonl")
    assert outcome.status == 5
    gone = rows_of(outcome)[1]
    assert (gone["batches"], gone["open_transactions"], gone["problems_count"]) == (None, None, 1)
    assert any("some-3" in note for note in notes_of(outcome))


@with_spark
def test_names_that_are_no_text(eoctl: Callable[..., Any], tmp_path: Path) -> None:
    write_segments(tmp_path / "data-0", [Batch()])
    odd = os.fsdecode(os.fsencode(tmp_path) + b"/odd\xff-0")
    write_segments(Path(odd), [Batch()])
    outcome = eoctl("spark-audit", tmp_path / "data-0", odd, "--output", "jsonl")
    assert outcome.status == 5
    assert [row["topic"] for row in rows_of(outcome)] == ["data"]
    assert any("left out" in note for note in notes_of(outcome))


# --- without Spark --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "status"),
    [
        ([], 2),
        ([ROOT / "man"], 2),
        (["nowhere-0"], 3),
        ([".", "--conf", "no-value"], 2),
        ([".", "--output", "xml"], 2),
    ],
)
def test_wrong_calls(eoctl: Callable[..., Any], arguments: list[Any], status: int) -> None:
    outcome = eoctl("spark-audit", *arguments)
    assert (outcome.status, outcome.stdout) == (status, b"")
    assert outcome.errors


def test_no_java(
    eoctl: Callable[..., Any],
    golden: Callable[[str], Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("pyspark")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    outcome = eoctl("spark-audit", golden("kafka-4.3.1") / "crash")
    assert (outcome.status, outcome.stdout) == (3, b"")
    assert outcome.errors.startswith("eoctl: Java 17 or later is not installed\n  try: ")


def test_no_pyspark(golden: Callable[[str], Path]) -> None:
    """Help and all other commands neither need nor load it."""
    program = (
        "import sys\nclass Block:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.split('.')[0] in {'pyspark', 'pyarrow', 'py4j'}:\n"
        "            raise ImportError(name)\n"
        "sys.meta_path.insert(0, Block())\n"
        "import importlib.util\nfind = importlib.util.find_spec\n"
        "importlib.util.find_spec = lambda name: None if name == 'pyspark' else find(name)\n"
        "from eoctl.main import run\nrun(sys.argv[1:])\n"
    )

    def call(*arguments: object) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-c", program, *map(str, arguments)],
            capture_output=True, text=True, check=False, cwd=ROOT, timeout=60,
        )  # fmt: skip

    path = golden("kafka-4.3.1") / "crash" / "txn-0"
    done = call("spark-audit", path)
    assert (done.returncode, done.stdout) == (3, "")
    assert "pyspark is not installed" in done.stderr
    assert "-m pip install 'pyspark" in done.stderr
    assert call("spark-audit", "--help").returncode == 0
    assert call("describe", path).returncode == 0


def test_an_empty_log_dir_starts_nothing(
    eoctl: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("pyspark")
    root = tmp_path / "data"
    root.mkdir()
    (root / "meta.properties").write_text("version=1\nnode.id=1\ncluster.id=x\n")
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text('#!/bin/sh\necho \'openjdk version "17"\' >&2\n[ "$1" = -version ]\n')
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    outcome = eoctl("spark-audit", root, "--output", "jsonl")
    assert (outcome.status, outcome.stdout) == (0, b"")
    assert notes_of(outcome) == [VERIFIED]


@pytest.mark.java
@pytest.mark.slow
@pytest.mark.xdist_group("spark")
def test_a_process_of_its_own(golden: Callable[[str], Path], tmp_path: Path) -> None:
    """Only data on stdout, nothing of Spark's on stderr, no file left where it was called."""
    path = golden("kafka-4.3.1") / "clean" / "txn-0"
    work = tmp_path / "work"
    work.mkdir()
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    call = "import sys; sys.path.insert(0, sys.argv.pop(1)); from eoctl.main import run; run()"
    done = subprocess.run(
        [sys.executable, "-c", call, str(ROOT), "spark-audit", str(path), "--output", "jsonl",
         "--master", "local[1]", "--conf", "spark.sql.shuffle.partitions=1"],
        capture_output=True, text=True, check=False, cwd=work, env=environment, timeout=300,
    )  # fmt: skip
    (row,) = [json.loads(line) for line in done.stdout.splitlines()]
    assert (done.returncode, row["batches"], row["open_transactions"]) == (0, 155, 1)
    assert [json.loads(line)["message"] for line in done.stderr.splitlines()] == [VERIFIED]
    assert list(work.iterdir()) == []
