"""`eoctl groups`: groups of a real directory, and of made ones with everything that may be there."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING, Any

import pytest

from storage.formats.partition_metadata import parse_partition_metadata
from tests import groups
from tests.changes import in_80_columns, notes_of, rows_of
from tests.crash.trees import difference, tree_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.running import Outcome

    Cli = Callable[..., Outcome]

# The golden directories are of 21 November: a week later their offsets are expired.
NOW = ("--now", "2026-11-22T00:00:00Z")
LATER = ("--now", "2026-11-29T00:00:00Z")


def listed(eoctl: Cli, *arguments: object) -> dict[str, dict[str, Any]]:
    outcome = eoctl("groups", "list", *arguments, "--output", "jsonl")
    assert outcome.status == 0, outcome.errors
    return {row["group"]: row for row in rows_of(outcome, "group")}


def described(eoctl: Cli, *arguments: object) -> list[dict[str, Any]]:
    outcome = eoctl("groups", "describe", *arguments, "--output", "jsonl")
    assert outcome.status == 0, outcome.errors
    return rows_of(outcome, "committed_offset")


# --- list and describe ----------------------------------------------------------------------------


def test_groups_of_a_real_directory(kafka: Path, eoctl: Cli) -> None:
    """As kafka-dump-log shows their records; nothing is changed."""
    before = tree_of(kafka)
    found = listed(eoctl, kafka)
    assert {name: (row["state"], row["offsets_count"]) for name, row in found.items()} == {
        "ctp": ("Empty", 1), "plain-group": ("Empty", 1)
    }  # fmt: skip
    assert found["plain-group"]["lag_offsets"] == 21
    (row,) = described(eoctl, kafka, "--group", "plain-group", *NOW)
    assert (row["topic"], row["partition"], row["committed_offset"]) == ("plain", 1, 200)
    assert (row["log_end_offset"], row["place"], row["is_expired"]) == (221, "in-log", False)
    assert difference(before, tree_of(kafka)) == []


def test_groups_of_kafka_4_4(golden: Callable[[str], Path], eoctl: Cli) -> None:
    """As kafka-groups and kafka-streams-groups said of a broker that was started there."""
    log_dirs = [golden("kafka-4.4.0") / "killed" / each for each in ("one", "two")]
    found = listed(eoctl, *log_dirs)
    assert {name: (row["type"], row["state"]) for name, row in found.items()} == {
        "accepting": ("Share", "Empty"), "rejecting": ("Share", "Empty"),
        "classic": ("Classic", "Empty"), "next-generation": ("Consumer", "Empty"),
        "in-transaction": ("Classic", "Empty"),
        "counting": ("Streams", "Stable"), "counting-refused": ("Streams", "Stable"),
    }  # fmt: skip


def test_where_an_offset_may_lie(kafka: Path, eoctl: Cli) -> None:
    (kafka / "log-start-offset-checkpoint").write_text("0\n1\ntrimmed 0 10\n")
    groups.commit(kafka, "app", "plain", 0, 10**6)
    groups.commit(kafka, "app", "trimmed", 0, 9)
    groups.commit(kafka, "app", "txn", 0, 329)
    groups.commit(kafka, "app", "elsewhere", 5, 3)
    rows = {row["topic"]: row for row in described(eoctl, kafka, "--group", "app")}
    assert {topic: row["place"] for topic, row in rows.items()} == {
        "elsewhere": "no-log", "plain": "beyond-end", "trimmed": "below-start", "txn": "in-log"
    }  # fmt: skip
    assert (rows["txn"]["lag_offsets"], rows["elsewhere"]["lag_offsets"]) == (0, None)
    assert rows["plain"]["lag_offsets"] < 0
    row = listed(eoctl, kafka)["app"]
    assert (row["outside_count"], row["no_log_count"], row["lag_offsets"]) == (2, 1, None)
    assert [row["topic"] for row in described(eoctl, kafka, "--topic", "txn")] == ["txn", "txn"]


def test_members_of_a_classic_group(kafka: Path, eoctl: Cli) -> None:
    """With a partition that has no offset yet; a newer record without members takes them away."""
    groups.classic_group(kafka, "app", {"plain": [0, 1]})
    groups.commit(kafka, "app", "plain", 1, 5)
    outcome = eoctl("groups", "describe", kafka, "--group", "app", "--output", "jsonl")
    rows = rows_of(outcome, "committed_offset")
    assert [(row["partition"], row["status"], row["client_id"]) for row in rows] == [
        (0, "none", "app"), (1, "committed", "app")
    ]  # fmt: skip
    (member,) = rows_of(outcome, "member")
    assert member["assigned_partitions"] == ["plain-0", "plain-1"]
    assert (member["host"], member["epoch"], member["instance_id"]) == ("/10.0.0.7", 7, "static")
    assert listed(eoctl, kafka)["app"]["state"] == "Stable"
    groups.record(kafka, 2, {"group": "app"}, None)
    row = listed(eoctl, kafka)["app"]
    assert (row["state"], row["members_count"], row["protocol_type"]) == ("Empty", 0, "")


@pytest.mark.parametrize(
    ("epochs", "state"),
    [((4, 4, 4), "Stable"), ((5, 4, 4), "Assigning"), ((4, 4, 3), "Reconciling")],
)
def test_a_group_of_the_new_protocol(
    epochs: tuple[int, int, int], state: str, kafka: Path, eoctl: Cli
) -> None:
    """Its members have topics by their ids."""
    metadata = parse_partition_metadata((kafka / "plain-0" / "partition.metadata").read_bytes())
    of_member = {"groupId": "new", "memberId": "m"}
    groups.record(kafka, 3, {"groupId": "new"}, {"epoch": epochs[0]})
    groups.record(kafka, 5, of_member, {
        "instanceId": None, "rackId": None, "clientId": "c", "clientHost": "/h",
        "subscribedTopicNames": ["plain"], "subscribedTopicRegex": None,
        "serverAssignor": None, "classicMemberMetadata": None,
    })  # fmt: skip
    groups.record(kafka, 6, {"groupId": "new"}, {"assignmentEpoch": epochs[1]})
    groups.record(kafka, 8, of_member, {
        "memberEpoch": epochs[2], "previousMemberEpoch": 3, "state": 0,
        "assignedPartitions": [{"topicId": metadata.topic_id, "partitions": [1]}],
        "partitionsPendingRevocation": [],
    })  # fmt: skip
    row = listed(eoctl, kafka)["new"]
    assert (row["type"], row["state"], row["members_count"]) == ("Consumer", state, 1)
    (row,) = described(eoctl, kafka, "--group", "new")
    assert (row["topic"], row["partition"], row["status"]) == ("plain", 1, "none")
    groups.record(kafka, 5, of_member, None)
    groups.record(kafka, 3, {"groupId": "new"}, None)
    assert "new" not in listed(eoctl, kafka)


def test_what_a_start_deletes(kafka: Path, eoctl: Cli) -> None:
    """Offsets of groups without members that are older than a week, by the clock."""
    groups.classic_group(kafka, "alive", {"plain": [0]})
    groups.commit(kafka, "alive", "plain", 0, 5)
    assert {name: row["expired_count"] for name, row in listed(eoctl, kafka, *LATER).items()} == {
        "alive": 0, "ctp": 1, "plain-group": 1
    }  # fmt: skip
    outcome = eoctl("groups", "describe", kafka, *LATER)
    assert "2 offsets of 2 groups without members are older than seven days" in outcome.errors
    assert "offsets.retention.minutes" in outcome.errors


def test_a_group_that_is_not_there(kafka: Path, eoctl: Cli) -> None:
    outcome = eoctl("groups", "describe", kafka, "--group", "nobody")
    assert outcome.status == 2
    assert "no group nobody: it would be in __consumer_offsets-" in outcome.errors
    home = groups.home_of(kafka, "nobody")
    shutil.rmtree(home)
    outcome = eoctl("groups", "describe", kafka, "--group", "nobody")
    assert outcome.status == 5
    assert f"It would be in {home.name}, which is not here whole" in outcome.errors


def test_partitions_that_are_not_here(kafka: Path, eoctl: Cli) -> None:
    """All groups cannot be listed; one whose partition is here is answered."""
    shutil.rmtree(groups.home_of(kafka, "ctp"))
    outcome = eoctl("groups", "list", kafka, "--output", "jsonl")
    assert outcome.status == 5
    assert [row["group"] for row in rows_of(outcome, "group")] == ["plain-group"]
    assert any("1 partition is not here" in each for each in notes_of(outcome))
    assert eoctl("groups", "list", kafka, "--group", "plain-group").status == 0


def test_damage_is_no_silence(kafka: Path, eoctl: Cli) -> None:
    log = groups.home_of(kafka, "plain-group") / f"{0:020d}.log"
    data = bytearray(log.read_bytes())
    data[70] ^= 1
    log.write_bytes(data)
    outcome = eoctl("groups", "list", kafka)
    assert outcome.status == 1
    assert str(log) in outcome.errors
    log.write_bytes(b"")
    assert eoctl("groups", "list", kafka, "--group", "plain-group").status in {1, 2, 5}


def test_a_log_that_cannot_be_read(kafka: Path, eoctl: Cli) -> None:
    """It has no end that could be told."""
    if os.geteuid() == 0:
        path = kafka / "plain-1" / f"{0:020d}.log"
        path.unlink()
        path.symlink_to("gone")
    else:
        (kafka / "plain-1" / f"{0:020d}.log").chmod(0)
    outcome = eoctl("groups", "describe", kafka, "--group", "plain-group", "--output", "jsonl")
    assert outcome.status == 5
    (row,) = rows_of(outcome, "committed_offset")
    assert (row["place"], row["lag_offsets"]) == ("no-log", None)


def test_wrong_calls(kafka: Path, tmp_path: Path, diverged: Path, eoctl: Cli) -> None:
    assert eoctl("groups", "list").status == 2
    (tmp_path / "empty").mkdir()
    assert eoctl("groups", "list", tmp_path / "empty").status == 3
    outcome = eoctl("groups", "list", kafka, diverged / "broker-1")
    assert outcome.status == 2
    assert "Groups belong to one cluster" in outcome.errors
    assert eoctl("groups", "list", tmp_path / "gone").status == 3


def test_a_cluster_that_never_had_groups(diverged: Path, eoctl: Cli) -> None:
    """Its metadata say so; without them nobody knows."""
    outcome = eoctl("groups", "list", "broker-1", "broker-2")
    assert outcome.status == 0, outcome.errors
    assert "the cluster has no __consumer_offsets" in outcome.errors
    for each in diverged.glob("broker-*/__cluster_metadata-0"):
        shutil.rmtree(each)
    outcome = eoctl("groups", "list", "broker-1", "broker-2")
    assert outcome.status == 5
    assert "Nothing is known of any group" in outcome.errors


def test_several_copies_and_log_dirs(kafka: Path, tmp_path: Path, eoctl: Cli) -> None:
    """The furthest copy of each partition counts; all kinds of groups of a real node are there."""
    older = tmp_path / "older"
    shutil.copytree(kafka, older)
    words = (older / "meta.properties").read_text().splitlines()
    kept = [each for each in words if not each.startswith(("node.id", "directory.id"))]
    (older / "meta.properties").write_text("\n".join([*kept, "node.id=2", ""]))
    groups.commit(kafka, "plain-group", "plain", 1, 201)
    assert [row["committed_offset"] for row in described(eoctl, "older", kafka)] == [89, 201]


def test_groups_of_every_kind(golden: Callable[[str], Path], eoctl: Cli) -> None:
    """A node with two log dirs, of which each has a part of the logs."""
    node = golden("kafka-4.3.1-two-dirs")
    found = listed(eoctl, node / "one", node / "two")
    assert {name: (row["type"], row["offsets_count"]) for name, row in found.items()} == {
        "by-hand": ("Classic", 2), "classic": ("Classic", 2), "in-transaction": ("Classic", 2),
        "next-generation": ("Consumer", 2), "shared": ("Share", 0),
    }  # fmt: skip
    assert {each["place"] for each in described(eoctl, node / "one", node / "two")} == {"in-log"}


@pytest.mark.parametrize("call", ["list", "describe"])
def test_in_80_columns(call: str, kafka: Path) -> None:
    """The answer comes first, and nothing is wider than the terminal but words to paste."""
    groups.commit(kafka, "app", "plain", 0, 10**6)
    shown = in_80_columns("groups", call, "kafka", *NOW).splitlines()
    assert shown[0].startswith("3 groups, 2 behind by" if call == "list" else "app, ctp,")
    assert all(len(line) <= 80 for line in shown if "verified" not in line)
