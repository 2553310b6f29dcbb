"""`eoctl forecast`: its answer, its rows and its exit statuses, over logs that tests write."""

from __future__ import annotations

import os
import re
from datetime import date, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from tests.cases.files import T0, HandLogDir, batch, time_index
from tests.changes import rows_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.running import Outcome

    Cli = Callable[..., Outcome]

DAY_MS = 86_400_000
NOW_MS = T0 + 60 * DAY_MS


@pytest.fixture
def made(tmp_path: Path) -> HandLogDir:
    """A log dir with the empty logs t-0 and c-0, which was stopped cleanly."""
    return HandLogDir(tmp_path)


def fill(
    made: HandLogDir,
    part: str = "t-0",
    *,
    times: tuple[int, ...] = (T0, T0),
    index_times: tuple[int | None, ...] | None = None,
    count: int = 10,
) -> None:
    """Write a segment of `count` records for each time, and what a clean stop leaves."""
    made.remove(part=part)
    for place, time_ms in enumerate(times):
        base = place * count
        index_ms = time_ms if index_times is None else index_times[place]
        entries = [] if index_ms is None else [(index_ms, base + count - 1)]
        batches = [batch(base + each, [(b"k", b"v")], ts=time_ms) for each in range(count)]
        made.segment(base, batches, times=time_index(entries, base), part=part)
        log = made.file(f"{base:020d}.log", part)
        os.utime(log, ns=(time_ms * 10**6, time_ms * 10**6))
    end = len(times) * count
    made.checkpoints(high_watermark=end, recovery_point=end, part=part)
    made.snapshot(end, part=part)
    made.epochs(part=part)


def asked(eoctl: Cli, made: HandLogDir, *options: str) -> tuple[list[Any], list[Any], Outcome]:
    """Return the takings and the cleanings of a forecast."""
    outcome = eoctl("forecast", made.path, "--now", str(NOW_MS), *options, "--output", "jsonl")
    return rows_of(outcome, "taking"), rows_of(outcome, "cleaning"), outcome


def properties(made: HandLogDir, *lines: str) -> str:
    """Write a configuration file beside the log dir."""
    path = made.path.parent / "server.properties"
    path.write_text("\n".join([f"log.dirs={made.path}", "node.id=1", *lines]))
    return str(path)


def test_old_segments_are_taken_at_the_first_run(made: HandLogDir, eoctl: Cli) -> None:
    fill(made)
    takings, _, outcome = asked(eoctl, made)
    assert outcome.status == 0
    assert [each["base_offset"] for each in takings] == [0, 10]
    first = takings[0]
    assert first["run_at_ms"] == NOW_MS + 30_000
    assert first["unlinked_at_ms"] == NOW_MS + 90_000
    assert first["due_at_ms"] == T0 + 7 * DAY_MS + 1
    assert (first["is_first_run"], first["is_certain"]) == (True, False)  # no file was given
    assert first["setting_source"] == "default"
    assert asked(eoctl, made, "--fail-on", "takes")[2].status == 1


def test_a_file_makes_the_settings_known(made: HandLogDir, eoctl: Cli) -> None:
    fill(made)
    file = properties(made, "log.retention.hours=1", "log.initial.task.delay.ms=1000")
    takings, _, _ = asked(eoctl, made, "--server-properties", file)
    assert {each["is_certain"] for each in takings} == {True}
    assert {each["setting_source"] for each in takings} == {"server-properties"}
    assert {each["setting_value"] for each in takings} == {"3600000"}
    assert {each["run_at_ms"] for each in takings} == {NOW_MS + 1000}
    forever = properties(made, "log.retention.hours=1", "log.retention.ms=-1")
    assert asked(eoctl, made, "--server-properties", forever)[0] == []


def test_a_wrong_time_index_is_an_error(made: HandLogDir, eoctl: Cli) -> None:
    fill(made, times=(NOW_MS, NOW_MS), index_times=(T0, NOW_MS))
    takings, _, outcome = asked(eoctl, made)
    assert outcome.status == 1
    assert [each["is_premature"] for each in takings] == [True]
    assert "eoctl rebuild" in outcome.errors
    checked = eoctl("check", made.path, "--now", str(NOW_MS), "--output", "jsonl")
    assert [each["check_id"] for each in rows_of(checked, "finding")].count("TAK-1") == 1


def test_a_time_in_the_future_holds_the_log(made: HandLogDir, eoctl: Cli) -> None:
    fill(made, times=(NOW_MS + DAY_MS, T0))
    takings, _, outcome = asked(eoctl, made)
    assert [each["held_by"] for each in takings] == ["future-time", "older-segment"]
    assert [each["run_at_ms"] for each in takings] == [None, None]
    assert "nothing at the first run" in outcome.errors


def test_the_log_start_and_the_high_watermark(made: HandLogDir, eoctl: Cli) -> None:
    fill(made, times=(NOW_MS, NOW_MS, NOW_MS))
    made.checkpoints(log_start=12)
    takings, _, _ = asked(eoctl, made)
    assert [(each["base_offset"], each["by"]) for each in takings] == [(0, "log-start")]


def test_a_later_deletion_has_its_date(made: HandLogDir, eoctl: Cli) -> None:
    fill(made, times=(NOW_MS - 6 * DAY_MS, NOW_MS))
    takings, _, _ = asked(eoctl, made)
    assert [each["is_first_run"] for each in takings] == [False]
    due_ms = NOW_MS + DAY_MS + 1
    assert takings[0]["due_at_ms"] == due_ms
    assert due_ms <= takings[0]["run_at_ms"] < due_ms + 300_000
    assert asked(eoctl, made, "--until", "1h")[0] == []


def test_what_the_cleaner_cleans(made: HandLogDir, eoctl: Cli) -> None:
    fill(made, "c-0", times=(NOW_MS,) * 20, count=50)
    _, cleanings, outcome = asked(eoctl, made, "--deep", "--topic", "c")
    assert outcome.status == 0
    (row,) = cleanings
    assert row["first_dirty_from"] == "no-line"
    assert row["dirty_records_count"] == 950
    assert row["superseded_records_count"] == 949
    assert (row["is_chosen"], row["pass_end_offset"]) == (True, 950)
    _, (fast,), _ = asked(eoctl, made, "--topic", "c")
    assert fast["superseded_records_count"] is None
    assert fast["dirty_records_count"] == 950


def test_a_cleaner_that_is_off(made: HandLogDir, eoctl: Cli) -> None:
    fill(made, "c-0", times=(NOW_MS,) * 3)
    file = properties(made, "log.cleaner.enable=false")
    _, (row,), _ = asked(eoctl, made, "--topic", "c", "--server-properties", file)
    assert (row["is_chosen"], row["why_not"]) == (False, "cleaner-off")


def test_damage_that_the_cleaner_hides_or_fails_on(made: HandLogDir, eoctl: Cli) -> None:
    fill(made, "c-0", times=(NOW_MS,) * 3)
    log = made.file(f"{0:020d}.log", "c-0")
    data = bytearray(log.read_bytes())
    data[-2] ^= 1  # in the value of the last record
    log.write_bytes(data)
    _, (row,), outcome = asked(eoctl, made, "--deep", "--topic", "c")
    assert (row["damaged_batches_count"], row["fails_at_offset"]) == (1, None)
    assert outcome.status == 1
    log.write_bytes(data[:-5])
    _, (row,), outcome = asked(eoctl, made, "--topic", "c")
    assert (row["why_not"], row["fails_at_offset"]) == ("fails", 9)
    assert outcome.status == 1
    assert "the cleaner fails at offset 9" in outcome.errors


def rules(eoctl: Cli, made: HandLogDir, *options: str) -> set[str]:
    """Return the rules that the text for people names."""
    outcome = eoctl("forecast", made.path, "--now", str(NOW_MS), *options)
    return set(re.findall(r"TAK-\d", outcome.text))


def test_the_rules_by_name(made: HandLogDir, eoctl: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(made, "c-0", times=(NOW_MS,) * 3)
    assert rules(eoctl, made) == {"TAK-7"}
    monkeypatch.setattr("recovery.forecast.one_forecast._free_bytes", lambda _: 100)
    assert rules(eoctl, made) == {"TAK-3", "TAK-7"}
    monkeypatch.undo()
    log = made.file(f"{0:020d}.log", "c-0")
    whole = log.read_bytes()
    log.write_bytes(whole[:-2] + bytes([whole[-2] ^ 1]) + whole[-1:])
    assert rules(eoctl, made, "--deep") == {"TAK-4", "TAK-7"}
    log.write_bytes(whole[:-5])
    assert rules(eoctl, made) == {"TAK-2", "TAK-7"}
    log.write_bytes(whole)
    fill(made)
    assert rules(eoctl, made) == {"TAK-5", "TAK-7"}
    fill(made, times=(NOW_MS + DAY_MS, T0))
    assert rules(eoctl, made) == {"TAK-6", "TAK-7"}


def test_a_broker_without_remote_storage_forgets_the_remote_segments(
    golden: Callable[[str], Path], eoctl: Cli, tmp_path: Path
) -> None:
    log_dir = golden("kafka-4.3.1-tiered") / "clean"
    for line, expected in (("", 1), ("remote.log.storage.system.enable=true", 0)):
        file = tmp_path / "server.properties"
        file.write_text(f"log.dirs={log_dir}\nnode.id=1\n{line}\n")
        outcome = eoctl(
            "forecast", log_dir, "--now", "dir", "--server-properties", file, "--output", "jsonl"
        )
        ranges = [e for e in rows_of(outcome, "taking") if e["what"] == "remote-range"]
        assert bool(ranges) == bool(expected), line
        assert outcome.status == expected, outcome  # TAK-8


@pytest.mark.parametrize(
    "place",
    [
        "kafka-4.4.0 clean/one",
        "kafka-4.3.1 clean",
        "kafka-4.3.1-two-dirs one",
        "kafka-4.3.1-three-brokers after/broker-1",
        "kafka-3.9.1 one",
        "kafka-3.3.2 two",
        "kafka-2.8.2 two",
    ],
)
def test_real_directories(place: str, golden: Callable[[str], Path], eoctl: Cli) -> None:
    """On the day of their making nothing is old, and eight days later all of it is."""
    archive, name = place.split()
    log_dir = golden(archive) / name
    outcome = eoctl("forecast", log_dir, "--now", "dir", "--output", "jsonl")
    assert outcome.status == 0
    segments = [e for e in rows_of(outcome, "taking") if e["what"] == "segment"]
    assert {e["by"] for e in segments if e["is_first_run"]} <= {"log-start"}
    assert not any(e["is_chosen"] for e in rows_of(outcome, "cleaning"))
    now = re.search(r"now is ([\d-]+) ", outcome.errors)
    assert now
    later = f"{date.fromisoformat(now[1]) + timedelta(days=9)}"
    outcome = eoctl("forecast", log_dir, "--now", later, "--output", "jsonl")
    segments = [e for e in rows_of(outcome, "taking") if e["what"] == "segment"]
    topics = {e["topic"] for e in segments if e["is_first_run"] and e["by"] == "retention.ms"}
    logs = {each.name.rpartition("-")[0] for each in log_dir.glob("plain-?")}
    assert logs <= topics


def test_nothing_is_taken(made: HandLogDir, eoctl: Cli) -> None:
    outcome = eoctl("forecast", made.path, "--now", str(NOW_MS))
    assert outcome.status == 0
    assert "nothing to do" in outcome.errors


def test_check_says_that_records_go(made: HandLogDir, eoctl: Cli) -> None:
    fill(made)
    outcome = eoctl("check", made.path, "--now", str(NOW_MS))
    assert "retention deletes 20 records of t-0 at its first run" in outcome.errors
    assert f"eoctl forecast {made.path}" in outcome.errors
    assert "nothing to do" not in outcome.errors
