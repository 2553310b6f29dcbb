"""What the next start does with a log that its recovery has an exception for, in every command.

What a 4.3.1 broker did with each state is said beside it. `tests/broker/test_loading.py` compares
many more of them with Kafka's own loader, file by file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from storage.file_names import METADATA_TOPIC
from tests.cases.files import T0, HandLogDir, batch, singles
from tests.cases.states import FAR
from tests.changes import rows_of
from tests.cli.test_plan_answers import on_terminal

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.running import Outcome

    Cli = Callable[..., Outcome]
    Case = Callable[[str], Path]

NOW = ("--now", "dir")
SOON = ("--now", "2026-11-21T04:00:00Z")  # an hour after the records of these states


def verdict(path: Path, *options: str) -> dict[str, str]:
    """Return the lines of a verdict by their labels, without the line breaks of a row."""
    text = on_terminal("check", str(path), *(options or SOON), "--no-pager", width=160).text
    found: dict[str, str] = {}
    label = ""
    for line in text.splitlines():
        if line[:8].strip():
            label = line[:8].strip()
            found[label] = f"{found[label]}\n{line[8:]}" if label in found else line[8:]
        elif label:
            found[label] += f" {line.strip()}"
    return found


def checked(eoctl: Cli, path: Path, *options: str) -> dict[str, list[dict[str, Any]]]:
    """Return the rows of a check by their kind."""
    found: dict[str, list[dict[str, Any]]] = {}
    for row in rows_of(eoctl("check", path, *(options or SOON), "--output", "jsonl")):
        if row.get("topic") != METADATA_TOPIC:  # it was written later than these records
            found.setdefault(row["kind"], []).append(row)
    return found


def test_offsets_that_an_index_does_not_take(case: Case, eoctl: Cli) -> None:
    """The broker emptied the segment, and began at 0 again."""
    path = case("backward-offsets")
    lines = verdict(path)
    assert lines["Start"] == "Kafka 4.4.0 will start, and removes what follows"
    assert "19 records of t-0, 15 acknowledged" in lines["Removes"]
    assert "t-0: truncates offsets 0..14" in lines["start"]
    assert lines["Next"].startswith(f"eoctl repair {path}/t-0")
    row = next(each for each in checked(eoctl, path)["partition"] if each["topic"] == "t")
    assert row["start_end_offset"] == 0
    plan = eoctl("repair", path / "t-0", "--strategy", "as-broker", "--single-copy", *NOW)
    assert plan.status == 0
    assert "15" in plan.text
    assert "an index does not take offset 5 after 9" in plan.text + plan.errors


def test_a_segment_with_a_wrong_name(case: Case, eoctl: Cli) -> None:
    """`Split operation is only permitted for segments with overflow`: the broker ended."""
    path = case("wrong-segment-name")
    lines = verdict(path)
    assert lines["Start"].startswith("Kafka 4.4.0 will NOT start: ")
    assert "its batches begin at offset 0, not at 100" in lines["Start"]
    findings = [each for each in checked(eoctl, path)["finding"] if each["check_id"] == "SEG-2"]
    assert len(findings) == 1
    assert "its right name is 00000000000000000000.log" in findings[0]["message"]
    assert (findings[0]["base_offset"], findings[0]["last_offset"]) == (0, 29)


def test_offsets_that_need_a_split(case: Case, eoctl: Cli) -> None:
    """The broker split the segment and kept all ten records."""
    path = case("offset-overflow")
    lines = verdict(path)
    assert lines["Start"] == (
        "Kafka 4.4.0 will start, as far as its files show, and removes no record"
    )
    assert lines["Lost"].startswith("nothing")
    assert lines["Next"] == "nothing to do"
    rows = checked(eoctl, path)
    assert {each["severity"] for each in rows["finding"]} <= {"note"}
    row = next(each for each in rows["partition"] if each["topic"] == "c")
    assert row["start_end_offset"] == row["end_offset"] == FAR + 5
    for strategy in ("salvage", "as-broker"):
        run = eoctl("repair", path / "c-0", "--strategy", strategy, "--single-copy", *NOW)
        assert "a broker splits it when it recovers it, and loses nothing" in run.errors
        assert "nothing to repair" in run.text + run.errors


def test_a_split_that_was_interrupted(case: Case, eoctl: Cli) -> None:
    """The broker gave the .swap files their names and kept all ten records."""
    path = case("swap-of-a-split")
    lines = verdict(path)
    assert lines["Lost"].startswith("nothing")
    assert lines["Next"] == "nothing to do"
    rows = checked(eoctl, path)
    assert [each["check_id"] for each in rows["finding"]] == ["DIR-5"]
    read = eoctl("consume", path / "t-0")
    assert ".swap files hold them" in read.errors
    assert read.status != 0
    repair = eoctl("repair", path, *NOW)
    assert "backup" not in repair.text + repair.errors


def test_a_length_beyond_the_file(case: Case) -> None:
    """The broker took 5 for the log end."""
    lines = verdict(case("size-beyond-file"))
    assert "t-0: takes 5 for the log end, and hides offsets 5..9" in lines["start"]


@pytest.mark.parametrize("now", [SOON, ("--now", "2026-11-23T00:00:00Z")])
def test_a_transaction_that_the_newest_snapshot_does_not_know(
    case: Case, eoctl: Cli, now: tuple[str, ...]
) -> None:
    """The broker's last stable offset was 1, and a client was given offset 0."""
    path = case("open-txn-missing-in-snapshot")
    lines = verdict(path, *now)
    assert lines["Blocked"].startswith("read_committed of t-0 stops at 1 of 7")
    findings = {each["check_id"]: each for each in checked(eoctl, path, *now)["finding"]}
    assert findings["TXO-1"]["base_offset"] == 1
    assert "producer 7 is missing" in findings["SNP-6"]["message"]
    assert "open from offset 0" in findings["SNP-6"]["message"]
    described = eoctl("describe", path / "t-0", "--output", "jsonl")
    row = rows_of(described)[0]
    assert (row["last_stable_offset"], row["open_transactions_count"]) == (1, 1)
    assert "the transaction of producer 7, open from offset 0" in described.errors
    read = eoctl("consume", path / "t-0", "--isolation", "read_committed")
    assert read.text.splitlines() == ["v0"]
    assert "the last stable offset is 1" in read.errors
    assert "the transaction of producer 7, open from offset 0" in read.errors
    hanging = eoctl("txn", "hanging", path, "--output", "jsonl", *now)
    assert [each["producer_id"] for each in rows_of(hanging)] == [8]


def test_a_snapshot_that_knows_of_it(tmp_path: Path, eoctl: Cli) -> None:
    made = HandLogDir(tmp_path)
    opened = [batch(at, pid=7 + at, epoch=0, seq=0, txn=True) for at in (0, 1)]
    made.closed([*opened, *singles(2, 7)], 7)
    made.snapshot(7, [(7, 0, 0, 0, 0, T0, -1, 0), (8, 0, 0, 1, 0, T0 + 1, -1, 1)])
    row = rows_of(eoctl("describe", made.path / "t-0", "--output", "jsonl"))[0]
    assert (row["last_stable_offset"], row["open_transactions_count"]) == (0, 2)
    findings = checked(eoctl, made.path)["finding"]
    assert {each["check_id"] for each in findings} == {"TXO-1"}


def test_what_retention_deletes_after_a_start(case: Case, eoctl: Cli) -> None:
    """The broker deleted both segments in the first run of retention: log start 20."""
    path = case("old-records-retention")
    lines = verdict(path, "--now", "wall")
    assert lines["Takes"].startswith("retention deletes 20 records of t-0 at its first run")
    assert "deletes offsets 0..19" in lines["start"]
    assert lines["start"].endswith("by retention.ms=604800000")
    assert lines["Next"].startswith("eoctl forecast")
    run = eoctl("check", path, "--now", "wall")
    assert run.status == 0
    assert "retention deletes 20 records of t-0 at its first run" in run.errors
    assert "at its first run" not in eoctl("check", case("sequence-gap"), *SOON).errors
