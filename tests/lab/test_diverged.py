"""Real brokers' directories that parted, run by played ones until all is quiet (judge 1).

The golden archive has them before and after their brokers came together again. Broker 2 had been
elected uncleanly, and was alone in sync when all of them had ended. Played nodes are counted from
0: node 1 has the directories of broker 2.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from eoctl.lab.environment.metadata import change_record, derived_id, first_view
from eoctl.lab.environment.network import SECOND_US
from eoctl.lab.environment.settings import START_MS, PlaySettings, RunSettings
from eoctl.lab.layout import make_cluster
from eoctl.lab.nodes.broker import Broker
from eoctl.lab.nodes.controller import append_metadata, open_metadata_log
from eoctl.lab.simulation import Simulation
from recovery.elections.rules import NO_LEADER
from tests.kafka.broker import copy_log_dir

if TYPE_CHECKING:
    from collections.abc import Callable

    from eoctl.lab.environment.network import TraceEvent
    from eoctl.lab.layout import SimulatedCluster


ARCHIVE = "kafka-4.3.1-three-brokers"
NODES = range(3)
LEADER = 1
DIVERGED_AT = 36
PATTERNS = ("*.log", "leader-epoch-checkpoint", "*.snapshot")


def made(root: Path, source: Path, topic: str) -> SimulatedCluster:
    """A simulated cluster with their log dirs, and what their controller knew in the end."""
    cluster = make_cluster(str(root), PlaySettings(topic=topic))
    for node in NODES:
        path = Path(cluster.node_path(node))
        shutil.rmtree(path)
        copy_log_dir(source / f"broker-{node + 1}", path)
    first = first_view(cluster.settings)[0]
    alone = first.leadership._replace(isr=(LEADER,), leader_epoch=1, partition_epoch=1)
    elected = first._replace(leader=LEADER, leadership=alone)
    dead = elected._replace(leader=NO_LEADER)
    topic_id = derived_id(cluster.cluster, "topic", topic)
    log = open_metadata_log(Path(cluster.root), lambda: START_MS)
    values = [
        change_record(before, after, 0, topic_id)
        for before, after in ((first, elected), (elected, dead))
    ]
    append_metadata(log, values, START_MS)
    log.close()
    return cluster


def run_until_quiet(cluster: SimulatedCluster, seed: int = 0) -> list[TraceEvent]:
    """Start all brokers, wait until each has all, and stop them; gives what has happened."""
    run = RunSettings(seed=seed)
    simulation = Simulation(
        cluster.root, cluster.cluster, cluster.settings, run, 1, write=lambda _: None
    )
    for each in simulation.brokers.values():
        each.start()
    scheduler = simulation.scheduler
    assert scheduler.run(simulation.is_quiet, 300 * SECOND_US)
    events = [*simulation.trace.events]  # as it stops, others are elected
    for node in (0, 2, LEADER):
        broker = simulation.brokers[node]
        broker.stop()
        assert scheduler.run(lambda broker=broker: not broker.is_running, 600 * SECOND_US)  # type: ignore[misc]
    simulation.controller.close()
    return events


def files_of(path: Path) -> dict[str, bytes]:
    """What is compared of a partition directory."""
    return {each.name: each.read_bytes() for pattern in PATTERNS for each in path.glob(pattern)}


@pytest.mark.share(3)
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("topic", ["div", "calm"])
def test_repl_10_played_brokers_make_of_them_what_their_own_brokers_made(
    golden: Callable[[str], Path], tmp_path: Path, topic: str, seed: int
) -> None:
    source = golden(ARCHIVE)
    cluster = made(tmp_path / "play", source / "diverged", topic)
    events = run_until_quiet(cluster, seed)
    elections = [each.words for each in events if each.kind == "election"]
    assert elections == [f"broker {LEADER} is elected leader of {topic}-0 (epoch 3), ISR {LEADER}"]
    cuts = [(each.node, each.offset) for each in events if each.kind == "cut"]
    assert cuts == ([(0, DIVERGED_AT)] if topic == "div" else [])
    for node in NODES:
        ours = files_of(Path(cluster.node_path(node), f"{topic}-0"))
        real = files_of(source / "after" / f"broker-{node + 1}" / f"{topic}-0")
        assert ours == real
        assert len(real) >= 3


def test_it_would_be_seen_if_the_tail_were_not_cut(
    golden: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Broker 1 has records of its own behind offset 36; nobody tells it so."""
    source = golden(ARCHIVE)
    cluster = made(tmp_path / "play", source / "diverged", "div")
    monkeypatch.setattr(Broker, "_diverging", lambda *_: None)
    run_until_quiet(cluster)
    ours = files_of(Path(cluster.node_path(0), "div-0"))
    assert ours != files_of(source / "after" / "broker-1" / "div-0")
