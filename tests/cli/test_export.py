"""`eoctl export` as it is called: reports, exit status, interruptions."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgpack
import pytest

pytest.importorskip("pyarrow")

import pyarrow.parquet as pq

from eoctl.commands.shared.engine import ChosenEngine, EngineRun
from eoctl.libraries import install_call
from recovery.export.piece import PieceResult
from recovery.pool import Worker
from tests.audit_logs import Batch, write_segments
from tests.spark.running import spark

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["spark"]

ROOT = Path(__file__).parents[2]
PROGRAM = [sys.executable, "-m", "eoctl"]
FIELDS = [
    "topic", "partition", "broker", "records", "bytes", "files", "first_offset", "last_offset",
    "committed", "aborted", "open", "unknown", "skipped", "lost_ranges", "lost_offsets",
    "lost_records", "path",
]  # fmt: skip


def rows_of(outcome: Any) -> list[dict[str, Any]]:
    return [json.loads(line) for line in outcome.text.splitlines()]


def files_of(root: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()
    }


@pytest.mark.exhaustive
@pytest.mark.usefixtures("spark")
@pytest.mark.java
@pytest.mark.xdist_group("spark")
def test_both_engines_write_the_same(
    eoctl: Callable[..., Any], kafka: Path, tmp_path: Path
) -> None:
    paths = [kafka / "txn-0", kafka / "txn-1", kafka / "rolled-0"]
    call = ["export", *paths, "--isolation", "read_committed", "--format", "jsonl"]
    outcome = eoctl(*call, "--to", "spark", "--engine", "spark")
    assert outcome.status == 0, outcome.errors
    assert "engine: spark, as requested" in outcome.errors.splitlines()
    alone = eoctl(*call, "--to", "local")
    assert "engine: local, as no cluster was named (--master)" in alone.errors.splitlines()
    assert outcome.stdout == alone.stdout
    found, expected = (files_of(tmp_path / name) for name in ("spark", "local"))
    lists = {"_manifest.jsonl"}  # in the order in which pieces were finished, with its directory
    assert {k: v for k, v in found.items() if k not in lists} == {
        k: v for k, v in expected.items() if k not in lists
    }
    log = next((tmp_path / "spark").rglob("*.jsonl"))
    log.unlink()
    again = eoctl(*call, "--to", "spark", "--engine", "spark", "--resume")
    assert again.status == 0, again.errors
    assert files_of(tmp_path / "spark").keys() == found.keys()


def test_a_whole_log_dir(eoctl: Callable[..., Any], kafka: Path, tmp_path: Path) -> None:
    before = files_of(kafka)
    outcome = eoctl("export", kafka, "--to", "out", "--output", "jsonl")
    assert outcome.status == 0, outcome.errors
    rows = rows_of(outcome)
    assert list(rows[0]) == ["kind", *FIELDS]
    assert [(row["topic"], row["partition"]) for row in rows] == sorted(
        (row["topic"], row["partition"]) for row in rows
    )
    for row in rows:
        folder = tmp_path / "out" / f"topic={row['topic']}" / f"partition={row['partition']}"
        files = sorted(folder.glob("*.parquet"))
        assert len(files) == row["files"]
        assert sum(path.stat().st_size for path in files) == row["bytes"]
        assert sum(pq.ParquetFile(path).metadata.num_rows for path in files) == row["records"]
    assert files_of(kafka) == before


def test_text_and_msgpack(eoctl: Callable[..., Any], kafka: Path) -> None:
    outcome = eoctl("export", kafka / "txn-0", "--to", "a", "--columns", "offset", "--jobs", "1")
    head, row = outcome.text.splitlines()
    assert head.split("\t") == FIELDS
    assert row.split("\t")[:4] == ["txn", "0", "1", "291"]
    assert row.split("\t")[8:14] == ["199", "85", "7", "0", "0", "0"]
    answer, verified, *_ = outcome.errors.splitlines()
    assert answer.startswith("Wrote   291 records of 1 partition, ")
    assert verified.startswith("verified: ")
    outcome = eoctl("export", kafka / "txn-0", "--to", "b", "--output", "msgpack")
    assert msgpack.unpackb(outcome.stdout)["records"] == 291


def test_example_of_the_man_page(
    eoctl: Callable[..., Any], golden: Callable[[str], Path], tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    page = (ROOT / "man" / "eoctl-export.1").read_text().replace("\\e\n    ", "")
    match = re.search(r"^\$ eoctl (.*)\n(\{(?:.*\n)+?)\.Ed", page, re.MULTILINE)
    assert match is not None
    monkeypatch.chdir(tmp_path)
    place = str(golden("kafka-4.3.1") / "clean")
    outcome = eoctl(*match[1].replace("/var/lib/kafka", place).split())
    shown = re.sub(r"\n ?", "", match[2]).replace("/var/lib/kafka", place)
    expected, found = json.loads(shown), json.loads(outcome.text)
    assert abs(found.pop("bytes") - expected.pop("bytes")) < 5000  # paths are in the file
    assert list(found.items()) == list(expected.items())


def test_lines_and_text(eoctl: Callable[..., Any], kafka: Path, tmp_path: Path) -> None:
    columns = "offset,key,value,headers"
    outcome = eoctl(
        "export", kafka / "plain-0", "--to", "out", "--format", "jsonl", "--text", "--columns",
        columns, "--offsets", "3..4",
    )  # fmt: skip
    assert outcome.status == 0
    (path,) = (tmp_path / "out").rglob("topic=plain/partition=0/*.jsonl")
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert [row["offset"] for row in rows] == [3, 4]
    assert all(set(row) == {"offset", "key", "value", "headers"} for row in rows)


def test_losses(eoctl: Callable[..., Any], tmp_path: Path) -> None:
    directory = write_segments(
        tmp_path / "t-0", [Batch()], [Batch(sequence=1)], [Batch(sequence=2)]
    )
    second = sorted(directory.iterdir())[1]
    second.unlink()
    second.symlink_to(tmp_path / "t-1")
    (tmp_path / "t-1").mkdir()
    third = sorted(directory.iterdir())[2]
    data = third.read_bytes()
    third.write_bytes(data[:-1] + b"\xff")
    outcome = eoctl("export", directory, "--to", tmp_path / "out", "--output", "jsonl")
    assert outcome.status == 1
    assert "BAT-1" in (tmp_path / "out" / "_lost.jsonl").read_text()
    assert "_lost.jsonl" in outcome.errors
    third.write_bytes(data)
    third.unlink()
    third.mkdir()
    outcome = eoctl("export", directory, "--to", tmp_path / "out2", "--output", "jsonl")
    assert rows_of(outcome)[0]["records"] == 1


def test_an_unreadable_segment(eoctl: Callable[..., Any], tmp_path: Path) -> None:
    """Root may read everything: a pipe in the place of a segment will do."""
    directory = write_segments(tmp_path / "t-0", [Batch()], [Batch(sequence=1)])
    last = max(directory.iterdir())
    last.unlink()
    os.mkfifo(last)
    outcome = eoctl("export", directory, "--to", tmp_path / "out", "--output", "jsonl")
    assert outcome.status == 5
    (row,) = rows_of(outcome)
    assert (row["records"], row["lost_ranges"], row["lost_offsets"]) == (1, 1, None)
    (lost,) = (tmp_path / "out" / "_lost.jsonl").read_text().splitlines()
    assert json.loads(lost)["missing_offsets"] is None


@pytest.mark.parametrize(
    ("arguments", "status"),
    [
        (["--to", "out"], 2),
        (["txn-0"], 2),
        (["txn-0", "--to", "out", "--format", "xml"], 2),
        (["txn-0", "--to", "../out", "--columns", "nothing"], 2),
        (["txn-0", "--to", "../out", "--format", "jsonl", "--codec", "zstd"], 2),
        (["txn-0", "--to", "../out", "--text"], 2),
        (["txn-0", "--to", "../out", "--times", "soon.."], 2),
        (["txn-0", "--to", "../out", "--engine", "abacus"], 2),
        (["txn-0", "--to", "s3://bucket/out"], 2),
        (["txn-0", "--to", "hdfs:/out"], 2),
        (["nowhere-0", "--to", "../out"], 3),
        (["txn-0", "--to", "../file/out"], 3),
        (["txn-0", "--to", "out"], 4),
        (["txn-0", "--to", "txn-1/out"], 4),
        (["txn-0", "--to", "../full"], 4),
        (["txn-0", "--to", "../full", "--resume"], 4),
    ],
)
def test_wrong_calls(
    eoctl: Callable[..., Any],
    kafka: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    status: int,
) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "something").touch()
    monkeypatch.chdir(kafka)
    before = sorted(tmp_path.rglob("*"))
    outcome = eoctl("export", *arguments)
    assert (outcome.status, outcome.stdout) == (status, b""), outcome.errors
    assert outcome.errors
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("to", ["file", "file/out", "file/out/of/reach"])
def test_a_file_in_the_way(eoctl: Callable[..., Any], kafka: Path, tmp_path: Path, to: str) -> None:
    """Missing directories are made, but not below a file; that is what is named."""
    (tmp_path / "file").touch()
    outcome = eoctl("export", kafka / "txn-0", "--to", tmp_path / to)
    assert (outcome.status, outcome.stdout) == (3, b"")
    assert f"eoctl: {tmp_path}/file: Not a directory" in outcome.errors


def test_without_arrow(
    eoctl: Callable[..., Any], kafka: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("eoctl.commands.export.find_spec", lambda name: None)
    outcome = eoctl("export", kafka / "txn-0", "--to", "out")
    assert outcome.status == 3
    assert f"try: {install_call('pyarrow>=15')}\n" in outcome.errors


def test_a_full_disk_and_then_room(
    eoctl: Callable[..., Any], kafka: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from storage.files.fsio import FileSystem

    write = FileSystem.write
    left = [60_000]

    def full(self: Any, file: Any, data: Any) -> None:
        left[0] -= len(data)
        if left[0] < 0:
            raise OSError(28, "No space left on device")
        write(self, file, data)

    monkeypatch.setattr(FileSystem, "write", full)
    outcome = eoctl("export", kafka, "--to", "out", "--jobs", "1", "--output", "jsonl")
    assert (outcome.status, outcome.stdout) == (3, b"")
    assert "No space left on device" in outcome.errors
    assert "--resume" in outcome.errors
    monkeypatch.undo()
    monkeypatch.chdir(tmp_path)
    outcome = eoctl("export", kafka, "--to", "out")
    assert outcome.status == 4
    outcome = eoctl("export", kafka, "--to", "out", "--resume", "--jobs", "1")
    assert outcome.status == 0
    assert "finished already" in outcome.errors
    assert eoctl("export", kafka, "--to", "whole", "--jobs", "1").status == 0
    assert files_of(tmp_path / "out") == files_of(tmp_path / "whole")


@pytest.fixture
def many(tmp_path: Path) -> Path:
    """A log dir that takes a while."""
    root = tmp_path / "many"
    root.mkdir()
    for number in range(15):
        segments = [[Batch(count=60, sequence=0)] * 20] * 3
        write_segments(root / f"t-{number}", *segments)
    return root


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("jobs", "how", "wanted"),
    [("1", signal.SIGKILL, 11), ("2", signal.SIGINT, 5), ("2", signal.SIGKILL, 20)],
)
def test_interrupted_and_killed(
    many: Path, tmp_path: Path, jobs: str, how: signal.Signals, wanted: int
) -> None:
    arguments = [*PROGRAM, "export", str(many), "--jobs", jobs, "--to"]
    done = subprocess.run(
        [*arguments, str(tmp_path / "whole")], cwd=ROOT, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr
    expected = files_of(tmp_path / "whole")
    to = tmp_path / "out"
    process = subprocess.Popen(
        [*arguments, str(to)], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        start_new_session=True,
    )  # fmt: skip
    while process.poll() is None and len(list(to.rglob("*.parquet"))) < wanted:
        time.sleep(0.005)
    if process.poll() is None:
        (os.killpg if how is signal.SIGINT else os.kill)(process.pid, how)
    _, errors = process.communicate()
    if how is signal.SIGINT and process.returncode != 0:
        assert process.returncode == 130
        assert b"--resume" in errors
        assert b"Traceback" not in errors
    done = subprocess.run(
        [*arguments, str(to), "--resume"], cwd=ROOT, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert files_of(to) == expected


def test_several_brokers(eoctl: Callable[..., Any], diverged: Path, tmp_path: Path) -> None:
    outcome = eoctl("export", f"{diverged}/broker-*", "--to", tmp_path / "out")
    assert outcome.status == 0
    assert "several copies" in outcome.errors
    names = {path.name[:2] for path in (tmp_path / "out" / "topic=div").rglob("*.parquet")}
    assert names == {"1-", "2-", "3-"}


def test_set_aside_is_told(eoctl: Callable[..., Any], kafka: Path) -> None:
    shutil.move(kafka / "plain-0", kafka / f"plain-0.{'0' * 32}-delete")
    outcome = eoctl("export", kafka, "--to", "out")
    assert outcome.status == 5  # its topic is still there, and it has the only records
    assert "left out (delete)" in outcome.errors


# --- processes ------------------------------------------------------------------------------------


@pytest.mark.exhaustive
@pytest.mark.usefixtures("workers_pay")
def test_processes_that_are_killed_are_replaced(
    eoctl: Callable[..., Any], kafka: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before, a dead process was taken for the end of whoever reads stdout: status 0."""
    assert eoctl("export", kafka, "--to", "whole", "--jobs", "1").status == 0
    expected = files_of(tmp_path / "whole")
    send = Worker.send
    for how in ("between tasks", "during a task"):
        count = 0

        def killing(self: Any, value: Any, how: str = how) -> None:
            nonlocal count
            count += 1
            if how == "during a task":
                send(self, value)
            if count % 5 == 2:
                self.process.kill()
                self.process.join()
            if how == "between tasks":
                send(self, value)

        with monkeypatch.context() as patch:
            patch.setattr(Worker, "send", killing)
            outcome = eoctl("export", kafka, "--to", how, "--jobs", "2")
        assert outcome.status == 0, outcome.errors
        assert outcome.stdout
        assert count > 5
        found = files_of(tmp_path / how)
        assert {k: v for k, v in found.items() if k != "_manifest.jsonl"} == {
            k: v for k, v in expected.items() if k != "_manifest.jsonl"
        }


@pytest.mark.usefixtures("workers_pay")
def test_processes_that_are_always_killed(
    eoctl: Callable[..., Any], kafka: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    send = Worker.send

    def killing(self: Any, value: Any) -> None:
        self.process.kill()
        self.process.join()
        send(self, value)

    monkeypatch.setattr(Worker, "send", killing)
    outcome = eoctl("export", kafka, "--to", "out", "--jobs", "2", "--output", "jsonl")
    assert (outcome.status, outcome.stdout) == (3, b"")
    assert "was killed" in outcome.errors
    monkeypatch.undo()
    monkeypatch.chdir(tmp_path)
    assert eoctl("export", kafka, "--to", "out", "--resume", "--jobs", "1").status == 0


SIMULATED = """
import pyarrow.fs

class FileSystem:
    @staticmethod
    def from_uri(uri):
        assert uri.startswith("sim://"), uri
        return pyarrow.fs.SubTreeFileSystem({root!r}, pyarrow.fs.LocalFileSystem()), ""

pyarrow.fs.FileSystem = FileSystem
"""


@pytest.mark.exhaustive
@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
def test_uris_with_several_processes(kafka: Path, tmp_path: Path, isolation: str) -> None:
    """Python itself prepares each process, so that all of them know of another file system."""
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(SIMULATED.format(root=str(kafka)))
    path = os.pathsep.join([str(tmp_path / "site"), str(ROOT)])
    calls = [(["sim://host/txn-*"], "there"), ([kafka / "txn-0", kafka / "txn-1"], "here")]
    for paths, to in calls:
        done = subprocess.run(
            [
                *PROGRAM, "export", *paths, "--to", tmp_path / to, "--jobs", "2",
                "--isolation", isolation, "--format", "jsonl", "--columns", "offset,outcome",
                "--output", "jsonl",
            ],
            cwd=ROOT, env={**os.environ, "PYTHONPATH": path}, capture_output=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        rows = [json.loads(line) for line in done.stdout.splitlines()]
        assert [row["partition"] for row in rows] == [0, 1]
        assert rows[0]["path"].startswith("sim://" if to == "there" else "/")
    found, expected = (
        sorted(path.read_bytes() for path in (tmp_path / to).rglob("topic=*/*/*"))
        for to in ("there", "here")
    )
    assert found == expected
    assert len(found) == 2


def test_a_directory_that_is_not_shared(
    eoctl: Callable[..., Any], kafka: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Executors may write where the driver does not look."""

    class Elsewhere(EngineRun):
        def map(self, function: Any, values: Any, *_: Any) -> Any:
            self.chosen = ChosenEngine(True, "engine: spark, as requested")
            for number, value in enumerate(values):
                result = function(value)
                if isinstance(result, PieceResult) and result.file_bytes:
                    path = Path("out", result.piece.name)
                    if gone:
                        path.unlink()
                    else:
                        path.write_bytes(b"other")
                yield number, result

    monkeypatch.setattr("eoctl.commands.shared.engine.EngineRun", Elsewhere)
    monkeypatch.setattr("eoctl.commands.export.PATIENCE_S", (0.0, 0.0))
    for gone, what in ((True, "is not there"), (False, "has 5 bytes")):
        outcome = eoctl("export", kafka / "txn-0", "--to", "out", *([] if gone else ["--resume"]))
        assert (outcome.status, outcome.stdout) == (3, b"")
        assert what in outcome.errors
        assert "share" in outcome.errors
