"""`eoctl check` on real directories and damaged copies: what it prints, keeps, and ends with."""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import zlib
from contextlib import suppress
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgpack
import pytest

from eoctl.commands.check import PARTITION_COLUMNS
from recovery.rules.findings import Finding
from storage.formats.producer_snapshot import encode_snapshot, parse_snapshot
from storage.producers.producer_state import DEFAULT_EXPIRATION_MS
from tests.bad_disk import give_up_to
from tests.changes import in_80_columns
from tests.cli.test_consume_exec import wait_for
from tests.terminal import on_terminal

if TYPE_CHECKING:
    from collections.abc import Callable

HEX = "0123456789abcdef0123456789abcdef"
LOG = "00000000000000000000.log"


def rows_of(outcome: Any, kind: str) -> list[dict[str, Any]]:
    rows = [json.loads(line) for line in outcome.text.splitlines()]
    return [row for row in rows if row["kind"] == kind]


def flip(path: Path, pos: int) -> None:
    data = bytearray(path.read_bytes())
    data[pos] ^= 0x10
    path.write_bytes(data)


def test_a_clean_node(kafka: Path, eoctl: Callable[..., Any]) -> None:
    outcome = eoctl("check", "--now", "dir", "--output", "jsonl", kafka)
    assert outcome.status == 0
    findings = rows_of(outcome, "finding")
    assert [(each["check_id"], each["severity"]) for each in findings] == [
        ("TXO-1", "note"),
        ("TXO-1", "note"),
    ]
    assert list(findings[0]) == ["kind", *Finding._fields]
    partitions = rows_of(outcome, "partition")
    assert len(partitions) == 24
    assert list(partitions[0]) == ["kind", *PARTITION_COLUMNS]
    assert all(each["start_end_offset"] == each["end_offset"] for each in partitions)
    assert "24 partitions: 0 errors, 0 warnings, 2 notes" in outcome.errors
    assert eoctl("check", "--now", "dir", "--fail-on", "note", kafka).status == 1


@pytest.mark.parametrize(
    ("archive", "log_dirs"),
    [
        *((name, ("one", "two")) for name in ("1.1.1", "2.8.2", "3.3.2", "3.9.1")),
        ("4.3.1-two-dirs", ("one", "two")),
        ("4.3.1-tiered", ("clean",)),
        ("0.10.2-legacy", ("",)),
    ],
)
def test_clean_nodes_of_other_releases(
    golden: Callable[[str], Path],
    eoctl: Callable[..., Any],
    archive: str,
    log_dirs: tuple[str, ...],
) -> None:
    root = golden(f"kafka-{archive}")
    paths = [root / each for each in log_dirs]
    outcome = eoctl("check", "--now", "dir", "--output", "jsonl", *paths)
    found = {(each["check_id"], each["severity"]) for each in rows_of(outcome, "finding")}
    # They were deleting a topic when they were stopped.
    assert found == ({("DIR-6", "note")} if len(log_dirs) > 1 else set())
    assert outcome.status == 0
    assert " 0 errors, 0 warnings" in outcome.errors


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_formats_and_jobs_agree(kafka: Path, eoctl: Callable[..., Any], jobs: str) -> None:
    flip(kafka / "rolled-0" / LOG, 5000)
    call = ("check", "--now", "dir", "--jobs", jobs, kafka)
    lines = [json.loads(each) for each in eoctl(*call, "--output", "jsonl").text.splitlines()]
    packed = list(msgpack.Unpacker(BytesIO(eoctl(*call, "--output", "msgpack").stdout)))
    assert packed == lines
    text = eoctl(*call).text
    assert text.splitlines()[0].split("\t") == list(Finding._fields)
    assert len(text.splitlines()) == len(lines) + 3  # two heads, an empty line


def test_damage_names_place_action_and_way_out(kafka: Path, eoctl: Callable[..., Any]) -> None:
    """Below the recovery point nothing is verified at a start, clean or not (REC-14)."""
    path = kafka / "rolled-0" / LOG
    flip(path, 300)
    outcome = eoctl("check", "--now", "dir", "--output", "jsonl", "--topic", "rolled", kafka)
    assert outcome.status == 1
    (finding,) = [each for each in rows_of(outcome, "finding") if each["severity"] == "error"]
    assert (finding["check_id"], finding["path"], finding["start_pos"]) == ("BAT-1", str(path), 0)
    assert (finding["base_offset"], finding["broker_action"]) == (0, "nothing")
    assert finding["fix"] == f"eoctl repair {kafka}/rolled-0"
    (row,) = rows_of(outcome, "partition")
    assert (row["errors"], row["end_offset"], row["start_end_offset"]) == (1, 60, 60)


def test_after_a_crash_damage_is_cut(killed: Path, eoctl: Callable[..., Any]) -> None:
    directory = killed / "many-producers-0"
    log = directory / LOG
    size = log.stat().st_size
    flip(log, size - 10)
    outcome = eoctl("check", "--now", "dir", "--output", "jsonl", "--predict", directory)
    finding = rows_of(outcome, "finding")[0]
    pos = finding["start_pos"]
    assert (finding["check_id"], finding["broker_action"]) == ("BAT-1", f"truncates to {pos}")
    (change,) = [each for each in rows_of(outcome, "start_change") if each["path"] == str(log)]
    assert (change["action"], change["size_bytes"]) == ("truncates", pos)
    (row,) = rows_of(outcome, "partition")
    assert row["start_end_offset"] == finding["base_offset"] == row["end_offset"]
    assert "truncates 1 file" in row["start"]


def test_a_narrow_terminal_leaves_nothing_out_of_a_finding(kafka: Path) -> None:
    """Neither the place, nor what a broker does, nor the way out."""
    shown = in_80_columns("check", "-v", "kafka", "--topic", "txn", "--now", "dir")
    for words in (f"path +kafka/txn-0/{LOG}", "base offset +311"):
        assert re.search(f"^{words}\r?$", shown, re.MULTILINE)
    assert re.search(r"^broker action +nothing", shown, re.MULTILINE)
    assert re.search(r"^fix +eoctl txn hanging kafka/txn-0", shown, re.MULTILINE)


def test_a_batch_that_is_younger_than_the_clock(killed: Path, eoctl: Callable[..., Any]) -> None:
    """The newest checkpoint of a killed broker may be older than its last batches."""
    outcome = eoctl("check", "--now", "dir", "--output", "jsonl", killed / "txn-0")
    (finding,) = rows_of(outcome, "finding")
    assert finding["message"].endswith("its last batch is dated 2 s after now")


def test_fast_reads_no_checksums(kafka: Path, eoctl: Callable[..., Any]) -> None:
    flip(kafka / "rolled-0" / LOG, 300)
    outcome = eoctl("check", "--fast", "--now", "dir", kafka)
    assert outcome.status == 0
    assert "headers only, no checksums (--fast)" in outcome.errors


def test_only_what_has_changed(kafka: Path, eoctl: Callable[..., Any]) -> None:
    os.utime(kafka / "txn-0" / LOG, (4e9, 4e9))
    outcome = eoctl("check", "--now", "dir", "--since", "2050-01-01", "--output", "jsonl", kafka)
    assert [each["topic"] for each in rows_of(outcome, "partition")] == ["txn"]


def test_of_one_topic_nothing_is_told_of_others(
    kafka: Path, tmp_path: Path, eoctl: Callable[..., Any]
) -> None:
    """Log dirs are checked as a whole, and yet tell only of the topic, and of what is of none."""
    second = tmp_path / "second"
    second.mkdir()
    shutil.copy2(kafka / "meta.properties", second)
    for name in ("plain-0", "rolled-0"):
        shutil.copytree(kafka / name, second / name)
    (kafka / "lost+found").mkdir()
    call = ("check", kafka, second, "--now", "dir", "--output", "jsonl")
    whole = eoctl(*call)
    reported = {(row["check_id"], row["topic"]) for row in rows_of(whole, "finding")}
    assert {("DIR-1", ""), ("DIR-2", "plain"), ("DIR-2", "rolled")} <= reported
    outcome = eoctl(*call, "--topic", "rolled")
    rows = rows_of(outcome, "finding")
    assert {row["topic"] for row in rows} == {"", "rolled"}
    assert [row["check_id"] for row in rows].count("DIR-2") == 1
    severities = [row["severity"] for row in rows]
    warnings_count = severities.count("warning")
    assert f"2 partitions: {severities.count('error')} errors" in outcome.errors
    assert f"{warnings_count} warning" in outcome.errors


def test_one_is_no_plural(kafka: Path, eoctl: Callable[..., Any]) -> None:
    (kafka / "plain-0" / "179.log").write_bytes(b"")
    outcome = eoctl("check", kafka / "plain-0", "--now", "dir")
    assert "1 partition: 1 error, 0 warnings, 0 notes" in outcome.errors


def test_a_second_run_reads_what_has_changed(
    kafka: Path, tmp_path: Path, eoctl: Callable[..., Any]
) -> None:
    state = tmp_path / "check.state"
    call = ("check", "--now", "dir", "--output", "jsonl", "--resume", state, kafka)
    first = eoctl(*call)
    again = eoctl(*call)
    assert again.text == first.text
    assert "24 partitions as an earlier run found them: unchanged since 20" in again.errors
    assert ", not read again" in again.errors
    assert (first.status, again.status) == (0, 5)
    flip(kafka / "rolled-0" / LOG, 300)
    changed = eoctl(*call)
    assert "23 partitions as an earlier run found them" in changed.errors
    assert changed.status == 1
    # Other options ask for something else.
    assert "as an earlier run" not in eoctl(*call, "--fast").errors


def is_open(pid: int, directory: Path) -> bool:
    """Whether the process has a file of the directory open."""
    with suppress(OSError):  # it is closed meanwhile
        links = [*Path(f"/proc/{pid}/fd").iterdir()]
        return any(each.readlink().parent == directory for each in links)
    return False


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs /proc")
def test_an_interrupted_check_is_kept(kafka: Path, tmp_path: Path) -> None:
    state = tmp_path / "check.state"
    call = [sys.executable, "-m", "eoctl", "check", "--now", "dir", "--jobs", "1"]
    slow = [*call, "--io-limit", "1", "--resume", str(state), str(kafka)]
    with subprocess.Popen(slow, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        wait_for(lambda: is_open(process.pid, kafka / "rolled-0"))  # the others before it are kept
        process.send_signal(signal.SIGINT)
        process.communicate()
    assert process.returncode == 130
    done = subprocess.run(
        [*call, "--resume", str(state), str(kafka)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0
    assert "partitions as an earlier run found them" in done.stderr
    done = subprocess.run(
        [*call, "--resume", str(state), str(kafka)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 5


def test_a_byte_that_rots_is_not_called_good(
    kafka: Path, tmp_path: Path, eoctl: Callable[..., Any]
) -> None:
    call = ("check", "--now", "dir", "--resume", tmp_path / "check.state", kafka)
    assert eoctl(*call).status == 0
    log = kafka / "rolled-0" / LOG
    times = log.stat()
    flip(log, 300)
    os.utime(log, ns=(times.st_atime_ns, times.st_mtime_ns))
    again = eoctl(*call)
    assert again.status == 5
    assert "not read again" in again.errors
    shown = on_terminal(*call, "-q")
    assert shown.status == 5
    assert "24 partitions unchanged and not read again" in " ".join(shown.text.split())


@pytest.mark.parametrize("content", [b"", b"x" * 40])
def test_a_state_that_is_none(
    kafka: Path, tmp_path: Path, eoctl: Callable[..., Any], content: bytes
) -> None:
    state = tmp_path / "something"
    state.write_bytes(content)
    outcome = eoctl("check", "--resume", state, kafka)
    assert outcome.status == 2
    assert "not the state of a check" in outcome.errors
    assert state.read_bytes() == content
    assert eoctl("check", "--resume", kafka / "state", kafka).status == 4


def test_calls_that_are_wrong(kafka: Path, tmp_path: Path, eoctl: Callable[..., Any]) -> None:
    assert eoctl("check").status == 2
    assert eoctl("check", "--deep", "--fast", kafka).status == 2
    assert eoctl("check", "--topic", "none", kafka).status == 2
    assert eoctl("check", tmp_path / "nowhere").status == 3


def test_another_release(kafka: Path, tmp_path: Path, eoctl: Callable[..., Any]) -> None:
    state = tmp_path / "check.state"
    call = ("check", "--now", "dir", "--output", "jsonl", "--resume", state, kafka)
    newest = eoctl(*call)
    older = eoctl(*call, "--broker-version", "3.9.1")
    assert (newest.status, older.status) == (0, 1)
    assert "the start is predicted for Kafka 3.9.1" in older.errors
    assert "as an earlier run found them" not in older.errors  # it was asked something else
    found = {each["found"] for each in rows_of(older, "finding") if each["check_id"] == "KRF-4"}
    assert "30" in found
    starts = {each["start"] for each in rows_of(older, "partition")}
    assert starts == {"Kafka 3.9.1 does not start with metadata.version 30"}
    assert eoctl(*call, "--broker-version", "4.3").text == newest.text
    outcome = eoctl("check", "--broker-version", "2.7", kafka)
    assert outcome.status == 2
    assert "a release from 2.8 to 4.4" in outcome.errors


def test_nothing_is_written(kafka: Path, eoctl: Callable[..., Any]) -> None:
    def inventory() -> list[tuple[str, int, int]]:
        found = [(str(each), each.stat()) for each in sorted(kafka.rglob("*"))]
        return [(path, status.st_size, status.st_mtime_ns) for path, status in found]

    before = inventory()
    eoctl("check", "--deep", "--predict", "--now", "dir", kafka)
    assert inventory() == before


def test_an_unreadable_file_is_skipped(kafka: Path, eoctl: Callable[..., Any]) -> None:
    log = kafka / "plain-0" / LOG
    log.unlink()
    log.mkdir()
    outcome = eoctl("check", "--now", "dir", "--output", "jsonl", kafka)
    assert outcome.status == 5
    assert f"{log}: Is a directory" in outcome.errors
    shutil.rmtree(log)


@pytest.mark.parametrize("readable", [None, 0.0, 0.5], ids=["closed", "nothing", "half"])
def test_an_end_that_cannot_be_read_is_no_end(
    kafka: Path, eoctl: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, readable: float | None
) -> None:
    """What is checkpointed behind the last batch that was read may be in the rest of the log."""
    log = kafka / "plain-0" / LOG
    opened = os.open
    good_bytes = int(log.stat().st_size * (readable or 0))

    def closed(path: Any, *arguments: Any, **options: Any) -> int:
        if str(path) == str(log):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(log))
        return opened(path, *arguments, **options)

    if readable is None:
        monkeypatch.setattr(os, "open", closed)
    else:
        give_up_to(monkeypatch, log, good_bytes)
    call = ("check", "--now", "dir", "--jobs", "1", "--output", "jsonl", kafka / "plain-0")
    outcome = eoctl(*call)
    assert outcome.status in {1, 5}
    assert rows_of(outcome, "partition")[0]["unreadable"] > 0
    reported = {row["check_id"] for row in rows_of(outcome, "finding")}
    assert not reported & {"OFS-1", "OFS-2", "OFS-3", "OFS-5", "OFS-6", "EPC-2"}
    for other in (("describe",), ("txn", "list"), ("producers",), ("recover-state",)):
        seen = eoctl(*other, kafka / "plain-0")
        assert seen.status in {1, 3, 5}, other
        assert "are missing" not in seen.text + seen.errors, other
        if readable is not None and other != ("describe",):
            assert "could not be read: the disk gave the log up to" in seen.errors, other
    monkeypatch.undo()
    os.truncate(log, good_bytes)  # what is not there is another thing
    reported = {row["check_id"] for row in rows_of(eoctl(*call), "finding")}
    assert {"OFS-2", "OFS-3", "OFS-6"} <= reported


def test_a_producer_that_a_snapshot_lacks_may_have_expired(
    kafka: Path, eoctl: Callable[..., Any]
) -> None:
    """By the clock: the newest record may be much older than the snapshot (PROD-10)."""
    path = max((kafka / "many-producers-0").glob("*.snapshot"))
    first, *rest = parse_snapshot(path.read_bytes())
    path.write_bytes(encode_snapshot(rest))
    newest_ms = max(each.timestamp_ms for each in [first, *rest])

    def reported(now_ms: int) -> list[str]:
        call = ("check", "--now", now_ms, "--output", "jsonl", "--topic", "many-producers", kafka)
        found = rows_of(eoctl(*call), "finding")
        return [each["message"] for each in found if each["check_id"] == "SNP-6"]

    assert reported(newest_ms) == [f"producer {first.producer_id} is missing"]
    assert reported(first.timestamp_ms + DEFAULT_EXPIRATION_MS - 1)
    assert not reported(first.timestamp_ms + DEFAULT_EXPIRATION_MS)


def test_a_directory_that_is_being_deleted_goes_with_all_its_files(
    kafka: Path, eoctl: Callable[..., Any]
) -> None:
    directory = kafka / f"plain-0.{HEX}-delete"
    (kafka / "plain-0").rename(directory)
    outcome = eoctl("check", "--now", "dir", "--output", "jsonl", "--predict", kafka)
    changes = {each["path"]: each["action"] for each in rows_of(outcome, "start_change")}
    gone = {str(each) for each in directory.iterdir()}
    assert {path for path, action in changes.items() if action == "deletes"} >= gone
    # The metadata have the partition, so a start makes it anew.
    assert changes[str(kafka / "plain-0" / LOG)] == "creates"


def test_a_leader_takes_away_epochs_that_nobody_gave_out(
    kafka: Path, eoctl: Callable[..., Any]
) -> None:
    path = kafka / "idem-none-0" / "leader-epoch-checkpoint"
    path.write_text("0\n3\n0 0\n1 50\n4 9999\n")
    call = ("check", "--now", "dir", "--output", "jsonl", "--topic", "idem-none", kafka)
    for options in ((), ("--predict",)):
        outcome = eoctl(*call, *options)
        assert {
            each["check_id"]: each["broker_action"]
            for each in rows_of(outcome, "finding")
            if each["path"] == str(path)
        } == {"EPC-2": "rewrites", "EPC-3": "rewrites"}


def _with_rows(state: Path, change: Callable[[list[Any]], None]) -> None:
    """Change what a state says of each partition: findings, row, changes, problems, a line."""
    name, version, program, rows = msgpack.unpackb(zlib.decompress(state.read_bytes()))
    for *_, result in rows:
        change(result)
    state.write_bytes(zlib.compress(msgpack.packb([name, version, program, rows])))


@pytest.mark.share(3)
@pytest.mark.parametrize(
    "change",
    [
        lambda result: result[1].pop(),
        lambda result: result[1].append(0),
        lambda result: result[1].__setitem__(0, 7),
        lambda result: result.pop(),
        lambda result: result[0].append(["BAT-1"]),
        lambda result: result[2].append(["/a", "no such action", None]),
        lambda result: result.__setitem__(3, [1]),
    ],
)
def test_a_state_of_other_columns_is_read_again(
    kafka: Path, tmp_path: Path, eoctl: Callable[..., Any], change: Callable[[list[Any]], None]
) -> None:
    state = tmp_path / "check.state"
    call = ("check", "--now", "dir", "--output", "jsonl", "--resume", state, kafka / "rolled-0")
    first = eoctl(*call)
    _with_rows(state, change)
    again = eoctl(*call)
    assert (again.status, again.text) == (first.status, first.text)
    assert "as an earlier run found" not in again.errors
    assert f"{state}: damaged" in again.errors
    assert "read again" in again.errors
    assert "1 partition as an earlier run found" in eoctl(*call).errors


def test_the_age_of_an_open_transaction(kafka: Path, eoctl: Callable[..., Any]) -> None:
    """Producer 40 wrote its last batch at 1,795,229,940,645 ms. Programs get seconds."""
    call = ("check", kafka / "txn-0", "--now", "2026-11-21T04:00:00Z")
    now_ms = 1_795_233_600_000
    seconds = f"its last batch is {(now_ms - 1_795_229_940_645) / 1000:.0f} s old"
    assert seconds in eoctl(*call, "--output", "jsonl").text
    assert "its last batch is 1 h old" in eoctl(*call).text
