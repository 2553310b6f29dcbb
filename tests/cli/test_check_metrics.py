"""`eoctl check --metrics`: OpenMetrics text that a parser reads, with the numbers of the check."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from tests.cli.test_loss_rows import flip
from tests.kafka.broker import copy_log_dir

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

LATER = ("--now", "2026-11-21T05:00:00Z")


def metrics_of(path: Path) -> dict[tuple[str, ...], float]:
    """Values by name and labels."""
    families = text_string_to_metric_families(path.read_text())
    return {
        (each.name, *each.labels.values()): each.value for one in families for each in one.samples
    }


def test_numbers_are_those_of_the_check(
    eoctl: Callable[..., Any], golden: Callable[[str], Path], tmp_path: Path
) -> None:
    """Of two log dirs, one of them damaged and not stopped cleanly."""
    one, two = tmp_path / "one", tmp_path / 'tw"o'
    copy_log_dir(golden("kafka-4.3.1") / "clean", one)
    copy_log_dir(golden("kafka-4.3.1") / "crash", two)
    flip(two)
    file = tmp_path / "eoctl.prom"
    done = eoctl("check", one, two, *LATER, "--metrics", file, "-o", "jsonl")
    rows = [json.loads(line) for line in done.text.splitlines()]
    found = metrics_of(file)
    for log_dir in (one, two):
        name = str(log_dir)
        own = [row for row in rows if row.get("path", "").startswith(f"{name}/")]
        partitions = [row for row in own if row["kind"] == "partition"]
        assert found["eoctl_partitions", name] == len(partitions)
        assert found["eoctl_log_bytes", name] == sum(row["log_bytes"] for row in partitions)
        for severity in ("error", "warning", "note"):
            listed = [row for row in own if row.get("severity") == severity]
            assert found["eoctl_findings", name, severity] == len(listed)
        opened = [row for row in own if row.get("check_id") == "TXO-1"]
        assert found["eoctl_open_transactions", name] == len(opened) == 2
        assert found["eoctl_hanging_transactions", name] == 2
        blocked = sum(row["end_offset"] for row in partitions if row["topic"] == "txn") - 311 - 282
        assert found["eoctl_blocked_offsets", name] == blocked
        assert 7_000 < found["eoctl_oldest_open_transaction_age_seconds", name] < 8_000
        assert found["eoctl_unread_parts", name] == 0
    assert [found["eoctl_unclean_stop", str(each)] for each in (one, two)] == [0, 1]
    assert [found["eoctl_lost_places", str(each)] for each in (one, two)] == [0, 1]
    assert found["eoctl_lost_offsets", str(two)] > 0
    assert found["eoctl_check_exit_status",] == done.status == 1
    assert found["eoctl_check_end_timestamp_seconds",] > 1_795_000_000
    eoctl("check", one, "--now", "2026-11-21T03:00:00Z", "--metrics", file, "-o", "jsonl")
    young = metrics_of(file)
    assert young["eoctl_open_transactions", str(one)] == 2
    assert young["eoctl_hanging_transactions", str(one)] == 0


def test_the_file_is_replaced_in_one_step(
    eoctl: Callable[..., Any], golden: Callable[[str], Path], tmp_path: Path
) -> None:
    """Nothing else is left beside it, and a check that cannot read leaves the old one."""
    place = tmp_path / "collector"
    place.mkdir()
    file = place / "eoctl.prom"
    file.write_text("old")
    assert eoctl("check", tmp_path / "none", "--metrics", file).status == 3
    assert file.read_text() == "old"
    clean = golden("kafka-4.3.1") / "clean"
    assert eoctl("check", clean, *LATER, "--metrics", file).status == 1
    assert [each.name for each in place.iterdir()] == ["eoctl.prom"]
    assert metrics_of(file)["eoctl_start_answer", str(clean)] == 1
    assert file.stat().st_mode & 0o777 == 0o644


@pytest.mark.parametrize("place", ["x.prom", "plain-0/x.prom"])
def test_a_file_in_a_log_dir_is_refused(
    eoctl: Callable[..., Any], golden: Callable[[str], Path], tmp_path: Path, place: str
) -> None:
    log_dir = tmp_path / "kafka"
    copy_log_dir(golden("kafka-4.3.1") / "clean", log_dir)
    done = eoctl("check", log_dir, "--metrics", log_dir / place)
    assert (done.status, done.text) == (4, "")
    assert "lies in the log dir" in done.errors
    assert not (log_dir / place).exists()
    nowhere = eoctl("check", log_dir, "--metrics", tmp_path / "none" / "x")
    assert (nowhere.status, nowhere.text) == (3, "")  # before anything was read
    shutil.rmtree(log_dir)
