"""`eoctl loss`: its rows and counts are those of export, describe, consume, duplicates and txn."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from recovery.loss.rows import LossRow, LossSummary
from tests.cli.test_loss import LOSSES, cut_batches, kafka
from tests.damage.planted import layout
from tests.doubled_logs import Said, Sent, write_log
from tests.terminal import on_terminal

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

FINDINGS, SKIPPED = 1, 5
LOG = f"{0:020d}.log"
STATES = (
    *(f"kafka-4.3.1/{each}" for each in ("clean", "crash", "tv2-clean", "hard", "recovered")),
    "kafka-4.3.1-three-brokers/after/broker-1",
    *("kafka-2.8.2", "kafka-1.1.1", "kafka-0.10.2-legacy"),
)

__all__ = ["kafka"]


def flip(log_dir: Path) -> None:
    """A bit of a record in the fourth batch."""
    log = log_dir / "plain-0" / LOG
    data = bytearray(log.read_bytes())
    data[layout.batch_at(log, 3).pos + 100] ^= 1
    layout.write(log, bytes(data))


def rows_of(outcome: Any, kind: str) -> list[dict[str, Any]]:
    rows = (json.loads(line) for line in outcome.text.splitlines())
    return [row for row in rows if row["kind"] == kind]


def messages_of(outcome: Any) -> list[dict[str, Any]]:
    return [json.loads(line) for line in outcome.errors.splitlines()]


@pytest.mark.share(3)
@pytest.mark.parametrize(("damage", "name", "offsets"), [*LOSSES, (flip, "plain-0", "54 to 71")])
def test_counts_are_those_of_the_other_readers(
    eoctl: Callable[..., Any],
    kafka: Callable[..., Path],
    tmp_path: Path,
    damage: Callable[[Path], None],
    name: str,
    offsets: str,
) -> None:
    log_dir = kafka("clean", name, "idem-none-0")
    damage(log_dir)
    outcome = eoctl("loss", log_dir, "--output", "jsonl")
    assert outcome.status == FINDINGS, outcome.errors
    lost = rows_of(outcome, "lost")
    assert f"{lost[0]['base_offset']} to {lost[0]['last_offset']}" in offsets

    exported = eoctl(
        *("export", log_dir, "--engine", "local", "--jobs", "1", "--to", tmp_path / "out"),
        *("--output", "jsonl"),
    )
    listed = [
        json.loads(each) for each in (tmp_path / "out" / "_lost.jsonl").read_text().splitlines()
    ]
    shared = ("topic", "partition", "base_offset", "last_offset", "reason", "check_id", "path")
    shared = (*shared, "start_pos", "end_pos")
    assert [[row[each] for each in shared] for row in lost] == [
        [row[each] for each in shared] for row in listed
    ]
    assert [row["offsets_count"] for row in lost] == [row["missing_offsets"] for row in listed]
    sums = {row["path"]: row for row in rows_of(outcome, "partition")}
    for row in rows_of(exported, "export"):
        own = sums[row["path"]]
        counts = own["lost_offsets"], own["lost_ranges"], own["records"], own["aborted_records"]
        assert counts == tuple(
            row[each] for each in ("lost_offsets", "lost_ranges", "records", "aborted")
        )

    described = eoctl("describe", log_dir)
    consumed = None
    if (log_dir / name).exists():
        consumed = eoctl("consume", log_dir / name, "--skip-corrupt", "--output", "jsonl")
    for row in lost:
        what = f"positions {row['start_pos']}" if row["start_pos"] is not None else row["reason"]
        assert what in described.errors
        if consumed is not None:
            reported = [each for each in messages_of(consumed) if "base_offset" in each]
            places = [(each["base_offset"], each["last_offset"]) for each in reported]
            assert (row["base_offset"], row["last_offset"]) in places


@pytest.mark.share(4)
@pytest.mark.parametrize("state", STATES)
def test_nothing_is_lost_of_what_a_real_broker_left(
    eoctl: Callable[..., Any], golden: Callable[[str], Path], state: str
) -> None:
    archive, _, below = state.partition("/")
    root = golden(archive) / below
    log_dirs = [path.parent for path in root.rglob("meta.properties")] or [root]
    outcome = eoctl("loss", *log_dirs, "--output", "jsonl")
    lost = rows_of(outcome, "lost")
    made_so = below.startswith("hard")  # idem-none was made with gaps
    assert {row["topic"] for row in lost} == ({"idem-none"} if made_so else set())
    assert (outcome.status, len(rows_of(outcome, "partition")) > 0) == (made_so, True)


@pytest.mark.parametrize("name", ["txn-0", "txn-1", "ctp-out-0"])
def test_aborted_records_are_those_of_an_export(
    eoctl: Callable[..., Any], golden: Callable[[str], Path], tmp_path: Path, name: str
) -> None:
    """And the transactions those of `txn list --all`, by their markers."""
    path = golden("kafka-4.3.1") / "clean" / name
    outcome = eoctl("loss", path, "--output", "jsonl")
    assert outcome.status == 0
    found = rows_of(outcome, "aborted")
    markers = {
        (row["producer_id"], row["last_offset"])
        for row in rows_of(eoctl("txn", "list", path, "--all", "--output", "jsonl"), "transaction")
        if row["state"] == "aborted"
    }
    assert (
        {(row["producer_id"], int(row["reason"].rpartition(" ")[2])) for row in found}
        == markers
        != set()
    )
    eoctl(
        *("export", path, "--engine", "local", "--jobs", "1", "--to", tmp_path / "out"),
        *("--format", "jsonl", "--text"),
    )
    lines = [
        json.loads(line)
        for each in (tmp_path / "out").rglob("*.jsonl")
        if each.name != "_lost.jsonl" and "topic=" in str(each)
        for line in each.read_text().splitlines()
    ]
    aborted = [row for row in lines if row["outcome"] == "aborted"]
    assert sum(row["records_count"] for row in found) == len(aborted)
    for row in found:
        own = [
            each
            for each in aborted
            if each["producer_id"] == row["producer_id"]
            and row["base_offset"] <= each["offset"] <= row["last_offset"]
        ]
        assert len(own) == row["records_count"]
        assert (own[0]["offset"], own[-1]["offset"]) == (row["base_offset"], row["last_offset"])
        assert (own[0]["key"], own[-1]["key"]) == (row["first_key"], row["last_key"])
        times = [each["timestamp_ms"] for each in own]
        assert (min(times), max(times)) == (row["first_timestamp_ms"], row["last_timestamp_ms"])


def test_damaged_bytes_tell_who_wrote_which_keys(
    eoctl: Callable[..., Any], kafka: Callable[..., Path]
) -> None:
    log_dir = kafka("clean", "plain-0")
    records = [
        json.loads(line)
        for line in eoctl("consume", log_dir / "plain-0", "--output", "jsonl").text.splitlines()
    ]
    flip(log_dir)
    (row,) = rows_of(eoctl("loss", log_dir, "--output", "jsonl"), "lost")
    keys = {each["offset"]: each["key"] for each in records}
    times = {each["offset"]: each["timestamp_ms"] for each in records}
    assert (row["base_offset"], row["last_offset"], row["is_acknowledged"]) == (54, 71, True)
    assert (row["first_key"], row["last_key"]) == (keys[54], keys[71])
    assert row["first_timestamp_ms"] == max(times[each] for each in range(36, 54))
    assert row["last_timestamp_ms"] == times[72]


def test_what_lies_below_the_log_start_is_not_lost(
    eoctl: Callable[..., Any], kafka: Callable[..., Path]
) -> None:
    log_dir = kafka("clean", "txn-1", "rolled-0")
    layout.log_files(log_dir / "rolled-0")[0].unlink()
    layout.set_offset(log_dir, "log-start", "rolled-0", 25)
    layout.set_offset(log_dir, "log-start", "txn-1", 100)
    outcome = eoctl("loss", log_dir, "--output", "jsonl")
    assert (outcome.status, rows_of(outcome, "lost")) == (0, []), outcome.errors
    assert min(row["base_offset"] for row in rows_of(outcome, "aborted")) >= 100


def test_there_twice_is_what_duplicates_prove(eoctl: Callable[..., Any], tmp_path: Path) -> None:
    said = (Said(500, b"k", b"a"), Said(501, b"l", b"b"))
    batches = [Sent(7, 0, 0, said), Sent(7, 0, 0, said), Sent(8, 0, 0, said), Sent(7, 0, 0, said)]
    path = write_log(tmp_path / "pay-3", batches, cuts=[2])
    proved = rows_of(eoctl("duplicates", path, "--kind", "proved", "--output", "jsonl"), "proved")
    outcome = eoctl("loss", path, "--output", "jsonl")
    found = rows_of(outcome, "duplicate")
    assert [(row["base_offset"], row["last_offset"], row["records_count"]) for row in found] == [
        (row["repeat_base_offset"], row["repeat_last_offset"], row["records_count"])
        for row in proved
    ]
    assert [(row["first_key"], row["last_key"]) for row in found] == [("k", "l")] * 2
    (summary,) = rows_of(outcome, "partition")
    assert (summary["duplicate_records"], outcome.status) == (4, 0)


def test_each_format_has_the_same_rows(
    eoctl: Callable[..., Any], kafka: Callable[..., Path]
) -> None:
    log_dir = kafka("clean", "plain-0", "txn-1")
    flip(log_dir)
    lines = eoctl("loss", log_dir).text.splitlines()
    gap = lines.index("")
    assert lines[0].split("\t") == [*LossRow._fields]
    assert lines[gap + 1].split("\t") == [*LossSummary._fields]
    rows = eoctl("loss", log_dir, "--output", "jsonl").text.splitlines()
    assert (gap - 1) + (len(lines) - gap - 2) == len(rows)
    few = eoctl("loss", log_dir, "--limit", "1", "--output", "jsonl")
    kinds = [json.loads(line)["kind"] for line in few.text.splitlines()]
    assert (kinds.count("aborted"), kinds.count("lost")) == (1, 1)
    assert "counted and not printed (--limit): 12 aborted rows" in few.errors


def test_it_needs_no_decoder_of_columns(kafka: Callable[..., Path]) -> None:
    """What is installed without an extra does it."""
    log_dir = kafka("clean", "plain-0")
    flip(log_dir)
    program = (
        "import sys; sys.modules['pyarrow'] = None\n"
        "from eoctl.start import run\n"
        f"sys.argv = ['eoctl', 'loss', {str(log_dir)!r}]\n"
        "run()"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert (done.returncode, "54\t71\t18" in done.stdout) == (FINDINGS, True), done.stderr


def test_what_cannot_be_read_is_no_clean_answer(
    eoctl: Callable[..., Any], kafka: Callable[..., Path]
) -> None:
    log_dir = kafka("clean", "plain-0")
    (log_dir / "replication-offset-checkpoint").write_text("0\nnone\n")
    outcome = eoctl("loss", log_dir)
    assert outcome.status == SKIPPED
    assert "replication-offset-checkpoint" in outcome.errors
    shutil.rmtree(log_dir)
    assert eoctl("loss", log_dir).status == 3


# --- as an operator asks --------------------------------------------------------------------------


def test_is_this_copy_complete(kafka: Callable[..., Path]) -> None:
    log_dir = kafka("clean", "plain-0", "txn-1")
    shown = on_terminal("loss", log_dir, streams=("stdout",))
    status, lines = shown.status, shown.lines
    assert status == 0
    assert "Lost    nothing" in "\n".join(lines[:3])
    cut_batches(log_dir)
    shown = on_terminal("loss", log_dir, streams=("stdout",))
    status, lines = shown.status, shown.lines
    assert status == FINDINGS
    assert "Lost    at most 38 offsets, 141 to 178, in plain-0" in lines[0]


def test_offsets_that_two_stretches_may_have_are_counted_once(kafka: Callable[..., Path]) -> None:
    """Of two damaged batches side by side each may have had any of the offsets of both."""
    log_dir = kafka("clean", "plain-0")
    log = log_dir / "plain-0" / LOG
    damaged = [layout.batch_at(log, number) for number in (3, 4)]
    for batch in damaged:
        layout.flip(log, batch.pos + 100)
    count = damaged[1].last_offset + 1 - damaged[0].base_offset
    shown = on_terminal("loss", log_dir, streams=("stdout",))
    assert shown.status == FINDINGS
    assert f"Lost    at most {count} offsets in 2 places of plain-0" in shown.lines[0]
