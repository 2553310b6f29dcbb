"""`eoctl report` of what cannot be read, into places of others, and what stands first in it."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from eoctl.console.columns import UNKNOWN
from storage.files import fsio
from tests.bad_disk import give_up_to
from tests.changes import held, rows_of
from tests.cli.test_report import island_of
from tests.kafka.broker import copy_log_dir

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.running import Outcome

NOW = ("--now", "dir", "--jobs", "1")


@pytest.fixture
def closed(killed: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A log dir in which a partition belongs to somebody else."""
    listed = os.scandir

    def scandir(path: Any = ".") -> Any:
        if str(path).endswith("/plain-0"):
            raise PermissionError(13, "Permission denied", str(path))
        return listed(path)

    monkeypatch.setattr(os, "scandir", scandir)
    return killed


def test_a_partition_that_may_not_be_listed_is_told_of_and_the_rest_is_read(
    closed: Path, eoctl: Callable[..., Outcome], tmp_path: Path
) -> None:
    to = tmp_path / "r.html"
    done = eoctl("report", closed, *NOW, "--to", to, "--output", "jsonl")
    assert done.status == eoctl("check", closed, *NOW, "--output", "jsonl").status
    assert done.status in {1, 5}
    first, _, rest = to.read_text().partition('id="timelines"')
    assert f"could not be read: {closed}/plain-0" in first
    assert 'class="badge">fine' not in first
    assert "nothing to do" not in first
    assert f"make {closed}/plain-0 readable, then check again" in first
    assert "txn-0" in rest
    lanes = island_of(to.read_bytes())["lanes"]
    assert [each["title"] for each in lanes if each["is_unread"]] == ["plain-0"]
    assert "not read" in lanes[0]["note"]
    assert '<rect class="unread"' in rest


@pytest.mark.exhaustive
def test_a_check_on_a_terminal_tells_of_it_too(closed: Path, eoctl: Callable[..., Outcome]) -> None:
    table = eoctl("check", closed, *NOW, "--output", "table")
    assert table.status == eoctl("check", closed, *NOW, "--output", "jsonl").status
    assert "plain-0: cannot be read" in table.text
    for verb in (["describe"], ["txn", "list"]):
        shown = eoctl(*verb, closed, "--picture")
        assert shown.status in {1, 5}, shown.errors
        assert "txn-0" in shown.text


def test_a_log_dir_in_use_is_told_at_the_top(
    killed: Path, eoctl: Callable[..., Outcome], tmp_path: Path
) -> None:
    to = tmp_path / "r.html"
    with held(killed):
        assert eoctl("report", killed, *NOW, "--to", to).status == 0
    first, _, rest = to.read_text().partition('id="timelines"')
    assert f"{killed}: a broker is running on it" in first
    assert 'class="answer good"><h3>What is wrong' not in first
    assert "in use by process" in rest


def test_it_goes_into_a_directory_of_another_user(
    killed: Path, eoctl: Callable[..., Outcome], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As /tmp is, which is root's: the page is no broker's file, and stays one's own."""
    monkeypatch.setattr(fsio, "can_give", lambda _: False)
    to = tmp_path / "r.html"
    done = eoctl("report", killed, *NOW, "--to", to)
    assert done.status == 0, done.errors
    assert to.stat().st_uid == os.geteuid()


def test_a_place_that_may_not_be_written_to_is_told_before_the_work(
    killed: Path, eoctl: Callable[..., Outcome], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "access", lambda path, _mode: str(path) != str(tmp_path))
    done = eoctl("report", killed, *NOW, "--to", tmp_path / "r.html")
    assert done.status == 3
    assert done.errors.startswith(f"eoctl: {tmp_path}: Permission denied")


def test_a_page_is_not_printed(killed: Path, eoctl: Callable[..., Outcome], tmp_path: Path) -> None:
    done = eoctl("report", killed, "--to", "-")
    assert done.status == 2
    assert "not to standard output" in done.errors
    assert not (tmp_path / "-").exists()


# --- what stands first ----------------------------------------------------------------------------


def test_records_are_told_of_before_what_is_made_of_them(
    kafka: Path, eoctl: Callable[..., Outcome], tmp_path: Path
) -> None:
    """An index can be rebuilt, and each of its entries says the same again."""
    (kafka / "idem-gzip-0" / f"{0:020d}.index").write_bytes(b"\xff" * 64)
    log = kafka / "plain-1" / f"{0:020d}.log"
    data = bytearray(log.read_bytes())
    data[5000] ^= 1
    log.write_bytes(data)
    to = tmp_path / "r.html"
    done = eoctl("report", kafka, *NOW, "--to", to, "--output", "jsonl")
    found = [each["check_id"] for each in rows_of(done, "finding") if each["severity"] == "error"]
    assert found.count("IDX-2") > 1
    first = to.read_text().partition('id="timelines"')[0]
    wrong = first.partition('<ul class="worst">')[2].partition("</ul>")[0]
    assert wrong.count("<b>IDX-2</b>") == 1
    assert wrong.index("<b>BAT-1</b>") < wrong.index("<b>IDX-2</b>")
    then = first.partition("then, by what was found")[2]
    assert then.find("BAT-1") < then.find("IDX-2")


def test_a_rule_is_told_once_with_its_files(
    golden: Callable[[str], Path], eoctl: Callable[..., Outcome], tmp_path: Path
) -> None:
    """At the top: how often it is broken; and of an open transaction, whether anybody ends it."""
    hard = golden("kafka-4.3.1") / "hard"
    to = tmp_path / "r.html"
    done = eoctl("report", hard, *NOW, "--to", to, "--output", "jsonl")
    findings = [each for each in rows_of(done, "finding") if each["severity"] != "note"]
    gaps = {each["file"] for each in findings if each["check_id"] == "SEG-4"}
    late = [each for each in findings if each["check_id"] == "TXO-1"]
    assert len(gaps) > 1
    assert len(late) > len({each["file"] for each in late}) == 1
    first = to.read_text().partition('id="timelines"')[0]
    assert f"<b>SEG-4</b> 9 times in {len(gaps)} files, first " in first
    assert f"<b>TXO-1</b> {len(late)} times in " in first
    assert first.count("<b>SEG-4</b>") == first.count("<b>TXO-1</b>") == 1
    assert "(hanging: no coordinator will end it)" in first
    # What is torn has no finding of a check, and a call all the same.
    (torn,) = {each["command"] for each in rows_of(done, "torn_transaction")}
    assert f'Torn transaction: <code class="command">{torn}' in first


def test_every_verdict_of_an_open_transaction_is_explained() -> None:
    from eoctl.report.page import ENDINGS
    from recovery.transactions.open_transactions import TransactionVerdict

    assert set(ENDINGS) == set(TransactionVerdict)


def test_copies_that_part_come_first(
    diverged: Path, eoctl: Callable[..., Outcome], tmp_path: Path
) -> None:
    to = tmp_path / "r.html"
    eoctl("report", *sorted(diverged.iterdir()), *NOW, "--to", to)
    titles = [each["title"] for each in island_of(to.read_bytes())["lanes"]]
    assert titles[0] == "div-0"
    text = to.read_text()
    assert "1 more pairs" not in text
    assert text.index('class="legend"') < text.index('id="lanes"')


def test_lanes_of_one_name_are_told_apart(
    kafka: Path, eoctl: Callable[..., Outcome], tmp_path: Path
) -> None:
    """A partition in two log dirs of one broker."""
    other = copy_log_dir(kafka, tmp_path / "other")
    to = tmp_path / "r.html"
    eoctl("report", kafka, other, *NOW, "--topic", "txn", "--to", to)
    lanes = [each for each in island_of(to.read_bytes())["lanes"] if each["kind"] == "partition"]
    notes = {each["note"].split(", ")[-1] for each in lanes if each["title"] == "txn-0"}
    assert notes == {f"{kafka}/txn-0", f"{other}/txn-0"}


# --- where a log ends that cannot be read to its end ----------------------------------------------


@pytest.fixture
def half(kafka: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A partition of which a disk gives the first half of its one `.log`: what is open there."""
    log = kafka / "txn-0" / f"{0:020d}.log"
    give_up_to(monkeypatch, log, log.stat().st_size // 2)
    return kafka / "txn-0"


def test_an_end_that_was_not_read_is_told_as_a_bound(
    half: Path, eoctl: Callable[..., Outcome], tmp_path: Path
) -> None:
    to = tmp_path / "r.html"
    done = eoctl("report", half, *NOW, "--to", to, "--output", "jsonl")
    (row,) = rows_of(done, "partition")
    read = row["end_offset"]
    assert 0 < read < row["high_watermark"]
    assert row["is_end_read"] is False
    assert row["last_stable_offset"] is row["open_transactions"] is None
    (held,) = rows_of(done, "held")
    assert held["is_end_read"] is False
    text = to.read_text()
    count = held["held_offsets_count"]
    assert f"at least {count} offsets up to what was read, offset {read}" in text
    assert "it is unknown whether it was ended after the part that was read" in text
    assert "up to the log end" not in text
    (lane,) = (each for each in island_of(to.read_bytes())["lanes"] if each["kind"] == "partition")
    assert ["read up to", read] in lane["marks"]
    assert "log end" not in dict(lane["marks"])
    assert f"a part was not read, log end {read} at least" in lane["note"]
    picture = text.partition('id="lanes">')[2].partition("</svg>")[0]
    assert 'class="unread"' in picture
    shown = eoctl("describe", half, "--picture").text
    assert f"log end {read} at least" in shown
    assert f"LSO {UNKNOWN}" in shown


def test_describe_tells_such_an_end_as_unknown(half: Path, eoctl: Callable[..., Outcome]) -> None:
    done = eoctl("describe", half, "--output", "jsonl")
    (row,) = rows_of(done, "partition")
    assert row["log_end_offset"] is row["last_stable_offset"] is None
    read = rows_of(eoctl("check", half, *NOW, "--output", "jsonl"), "partition")[0]["end_offset"]
    assert f"the log end is unknown, it is {read} at least" in done.errors
    assert done.status in {1, 5}


def test_no_open_transaction_is_said_of_what_was_read_only(
    kafka: Path, eoctl: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch
) -> None:
    log, opened = kafka / "txn-0" / f"{0:020d}.log", os.open

    def closed(path: Any, *arguments: Any, **options: Any) -> int:
        if str(path) == str(log):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(log))
        return opened(path, *arguments, **options)

    monkeypatch.setattr(os, "open", closed)
    shown = eoctl("txn", "list", "--picture", kafka / "txn-0", "--now", "dir").text
    assert "no open transactions in what was read of 1 partition" in shown
    assert "1 partition not read, or not whole" in shown
    (row,) = rows_of(eoctl("report", kafka / "txn-0", *NOW, "--output", "jsonl"), "partition")
    assert (row["is_end_read"], row["last_stable_offset"]) == (False, None)


# --- what stays as it was -------------------------------------------------------------------------


def test_a_log_dir_stays_as_it_was(
    killed: Path, eoctl: Callable[..., Outcome], tmp_path: Path
) -> None:
    """Names, contents, times; a directory that may only be read is read."""

    def facts() -> dict[Path, tuple[int, int, bytes]]:
        every = [killed, *killed.rglob("*")]
        return {
            each: (found.st_mtime_ns, found.st_mode, each.read_bytes() if each.is_file() else b"")
            for each in every
            for found in [each.stat()]
        }

    directories = [killed, *(each for each in killed.rglob("*") if each.is_dir())]
    for each in directories:
        each.chmod(0o555)
    try:
        before = facts()
        done = eoctl("report", killed, *NOW, "--deep", "--to", tmp_path / "r.html")
        assert done.status == 0, done.errors
        assert facts() == before
    finally:
        for each in directories:
            each.chmod(0o755)


INTERRUPTED = """
import os, signal
from storage.files.fsio import FileSystem
def rename(self, old, new, kept=FileSystem.rename):
    os.kill(os.getpid(), signal.SIGINT)
    kept(self, old, new)
FileSystem.rename = rename
import runpy, sys
sys.argv[0] = "eoctl"
runpy.run_module("eoctl", run_name="__main__")
"""


@pytest.mark.exhaustive
def test_an_interrupt_leaves_the_page_that_was_there(killed: Path, tmp_path: Path) -> None:
    """Ctrl-C before the last step: the old page is whole, and nothing lies beside it."""
    place = tmp_path / "pages"
    place.mkdir()
    to = place / "r.html"
    to.write_text("old")
    call = [sys.executable, "-c", INTERRUPTED, "report", killed, *NOW, "--to", to, "--force"]
    done = subprocess.run(call, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    assert done.returncode == 130, done.stderr
    assert b"Traceback" not in done.stderr
    assert to.read_text() == "old"
    assert [*place.iterdir()] == [to]
