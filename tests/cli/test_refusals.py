"""A refusal names all that is missing at once, and the call that works, to be pasted."""

from __future__ import annotations

import shlex
import shutil
from typing import TYPE_CHECKING

import pytest

from tests.crash.commands import damage_batches
from tests.crash.trees import difference, tree_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.running import Outcome

    Cli = Callable[..., Outcome]

LATE = "2026-11-21T04:00:00Z"


@pytest.fixture
def alone(kafka: Path) -> Path:
    """A log dir without the metadata of its cluster: nothing tells how many replicas there are."""
    shutil.rmtree(kafka / "__cluster_metadata-0")
    (kafka / "bootstrap.checkpoint").unlink()
    return kafka


def pasted(refused: Outcome) -> list[str]:
    """The words of the call at the end of a refusal."""
    assert refused.status in {2, 4}, refused.errors
    last = refused.errors.strip().splitlines()[-1]
    return shlex.split(last[last.rindex("eoctl ") :])[1:]


def require_enough(eoctl: Cli, log_dir: Path, *call: object) -> str:
    """Refused, and nothing touched; then what is pasted is all that was missing."""
    before = tree_of(log_dir)
    refused = eoctl(*call)
    assert difference(before, tree_of(log_dir)) == []
    done = eoctl(*pasted(refused))
    assert done.status in {0, 1}, done.errors
    assert difference(before, tree_of(log_dir)) != []
    return refused.errors


def test_truncate(alone: Path, eoctl: Cli) -> None:
    call = ("truncate", alone / "txn-0", "--to-offset", "150", "--apply")
    assert "an unknown number of replicas" in require_enough(eoctl, alone, *call)


@pytest.mark.parametrize("strategy", ["salvage", "as-broker"])
def test_repair(strategy: str, alone: Path, eoctl: Cli) -> None:
    damage_batches(alone / "txn-0")
    call = ("repair", alone / "txn-0", "--strategy", strategy, "--apply")
    assert "an unknown number of replicas" in require_enough(eoctl, alone, *call)


def test_repair_by_moving_away(alone: Path, eoctl: Cli) -> None:
    damage_batches(alone / "txn-0")
    call = ("repair", alone / "txn-0", "--strategy", "move-away", "--apply")
    assert "nothing is known of other replicas" in require_enough(eoctl, alone, *call)


@pytest.mark.parametrize("strategy", ["salvage", "move-away"])
def test_no_strategy_of_repair_points_back(strategy: str, diverged: Path, eoctl: Cli) -> None:
    """The only replica in the ISR, of three: what is to be tried is not refused."""
    damage_batches(diverged / "broker-2" / "calm-0")
    refused = eoctl("repair", diverged / "broker-2" / "calm-0", "--strategy", strategy)
    assert "eoctl replicas compare with the log dirs of the other brokers" in refused.errors
    assert "move-away" not in refused.errors.partition("try: ")[2]
    words = pasted(refused)
    assert words[-3:] == ["--strategy", "salvage", "--single-copy"]
    assert eoctl(*words).status == 0


def test_a_strategy_that_is_not_refused_is_named(kafka: Path, diverged: Path, eoctl: Cli) -> None:
    damage_batches(kafka / "plain-0")
    refused = eoctl("repair", kafka / "plain-0", "--strategy", "move-away")
    assert pasted(refused)[-2:] == ["--strategy", "salvage"]
    assert eoctl(*pasted(refused)).status == 0
    damage_batches(diverged / "broker-3" / "calm-0")
    refused = eoctl("repair", diverged / "broker-3" / "calm-0", "--strategy", "salvage")
    first = refused.errors.partition("try: ")[2].partition(";")[0]
    assert first.endswith("calm-0 --strategy move-away")
    assert eoctl(*shlex.split(first)[1:]).status == 0


def test_repair_without_a_strategy(alone: Path, eoctl: Cli) -> None:
    """One is proposed, with what has to be true for it."""
    damage_batches(alone / "txn-0")
    refused = eoctl("repair", alone / "txn-0", "--apply")
    assert refused.status == 2
    assert "if another broker has it in sync: eoctl repair" in refused.errors
    assert "--strategy move-away --replicated --apply" in refused.errors
    assert eoctl(*pasted(refused)).status in {0, 1}


def test_txn_abort(kafka: Path, eoctl: Cli) -> None:
    """The coordinator's word and the number of replicas, both at once."""
    shutil.rmtree(kafka / "__cluster_metadata-0")
    (kafka / "bootstrap.checkpoint").unlink()
    call = ("txn", "abort", kafka / "txn-0", "--producer-id", "40", "--now", LATE, "--apply")
    errors = require_enough(eoctl, kafka, *call)
    assert "its replication factor is unknown" in errors
    assert "is overdue" in errors
    assert "--single-copy --force-overdue" in errors


def test_txn_abort_where_brokers_had_no_topic_ids(alone: Path, eoctl: Cli) -> None:
    """The marker goes into a directory that is there, and it stays without an id."""
    (alone / "txn-0" / "partition.metadata").unlink()
    call = ("txn", "abort", alone / "txn-0", "--producer-id", "40", "--now", LATE, "--apply",
            "--single-copy", "--force-overdue")  # fmt: skip
    outcome = eoctl(*call)
    assert outcome.status == 0, outcome.errors
    assert not (alone / "txn-0" / "partition.metadata").exists()


def test_rejoin(diverged: Path, eoctl: Cli) -> None:
    follower, leader = diverged / "broker-1" / "div-0", diverged / "broker-2" / "div-0"
    call = ("replicas", "rejoin", follower, "--leader", leader, "--apply")
    assert "were acknowledged" in require_enough(eoctl, diverged / "broker-1", *call)


def test_no_backup(kafka: Path, eoctl: Cli) -> None:
    call = ("truncate", kafka / "txn-0", "--to-offset", "150", "--no-backup", "--apply")
    assert "cannot be undone" in require_enough(eoctl, kafka, *call)


def test_groups_import(alone: Path, tmp_path: Path, eoctl: Cli) -> None:
    """Of several groups, offsets and partitions."""
    source = tmp_path / "offsets.csv"
    source.write_text("ctp,txn,1,999\nplain-group,plain,1,999\nnew,plain,0,1\n")
    errors = require_enough(eoctl, alone, "groups", "import", alone, "--from", source, "--apply")
    for part in ("line 1: ", "line 2: ", "__consumer_offsets-0", "__consumer_offsets-3"):
        assert part in errors
