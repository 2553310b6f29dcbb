"""What `eoctl reclaim` removes without a loss: a real broker leaves the same files as without it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from tests.crash.trees import tree_of
from tests.kafka.broker import KEPT, Broker
from tests.planted_waste import HEX, plant

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.running import Outcome

pytestmark = pytest.mark.broker

# Retention deletes what is below the log start, and nothing else.
SETTINGS = {
    **KEPT,
    "log.initial.task.delay.ms": "500",
    "log.retention.check.interval.ms": "500",
    "log.segment.delete.delay.ms": "500",
    "log.retention.ms": "-1",
}
WAIT_S = 60
# Of the top level: the broker's own state, which is of each start.
IGNORED = ("__cluster_metadata-0", "remote-log-index-cache", ".lock", ".kafka_cleanshutdown")


def started(log_dir: Path) -> dict[str, bytes | list[bytes]]:
    """Start a broker, wait until its retention has run, stop it, and return all files."""
    with Broker(log_dir, overrides=SETTINGS) as broker:
        deadline_s = time.monotonic() + WAIT_S
        first = log_dir / "rolled-0" / f"{0:020d}.log"
        while first.exists() or any(log_dir.glob("*/*.deleted")) or any(log_dir.glob("*-delete")):
            assert time.monotonic() < deadline_s, sorted(log_dir.glob("*/*.deleted"))
            time.sleep(0.2)
        assert broker.error_lines() == []
    found: dict[str, bytes | list[bytes]] = {}
    for name, each in tree_of(log_dir).items():
        if each.data is not None and not name.startswith(IGNORED):
            is_checkpoint = name.endswith("-offset-checkpoint")
            found[name] = sorted(each.data.splitlines()) if is_checkpoint else each.data
    return found


@pytest.mark.exhaustive
@pytest.mark.parametrize("is_clean", [True, False], ids=["clean", "crash"])
def test_a_start_leaves_the_same(
    golden: Callable[[str], Path], tmp_path: Path, eoctl: Callable[..., Outcome], *, is_clean: bool
) -> None:
    clean = golden("kafka-4.3.1") / "clean"
    theirs = plant(clean, tmp_path / "theirs", is_clean=is_clean)
    ours = plant(clean, tmp_path / "ours", is_clean=is_clean)
    done = eoctl("reclaim", ours, "--class", "A,B,C", "--apply")
    assert done.status == 0, done.errors
    assert not (ours / f"gone-0.{HEX}-delete").exists()
    left = {each.name for each in ours.rglob("*") if each.suffix not in {".log", ".index"}}
    assert not [each for each in left if each.endswith((".deleted", ".cleaned", ".swap", ".tmp"))]
    assert not (ours / "rolled-0" / f"{0:020d}.log").exists()
    expected, found = started(theirs), started(ours)
    assert found.keys() == expected.keys()
    assert [name for name, data in expected.items() if found[name] != data] == []
