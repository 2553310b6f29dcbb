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

from eoctl.arrow_files import ArrowTree, open_tree
from eoctl.commands.shared.audit_run import TASKS_PER_CORE
from eoctl.commands.shared.engine import EngineOptions, choose_engine
from eoctl.commands.spark_audit import ReportName
from eoctl.options import EngineName
from eoctl.report_files import CHUNK_ROWS, report_schema
from eoctl.spark.session import Setting
from recovery.audit.reports import COLUMNS, REPORTS
from recovery.export.plan import split_bytes_for
from storage.files import file_systems, fsio
from storage.files.file_systems import register_default, register_file_system
from storage.places.splits import split_places
from tests.audit_logs import COUNTED, Batch, write_segments
from tests.dump_counts import counts_of
from tests.remote_trees import watched
from tests.spark.running import spark

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["spark"]

ROOT = Path(__file__).parents[2]
STATES = ["crash", "recovered", "clean", "hard", "hard-clean", "tv2", "tv2-clean"]
FIELDS = ["kind", *COLUMNS["partitions"]]
VERIFIED = "verified: headers and checksums of all batches; records of format 2 were not looked at"


def rows_of(outcome: Any) -> list[dict[str, Any]]:
    return [json.loads(line) for line in outcome.text.splitlines()]


def notes_of(outcome: Any) -> list[str]:
    rows = map(json.loads, outcome.errors.splitlines())
    return [each["message"] for each in rows if each["level"] != "answer"]


def check_rows(rows: list[dict[str, Any]], root: Path, dumps: Path) -> None:
    assert [(row["topic"], row["partition"]) for row in rows] == sorted(
        (row["topic"], row["partition"]) for row in rows
    )
    for row in rows:
        assert list(row) == FIELDS
        name = f"{row['topic']}-{row['partition']}"
        assert row["path"] == str(root / name)
        assert {each: row[each] for each in COUNTED} == counts_of(dumps / name), name
        has_gaps = root.name.startswith("hard") and name == "idem-none-0"  # it was made so
        assert row["problems_count"] == (9 if has_gaps else 0)
    assert {Path(row["path"]).name for row in rows} == {
        path.name for path in dumps.iterdir() if path.is_dir()
    }


# --- real directories -----------------------------------------------------------------------------


def check_state(outcome: Any, golden: Callable[[str], Path], state: str) -> None:
    rows = rows_of(outcome)
    check_rows(rows, golden("kafka-4.3.1") / state, golden("kafka-4.3.1.dump") / state)
    open_count = {"hard": 106, "hard-clean": 104, "tv2": 0, "tv2-clean": 0}.get(state, 2)
    assert sum(row["open_transactions"] for row in rows) == open_count


@pytest.mark.usefixtures("gaps_were_never_filled")
@pytest.mark.parametrize("state", STATES)
def test_golden_states(
    eoctl: Callable[..., Any], golden: Callable[[str], Path], state: str
) -> None:
    root = golden("kafka-4.3.1") / state
    outcome = eoctl("spark-audit", root, "--output", "jsonl", "--jobs", "1")
    assert outcome.status == (1 if state.startswith("hard") else 0)  # one torn transaction
    first, engine, *gaps = notes_of(outcome)
    assert len(gaps) == (9 if state.startswith("hard") else 0)
    assert first == VERIFIED
    assert engine == "engine: local, as --jobs was given"
    check_state(outcome, golden, state)


def test_open_transactions_are_those_of_txn_list(
    eoctl: Callable[..., Any], golden: Callable[[str], Path]
) -> None:
    """Also if the marker may have been at missing offsets: a broker has the transaction open."""
    root = golden("kafka-4.3.1") / "hard"
    call = ("spark-audit", root, "--engine", "local", "--output", "jsonl", "--report")
    audited = rows_of(eoctl(*call, "open"))
    listed = rows_of(eoctl("txn", "list", root, "--output", "jsonl"))
    names = ("topic", "partition", "producer_id", "producer_epoch", "first_offset", "last_offset")
    found = {tuple(row[each] for each in names) for row in audited}
    assert found == {tuple(row[each] for each in names) for row in listed}
    assert ("idem-none", 0, 1068, 0, 604, 721) in found
    assert sum(row["open_transactions"] for row in rows_of(eoctl(*call, "partitions"))) == 106
    everything = rows_of(eoctl("txn", "list", root / "idem-none-0", "--all", "--output", "jsonl"))
    last = [row for row in everything if row["producer_id"] == 1068 and row["last_offset"] > 600]
    assert [row["state"] for row in last].count("open") == 1


@pytest.mark.exhaustive
@pytest.mark.share(1)
@pytest.mark.usefixtures("spark")
@pytest.mark.java
@pytest.mark.xdist_group("spark")
@pytest.mark.parametrize("state", ["crash", "tv2-clean"])
def test_golden_states_on_spark(
    eoctl: Callable[..., Any], golden: Callable[[str], Path], state: str
) -> None:
    call = ["spark-audit", golden("kafka-4.3.1") / state, "--output", "jsonl", "--report", "all"]
    outcome = eoctl(*call, "--engine", "spark", "--split-bytes", "30000")
    assert notes_of(outcome) == [VERIFIED, "engine: spark, as requested"]
    alone = eoctl(*call, "--engine", "local", "--jobs", "1")
    assert outcome.stdout == alone.stdout
    assert len(outcome.stdout.splitlines()) > 50


def test_legacy(eoctl: Callable[..., Any], golden: Callable[[str], Path]) -> None:
    root = golden("kafka-0.10.2-legacy")
    outcome = eoctl("spark-audit", root, "--output", "jsonl", "--jobs", "1")
    assert outcome.status == 0
    check_rows(rows_of(outcome), root, golden("kafka-0.10.2-legacy.dump"))


def test_several_brokers_at_once(eoctl: Callable[..., Any], golden: Callable[[str], Path]) -> None:
    root = golden("kafka-4.3.1-three-brokers") / "diverged"
    dumps = golden("kafka-4.3.1-three-brokers.dump") / "diverged"
    brokers = sorted(path.name for path in root.iterdir())
    outcome = eoctl("spark-audit", f"{root}/*", "--output", "jsonl", "--jobs", "1")
    assert outcome.status == 1  # div-0 has parted
    rows = rows_of(outcome)
    assert len({row["path"] for row in rows}) == len(rows)
    for number, broker in enumerate(brokers, 1):
        of_broker = [row for row in rows if Path(row["path"]).parent.name == broker]
        assert {row["broker"] for row in of_broker} == {str(number)}
        check_rows(of_broker, root / broker, dumps / broker)
    alone = eoctl("spark-audit", root / "broker-1", "--output", "jsonl", "--jobs", "1")
    assert alone.status == 0
    diverged = eoctl("spark-audit", f"{root}/*", "--report", "replicas", "--jobs", "1")
    (line,) = [each for each in diverged.text.splitlines() if each.startswith("div\t0\tno")]
    assert line.split("\t")[3:10] == ["36", "0", "65", "72", "65", "1", "2"]


def test_text_and_msgpack(
    eoctl: Callable[..., Any],
    golden: Callable[[str], Path],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    root = golden("kafka-4.3.1") / "clean"
    monkeypatch.chdir(root)
    outcome = eoctl("spark-audit", "txn-0", "./plain-1")
    counts = [155, 329, 27718, 38, 104, 0, 37, 0, 1, 24, 14]
    none = [0] * 6
    assert outcome.text.splitlines() == [
        "\t".join(FIELDS[1:]),
        "\t".join(
            map(str, ["plain", 1, 10, 221, 34712, *[0] * 9, *none, 220, 1, root / "plain-1"])
        ),
        "\t".join(map(str, ["txn", 0, *counts, *none, 0, 328, 1, root / "txn-0"])),
    ]
    assert outcome.errors.splitlines() == [
        "Audited 2 partitions, 550 records",
        "Counts  transactions: 24 committed, 14 aborted, 1 open",
        "Found   no duplicate batch, no damage",
        VERIFIED,
        "engine: local, as no cluster was named (--master)",
    ]
    outcome = eoctl("spark-audit", "txn-0", "--output", "msgpack")
    row = msgpack.unpackb(outcome.stdout)
    assert list(row) == FIELDS
    assert row["kind"] == "partition"
    assert list(row.values())[3:14] == counts


def test_examples_of_the_man_page(eoctl: Callable[..., Any], golden: Callable[[str], Path]) -> None:
    page = (ROOT / "man" / "eoctl-spark-audit.1").read_text()
    examples = re.findall(r"^\$ eoctl (.*)\n((?:.*\n)+?)\.Ed", page, re.MULTILINE)
    place = str(golden("kafka-4.3.1") / "clean")
    shown_count = 0
    for call, shown in examples:
        if "\n" in call or "|" in call or "s3:" in call:
            continue
        outcome = eoctl(*call.replace("/var/lib/kafka", place).split())
        expected = re.sub(r"\n ", "", shown).replace("/var/lib/kafka", place)
        assert outcome.text.replace("\t", " ") == expected, call
        shown_count += 1
    assert shown_count >= 2


# --- reports --------------------------------------------------------------------------------------


@pytest.mark.share(1)
@pytest.mark.parametrize("chunk_rows", [1, 2, CHUNK_ROWS])
def test_all_reports(
    eoctl: Callable[..., Any],
    golden: Callable[[str], Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    chunk_rows: int,
) -> None:
    monkeypatch.setattr("eoctl.report_files.CHUNK_ROWS", chunk_rows)
    root = golden("kafka-4.3.1") / "crash"
    outcome = eoctl(
        "spark-audit", root, "--report", "all", "--to", tmp_path / "to", "--output", "jsonl"
    )
    assert outcome.status == 0
    rows = rows_of(outcome)
    kinds = ["partition", "topic", "producer", "transactional-id", "open-transaction", "violation"]
    assert list(dict.fromkeys(row["kind"] for row in rows)) == kinds
    opened = [row for row in rows if row["kind"] == "open-transaction"]
    assert [row["transactional_id"] for row in opened] == ["open-1", "open-2"]
    parquet = pytest.importorskip("pyarrow.parquet")
    for name in COLUMNS:
        table = parquet.read_table(tmp_path / "to" / f"{name}.parquet")
        assert table.column_names == list(COLUMNS[name])
        printed = eoctl("spark-audit", root, "--report", name, "--output", "jsonl")
        expected = [{k: v for k, v in row.items() if k != "kind"} for row in rows_of(printed)]
        assert table.to_pylist() == expected


def test_every_report_can_be_asked_for() -> None:
    assert [*ReportName] == [*REPORTS, "all"]


def test_types_of_columns() -> None:
    """All others are numbers."""
    pytest.importorskip("pyarrow")
    columns = sorted({each for report in REPORTS.values() for each in report.columns})
    found: dict[str, list[str]] = {}
    for field in report_schema(columns):
        found.setdefault(str(field.type).replace("element", "item"), []).append(field.name)
    del found["int64"]
    assert found == {
        "bool": ["holds_last_stable_offset", "is_equal"],
        "list<item: int64>": ["producer_ids"],
        "list<item: string>": ["aborted_in", "committed_in", "open_in"],
        "string": [
            *("broker", "check_id", "finding", "other_broker", "other_path", "path", "reason"),
            *("topic", "transactional_id", "violation", "why"),
        ],
    }


def test_reports_do_not_go_into_a_log_dir(
    eoctl: Callable[..., Any], golden: Callable[[str], Path], tmp_path: Path
) -> None:
    root = tmp_path / "crash"
    shutil.copytree(golden("kafka-4.3.1") / "crash", root)
    for arguments in (["--to", root / "reports"], ["--state", root / "state"]):
        outcome = eoctl("spark-audit", root, *arguments)
        assert (outcome.status, outcome.stdout) == (4, b"")
        assert "lies in a log dir" in outcome.errors
    assert not (root / "reports").exists()
    assert not (root / "state").exists()


def test_reports_go_into_a_directory_of_another_user(
    eoctl: Callable[..., Any],
    golden: Callable[[str], Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As /tmp is, which is root's: they are no broker's files, and stay one's own."""
    monkeypatch.setattr(fsio, "can_give", lambda _: False)
    (tmp_path / "here").mkdir(mode=0o777)
    call = ("spark-audit", golden("kafka-4.3.1") / "crash" / "txn-0", "--engine", "local")
    for to in ("here", "new"):
        done = eoctl(*call, "--to", tmp_path / to, "--state", tmp_path / f"{to}.state")
        assert done.status == 0, done.errors
        files = [*(tmp_path / to).iterdir(), tmp_path / f"{to}.state"]
        assert len(files) == 1 + len(COLUMNS)
        mode = 0o666 & ~fsio.umask()
        assert {(each.stat().st_uid, each.stat().st_mode & 0o777) for each in files} == {
            (os.geteuid(), mode)
        }


def test_coordinator_elsewhere(
    eoctl: Callable[..., Any], golden: Callable[[str], Path], tmp_path: Path
) -> None:
    root = golden("kafka-4.3.1") / "crash"
    shutil.copytree(root / "txn-0", tmp_path / "txn-0")
    call = ["spark-audit", tmp_path / "txn-0", "--report", "open", "--output", "jsonl"]
    (row,) = rows_of(eoctl(*call))
    assert row["transactional_id"] is None
    (row,) = rows_of(eoctl(*call, "--coordinator-dir", root))
    assert row["transactional_id"] == "open-1"
    (row,) = rows_of(eoctl("spark-audit", root / "txn-0", *call[2:]))
    assert row["transactional_id"] == "open-1"  # the directory beside it is looked at
    assert eoctl(*call, "--coordinator-dir", tmp_path / "nowhere").status == 3


@pytest.mark.parametrize("query", ["", "?region=here"])
def test_coordinator_beside_a_uri(
    eoctl: Callable[..., Any],
    golden: Callable[[str], Path],
    tmp_path: Path,
    request: pytest.FixtureRequest,
    query: str,
) -> None:
    """The query stays at the end of what is looked at."""
    for path in (golden("kafka-4.3.1") / "crash").iterdir():
        if path.name == "txn-0" or path.name.startswith("__transaction_state-"):
            shutil.copytree(path, tmp_path / "logs" / path.name)
    _, file_system = watched(tmp_path)
    tree = ArrowTree(file_system)

    def opened(uri: Any) -> tuple[ArrowTree, str]:
        if str(uri).endswith("/") is bool(query):
            raise OSError("another region")
        return tree, ""

    register_file_system("sim", opened)
    request.addfinalizer(lambda: register_default(open_tree))  # forgets what was opened, too
    request.addfinalizer(lambda: file_systems._factories.pop("sim"))
    outcome = eoctl(
        *("spark-audit", f"sim://host/logs/txn-0{query}", "--engine", "local", "--jobs", "1"),
        *("--report", "open", "--output", "jsonl"),
    )
    (row,) = rows_of(outcome)
    assert row["transactional_id"] == "open-1", outcome.errors


def test_a_second_run_reads_what_is_new(
    eoctl: Callable[..., Any], golden: Callable[[str], Path], tmp_path: Path
) -> None:
    root = tmp_path / "clean"
    shutil.copytree(golden("kafka-4.3.1") / "clean", root)
    call = ["spark-audit", root, "--output", "jsonl", "--state", tmp_path / "state"]
    first = eoctl(*call)
    second = eoctl(*call)
    assert (first.status, second.stdout) == (0, first.stdout)
    count = len([*root.glob("*-*/*.log")])
    note = f"{count} of {count} segments are unchanged, and taken from {tmp_path / 'state'}"
    assert note in notes_of(second)
    state = (tmp_path / "state").read_bytes()
    for content in (state[:-1], state[: len(state) // 2]):
        (tmp_path / "state").write_bytes(content)
        again = eoctl(*call)
        assert (again.status, again.stdout) == (0, first.stdout)
        assert any("damaged" in each and "read again" in each for each in notes_of(again))
        assert (tmp_path / "state").read_bytes() == state
    for content in (b"no state", b""):
        (tmp_path / "state").write_bytes(content)
        broken = eoctl(*call)
        assert (broken.status, broken.stdout) == (2, b"")
        error = json.loads(broken.errors)
        assert "not a state of an audit" in error["message"]
        assert error["next_step"].startswith("name another file, or remove this file")


def test_what_cannot_be_written_is_told_first(
    eoctl: Callable[..., Any], golden: Callable[[str], Path], tmp_path: Path
) -> None:
    path = golden("kafka-4.3.1") / "crash" / "txn-0"
    (tmp_path / "file").touch()
    for arguments, status in (
        (["--to", tmp_path / "no" / "where"], 3),
        (["--to", tmp_path / "file"], 3),
        (["--to", "s3://bucket/reports"], 2),
        (["--state", tmp_path / "no" / "where"], 3),
        (["--state", "s3://bucket/state"], 2),
    ):
        outcome = eoctl("spark-audit", path, *arguments)
        assert (outcome.status, outcome.stdout) == (status, b""), arguments


@pytest.mark.parametrize(
    ("to", "words"),
    [
        ("no/where", "no: No such file or directory"),
        ("no/where/at/all", "no/where/at: No such file or directory"),
        ("file", "file: Not a directory"),
        ("file/reports", "file: Not a directory"),
    ],
)
def test_what_is_in_the_way_of_reports(
    eoctl: Callable[..., Any], golden: Callable[[str], Path], tmp_path: Path, to: str, words: str
) -> None:
    (tmp_path / "file").touch()
    outcome = eoctl("spark-audit", golden("kafka-4.3.1") / "crash" / "txn-0", "--to", tmp_path / to)
    assert (outcome.status, outcome.stdout) == (3, b"")
    assert f"eoctl: {tmp_path}/{words}" in outcome.errors


def test_any_copy_may_have_findings(eoctl: Callable[..., Any], tmp_path: Path) -> None:
    """Also one that is not the fullest."""
    write_segments(tmp_path / "a" / "t-0", [Batch(), Batch()])
    write_segments(tmp_path / "b" / "t-0", [Batch(), Batch(sequence=1), Batch(sequence=2)])
    assert eoctl("spark-audit", tmp_path / "*").status == 1


@pytest.mark.parametrize(
    ("fail_on", "statuses"), [("error", (0, 0)), ("warning", (0, 1)), ("note", (1, 1))]
)
def test_what_makes_it_fail(
    eoctl: Callable[..., Any], tmp_path: Path, fail_on: str, statuses: tuple[int, int]
) -> None:
    opened = write_segments(tmp_path / "open-0", [Batch(kind="txn")])
    twice = write_segments(tmp_path / "twice-0", [Batch(), Batch()])
    for directory, status in zip((opened, twice), statuses, strict=True):
        assert eoctl("spark-audit", directory, "--fail-on", fail_on).status == status


# --- damage and odd directories -------------------------------------------------------------------


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
    assert rolled["problems_count"] == 1  # SEG-11
    assert any(
        each.startswith(f"{log}: positions 0 to 151: corrupt: ") for each in notes_of(outcome)
    )
    outcome = eoctl("spark-audit", root, "--output", "jsonl", "--report", "corrupt")
    emptied, row = rows_of(outcome)
    assert (emptied["check_id"], emptied["path"]) == ("SEG-11", str(middle.parent))
    assert (row["check_id"], row["start_pos"], row["end_pos"]) == ("BAT-1", 0, 151)
    assert (row["base_offset"], row["last_offset"], row["path"]) == (0, 0, str(log))


def test_duplicates_across_segments(eoctl: Callable[..., Any], tmp_path: Path) -> None:
    segments = [[Batch(count=3), Batch(sequence=3)], [Batch(count=3), Batch(sequence=4)]]
    directory = write_segments(tmp_path / "t-0", *segments)
    outcome = eoctl("spark-audit", directory, "--output", "jsonl")
    assert outcome.status == 1
    assert rows_of(outcome)[0]["duplicate_batches"] == 1


def test_a_partition_without_segments_and_one_that_goes(
    eoctl: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "data"
    root.mkdir()
    (root / "empty-0").mkdir()
    (root / "empty-0" / "leader-epoch-checkpoint").write_text("0\n0\n")
    write_segments(root / "some-3", [Batch()])
    write_segments(root / "some-12", [Batch(), Batch(sequence=1)])
    outcome = eoctl("spark-audit", root, "--output", "jsonl")
    assert outcome.status == 0
    assert [(row["topic"], row["partition"], row["batches"]) for row in rows_of(outcome)] == [
        ("empty", 0, 0), ("some", 3, 1), ("some", 12, 2),
    ]  # fmt: skip

    def removing(*arguments: Any) -> Any:
        shutil.rmtree(root / "some-3")
        return real(*arguments)

    real = split_places
    monkeypatch.setattr("eoctl.commands.shared.audit_run.split_places", removing)
    outcome = eoctl("spark-audit", root, "--output", "jsonl")
    assert outcome.status == 0
    assert [row["batches"] for row in rows_of(outcome)] == [0, 0, 2]
    gone = f"{root / 'some-3' / f'{0:020d}.log'}: removed since the directory was listed"
    assert gone in notes_of(outcome)


def test_names_that_are_no_text(eoctl: Callable[..., Any], tmp_path: Path) -> None:
    write_segments(tmp_path / "data-0", [Batch()])
    odd = os.fsdecode(os.fsencode(tmp_path) + b"/odd\xff-0")
    write_segments(Path(odd), [Batch()])
    outcome = eoctl("spark-audit", tmp_path / "data-0", odd, "--output", "jsonl")
    assert outcome.status == 5
    assert [row["topic"] for row in rows_of(outcome)] == ["data"]
    assert any("UTF-8" in note for note in notes_of(outcome))


# --- without Spark --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "status"),
    [
        ([], 2),
        ([ROOT / "man"], 3),
        (["nowhere-0"], 3),
        ([".", "--conf", "no-value"], 2),
        ([".", "--output", "xml"], 2),
        ([".", "--report", "everything"], 2),
        ([".", "--split-bytes", "0"], 2),
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
    outcome = eoctl("spark-audit", golden("kafka-4.3.1") / "crash", "--engine", "spark")
    assert (outcome.status, outcome.stdout) == (3, b"")
    assert outcome.errors.startswith("eoctl: Java 17 or later is not installed\n  try: ")


@pytest.mark.exhaustive
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
    done = call("spark-audit", path, "--master", "local[2]")
    assert (done.returncode, done.stdout) == (3, "")
    assert "pyspark is not installed" in done.stderr
    assert "-m pip install 'pyspark" in done.stderr
    assert call("spark-audit", "--help").returncode == 0
    assert call("spark-audit", path).returncode == 0
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
    outcome = eoctl("spark-audit", root, "--output", "jsonl", "--engine", "spark")
    assert (outcome.status, outcome.stdout) == (0, b"")
    assert notes_of(outcome) == [VERIFIED, "engine: spark, as requested"]


@pytest.mark.exhaustive
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
    said = [json.loads(line) for line in done.stderr.splitlines()]
    assert [note["message"] for note in said if note["level"] != "answer"] == [
        VERIFIED, "engine: spark, as --master or --conf was given",
    ]  # fmt: skip
    assert list(work.iterdir()) == []


def test_words_that_cannot_be_said_change_nothing(golden: Callable[[str], Path]) -> None:
    path = golden("kafka-4.3.1") / "clean" / "txn-0"
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "eoctl", "spark-audit", str(path), "--output", "jsonl"],
            stdout=subprocess.PIPE, stderr=full, check=False, cwd=ROOT, timeout=120,
        )  # fmt: skip
    assert done.returncode == 0
    assert json.loads(done.stdout)["batches"] == 155


@pytest.mark.parametrize("option", ["--to", "--state"])
def test_no_name(eoctl: Callable[..., Any], golden: Callable[[str], Path], option: str) -> None:
    outcome = eoctl("spark-audit", golden("kafka-4.3.1") / "clean" / "txn-0", option, "")
    assert (outcome.status, outcome.stdout) == (2, b"")


# --- where it is done -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "is_spark"),
    [
        ({}, False),
        ({"name": EngineName.SPARK}, True),
        ({"master": "spark://host:7077"}, True),
        ({"settings": (Setting("spark.executor.memory", "1g"),)}, True),
        ({"jobs": 2}, False),
        ({"name": EngineName.LOCAL, "master": "spark://host:7077"}, False),
    ],
)
def test_the_engine_is_chosen_by_machines(
    monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], *, is_spark: bool
) -> None:
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
    assert choose_engine(EngineOptions(**options)).is_spark is is_spark
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")  # below spark-submit
    expected = is_spark or not options
    assert choose_engine(EngineOptions(**options)).is_spark is expected


@pytest.mark.parametrize(
    ("command", "option", "mode", "is_refused"),
    [
        ("spark-audit", "--to", "cluster", True),
        ("spark-audit", "--to", "client", False),
        ("spark-audit", "--report-html", "cluster", True),
        ("spark-audit", "--state", "cluster", True),
        ("spark-audit", "--checkpoint", "cluster", True),
        ("export", "--to", "cluster", True),
        ("export", "--to", "client", False),
    ],
)
def test_nothing_is_written_that_goes_with_the_container(
    eoctl: Callable[..., Any],
    golden: Callable[[str], Path],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    command: str,
    option: str,
    mode: str,
    *,
    is_refused: bool,
) -> None:
    """The working directory of a driver in cluster mode is removed: a relative path is lost."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    submitted = {"spark.submit.deployMode": mode}
    monkeypatch.setattr("eoctl.spark.session._submitted_settings", lambda: submitted)
    call = (command, golden("kafka-4.3.1") / "clean" / "plain-0", "--engine", "local", "--jobs", 1)
    outcome = eoctl(*call, option, "place")
    assert (outcome.status, (tmp_path / "place").exists()) == (
        (2, False) if is_refused else (0, True)
    )
    assert (f"{option} place: in cluster mode" in outcome.errors) is is_refused
    if is_refused and option == "--to":
        assert eoctl(*call, option, tmp_path / "place").status == 0


def test_splits_suit_the_cluster() -> None:
    """No more tasks than TASKS_PER_CORE a core, but for pieces of a GiB at most."""
    mib, gib, tib = 1 << 20, 1 << 30, 1 << 40
    pieces_count = 400 * TASKS_PER_CORE
    assert split_bytes_for(10 * gib, pieces_count) == 128 * mib
    assert split_bytes_for(2 * tib, pieces_count) == 2 * tib // pieces_count
    assert split_bytes_for(100 * tib, pieces_count) == gib
    assert split_bytes_for(gib >> 1, 0) == gib >> 1
