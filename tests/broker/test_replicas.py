"""A broker that starts on replicas that were made to follow: what it says, serves and derives."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from tests.crash.trees import tree_of
from tests.damage.faults import read_batches
from tests.diverged_logs import begin_epoch, log_of
from tests.kafka import client
from tests.kafka.broker import Broker, copy_log_dir, force_recovery, replace_partition_files

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.running import Outcome

pytestmark = pytest.mark.broker

COMPLAINT = re.compile(r"ERROR|FATAL|[Cc]orrupt|Exception|[Ss]tray|Found invalid|Truncating to")
NAMES = ("rolled-0", "txn-0", "plain-0")
DERIVED = (".index", ".timeindex", ".txnindex", "leader-epoch-checkpoint")


def read_all(broker: Broker) -> list[client.Consumed]:
    """What a client gets of the partitions, in both isolation levels."""
    return [
        client.consume(broker.bootstrap, name[:-2], 0, isolation=isolation)
        for name in NAMES
        for isolation in (client.READ_UNCOMMITTED, client.READ_COMMITTED)
    ]


@pytest.mark.exhaustive
def test_a_broker_takes_rejoined_logs_for_its_own(
    golden: Callable[[str], Path], tmp_path: Path, eoctl: Callable[..., Outcome]
) -> None:
    """Three segments, transactions, and the copy that had diverged from its real leader.

    A client gets record for record what it gets of the leader's logs, and the indexes and leader
    epochs that the start derives are those that rejoin has written.
    """
    clean, replicas = golden("kafka-4.3.1") / "clean", golden("kafka-4.3.1-three-brokers")
    leader = copy_log_dir(clean, tmp_path / "leader")
    follower = copy_log_dir(clean, tmp_path / "follower")
    diverged = copy_log_dir(replicas / "diverged" / "broker-1", tmp_path / "broker-1")
    begin_epoch(follower / "rolled-0", 30, 5)
    batches = read_batches(log_of(follower / "txn-0"))
    begin_epoch(follower / "txn-0", batches[len(batches) // 2].base_offset, 5)
    calls = [
        (follower / "rolled-0", leader / "rolled-0"),
        (follower / "txn-0", leader / "txn-0"),
        (diverged / "div-0", replicas / "diverged" / "broker-2" / "div-0"),
    ]
    node = leader / "meta.properties"  # of one node there are no two replicas
    text = node.read_text()
    node.unlink()
    for one, other in calls:
        done = eoctl("replicas", "rejoin", one, "--leader", other, "--unclean", "--apply")
        assert done.status == 0, done.errors
        assert log_of(one) == log_of(other)
    node.write_text(text)
    for log_dir, source in ((leader, calls[2][1]), (follower, calls[2][0])):
        replace_partition_files(log_dir / "plain-0", source.iterdir())
        force_recovery(log_dir, "plain-0")
    written = derived(follower)

    with Broker(leader) as broker:
        wanted = read_all(broker)
    with Broker(follower) as broker:
        assert read_all(broker) == wanted
        complaints = [line for line in broker.log_lines() if COMPLAINT.search(line)]
        assert [line for line in complaints if any(name in line for name in NAMES)] == []
    assert all(each.records for each in wanted)
    for name in NAMES:
        assert log_of(follower / name) == log_of(leader / name)
    found = derived(follower)
    for path, data in written.items():
        # A leader notes its own epoch at the end of each log (EPOCH-2).
        ours, theirs = data, found[path]
        if path.endswith("checkpoint"):
            ours, theirs = (each.split(b"\n", 2)[2] for each in (ours, theirs))
        assert theirs.startswith(ours) if path.endswith("checkpoint") else theirs == ours, path


def derived(log_dir: Path) -> dict[str, bytes]:
    """Indexes and leader epochs of what was rejoined."""
    return {
        path: entry.data
        for path, entry in tree_of(log_dir).items()
        if entry.data is not None
        and path.startswith(("rolled-0/", "txn-0/"))
        and path.endswith(DERIVED)
    }
