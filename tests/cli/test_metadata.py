"""`eoctl metadata`, on the directories of three real brokers; what it refuses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.changes import notes_of, rows_of
from tests.kafka.broker import copy_log_dir
from tests.metadata_logs import partition, setting, snapshot, topic
from tests.terminal import on_terminal

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

JSONL = ("--output", "jsonl")
ALL = ("broker-1", "broker-2", "broker-3")
T = bytes(range(16))


@pytest.fixture
def diverged(golden: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch) -> Path:
    path = golden("kafka-4.3.1-three-brokers") / "diverged"
    monkeypatch.chdir(path)
    return path


@pytest.fixture
def writable(
    golden: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Path:
    path = copy_log_dir(golden("kafka-4.3.1-three-brokers") / "diverged", tmp_path / "all")
    monkeypatch.chdir(path)
    return path


def partitions_of(done: Any) -> dict[str, tuple[Any, ...]]:
    return {
        f"{each['topic']}-{each['partition']}": (
            each["leader"], tuple(each["isr"]), each["leader_epoch"], each["is_under_min_isr"],
        )
        for each in rows_of(done, "cluster_partition")
    }  # fmt: skip


def test_the_newest_copy_counts(diverged: Path, eoctl: Callable[..., Any]) -> None:
    done = eoctl("metadata", *ALL, *JSONL)
    assert done.status == 0
    (cluster,) = rows_of(done, "cluster")
    assert (cluster["path"], cluster["end_offset"]) == ("broker-2/__cluster_metadata-0", 165)
    assert (cluster["voters"], cluster["maybe_records_count"]) == ([100], 0)
    assert (cluster["leaderless_count"], cluster["recovering_count"]) == (2, 2)
    assert partitions_of(done) == {
        "__transaction_state-0": (-1, (1,), 3, True),
        "__transaction_state-1": (-1, (1,), 2, True),
        "calm-0": (2, (2,), 1, False),
        "div-0": (2, (2,), 1, False),
    }
    assert [(each["broker"], each["state"]) for each in rows_of(done, "broker")] == [
        (1, "fenced"), (2, "active"), (3, "fenced"),
    ]  # fmt: skip
    copies = {
        (each["broker"], each["standing"], each["high_watermark"], each["log_end_offset"])
        for each in rows_of(done, "copy")
        if each["topic"] == "div"
    }
    assert copies == {
        (1, "out of sync", 37, 73), (2, "leader", 36, 66), (3, "out of sync", 30, 36),
    }  # fmt: skip
    features = {each["feature"]: each["level"] for each in rows_of(done, "feature")}
    assert features["metadata.version"] == 30


@pytest.mark.parametrize("at", ["97", "2026-11-21T02:59:51Z", "02:59:51", "1795229991000"])
def test_who_led_then(diverged: Path, eoctl: Callable[..., Any], at: str) -> None:
    done = eoctl("metadata", "broker-2", "--at", at, "--topic", "div", *JSONL)
    assert done.status == 0
    assert partitions_of(done) == {"div-0": (1, (1, 3), 0, False)}


def test_settings_and_whose_they_are(diverged: Path, eoctl: Callable[..., Any]) -> None:
    found = {}
    for options in ((), ("--settings",)):
        rows = rows_of(eoctl("metadata", "broker-2", *options, *JSONL), "setting")
        of_topic = [each for each in rows if each["resource_name"] == "__transaction_state"]
        found[options] = {each["setting"]: (each["value"], each["source"]) for each in of_topic}
    assert found[()] == {
        "cleanup.policy": ("compact", "topic"),
        "compression.type": ("uncompressed", "topic"),
        "min.insync.replicas": ("1", "topic"),
        "segment.bytes": ("104857600", "topic"),
        "unclean.leader.election.enable": ("false", "topic"),
    }
    assert found["--settings",]["retention.ms"] == ("604800000", "default")


def test_history_for_programs(diverged: Path, eoctl: Callable[..., Any]) -> None:
    done = eoctl("metadata", *ALL, "--history", "--topic", "div", *JSONL)
    assert done.status == 0
    assert [
        (each["offset"], each["leader"], each["isr"], each["why"], each["is_unclean"])
        for each in rows_of(done, "partition_change")
    ] == [
        (54, 1, [1, 2, 3], ["created"], False),
        (89, 1, [1, 3], ["ISR shrink"], False),
        (98, 1, [1], ["ISR shrink"], False),
        (131, 2, [2], ["unclean election", "ISR shrink", "ISR expand"], True),
    ]
    (found,) = rows_of(done, "history_sum")
    assert (found["unclean_count"], found["last_unclean_offset"]) == (1, 131)
    assert {(93, 2), (102, 3), (135, 1)} <= {
        (each["offset"], each["broker"])
        for each in rows_of(done, "broker_change")
        if each["why"] == ["fenced"]
    }
    spans = rows_of(eoctl("metadata", *ALL, "--history", *JSONL), "span")
    assert [(each["topic"], each["start_offset"], each["end_offset"]) for each in spans] == [
        ("__transaction_state", 133, None), ("__transaction_state", 134, None),
    ]  # fmt: skip


def test_history_for_people(diverged: Path, eoctl: Callable[..., Any]) -> None:
    done = eoctl("metadata", "broker-2", "--history", "--topic", "div")
    lines = done.stdout.decode().splitlines()
    rows = {each.split("\t")[1]: each.split("\t") for each in lines if "\t" in each}
    assert rows["131"][2:5] == ["div-0", "2", "2"]
    assert rows["135"][2:8] == ["broker 1", "", "", "", "", "fenced"]
    shown = eoctl("metadata", "broker-2", "--history", "--topic", "div", "--limit", 1)
    assert "earlier changes are not printed" in shown.errors


def test_who_was_in_sync_when_an_offset_was_acknowledged(
    diverged: Path, eoctl: Callable[..., Any]
) -> None:
    """Offset 40 is two records: brokers 1 and 2 have diverged there. Offset 5 is the same in all."""
    done = eoctl("metadata", *ALL, "--acknowledged", "div-0:40", *JSONL)
    assert done.status == 0
    assert [
        (each["copies"], each["standing"], each["leader"], each["isr"], each["acknowledged"])
        for each in rows_of(done, "in_sync")
    ] == [
        (["broker-1/div-0"], "possible", 1, [1, 2, 3], "unknown"),
        (["broker-1/div-0"], "possible", 1, [1, 3], "unknown"),
        (["broker-1/div-0"], "likely", 1, [1], "unknown"),
        (["broker-2/div-0"], "known", 2, [2], "unknown"),
    ]
    done = eoctl("metadata", *ALL, "--acknowledged", "div-0:5", *JSONL)
    rows = rows_of(done, "in_sync")
    assert [(each["standing"], each["isr"]) for each in rows] == [
        ("likely", [1, 2, 3]), ("possible", [1, 3]), ("possible", [1]), ("later", [2]),
    ]  # fmt: skip
    assert {each["acknowledged"] for each in rows} == {"yes"}


def test_a_bootstrap_checkpoint_alone(tmp_path: Path, eoctl: Callable[..., Any]) -> None:
    log_dir = tmp_path / "kafka"
    assert eoctl("init", log_dir, "--topic", "orders:2", "--apply").status == 0
    done = eoctl("metadata", log_dir, "--topic", "orders", *JSONL)
    assert done.status == 0
    assert len(rows_of(done, "cluster_partition")) == 2
    assert any("what the controller will begin with" in each for each in notes_of(done))
    for options in (("--history",), ("--at", "03:12"), ("--acknowledged", "orders-0:1")):
        assert eoctl("metadata", log_dir, *options).status == 2


def test_snapshots_alone_and_secrets(tmp_path: Path, eoctl: Callable[..., Any]) -> None:
    directory = tmp_path / "__cluster_metadata-0"
    directory.mkdir()
    (directory / "leader-epoch-checkpoint").write_text("0\n1\n1 0\n")
    (directory / "quorum-state").write_text(
        '{"clusterId":"","leaderId":-1,"leaderEpoch":1,"votedId":7,"appliedOffset":0,'
        '"currentVoters":[{"voterId":7},{"voterId":8}],"data_version":0}'
    )
    (directory / f"{20:020d}-0000000001.checkpoint").write_bytes(
        snapshot(topic("t", T), partition(T, [1, 2]), setting(4, "1", "ssl.key.password", "hidden"))
    )
    done = eoctl("metadata", directory, *JSONL)
    assert done.status == 0
    assert partitions_of(done) == {"t-0": (1, (1, 2), 0, False)}
    assert b"hidden" not in done.stdout
    (cluster,) = rows_of(done, "cluster")
    assert (cluster["counted_offset"], cluster["counted_by"]) == (20, "a snapshot")
    assert cluster["quorum_leader"] is None  # no snapshot has it
    assert [
        (each["controller"], each["is_voter"], each["is_leader"])
        for each in rows_of(done, "controller")
    ] == [(7, True, None), (8, True, None)]
    done = eoctl("metadata", directory, "--history", *JSONL)
    assert b"hidden" not in done.stdout
    assert [each["why"] for each in rows_of(done, "partition_change")] == [["snapshot"]]
    done = eoctl("metadata", directory, "--at", 5)
    assert done.status == 2
    assert "what was before offset 20 is in no file any more" in done.errors


def test_damaged_metadata_are_said(writable: Path, eoctl: Callable[..., Any]) -> None:
    log = writable / "broker-2" / "__cluster_metadata-0" / f"{0:020d}.log"
    log.chmod(0o600)
    data = bytearray(log.read_bytes())
    data[len(data) // 2] ^= 0x10
    log.write_bytes(data)
    for options in ((), ("--history",), ("--acknowledged", "div-0:5")):
        done = eoctl("metadata", "broker-2", *options, *JSONL)
        assert done.status == 5, options
        assert any("not all of it could be read" in each for each in notes_of(done))
    done = eoctl("metadata", "broker-2", "--history", *JSONL)
    assert rows_of(done, "unread")
    (cluster,) = rows_of(eoctl("metadata", "broker-2", *JSONL), "cluster")
    assert not cluster["is_complete"]


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        ((), 2, "no LOG-DIR given"),
        (("broker-1/div-0",), 2, "no __cluster_metadata-0"),
        (("nowhere",), 3, "No such file"),
        (("broker-2", "--at", "165"), 2, "ends at 165"),
        (("broker-2", "--history", "--at", "165"), 2, "ends at 165"),
        (("broker-2", "--at", "noon"), 2, "not a time"),
        (("broker-2", "--at=-1"), 2, "neither an offset nor a time"),
        (("broker-2", "--at", "\u0663"), 2, "neither an offset nor a time"),
        (("/dev/null",), 3, "/dev/null: its directory /dev is neither a log dir nor a partition"),
        (("broker-2", "--topic", "none*"), 2, "no topic none*"),
        (("broker-2", "--acknowledged", "div:1"), 2, "not TOPIC-N:OFFSET"),
        (("broker-2", "--acknowledged", "div-0:99999"), 2, "has no offset 99999"),
        (("broker-2", "--acknowledged", "none-0:1"), 2, "no directory of none-0"),
        (("broker-2", "--acknowledged", "div-0:1", "--history"), 2, "pass one of them"),
        (("broker-2", "--history", "--settings"), 2, "one moment only"),
    ],
)
def test_refusals(
    diverged: Path,
    eoctl: Callable[..., Any],
    arguments: tuple[str, ...],
    status: int,
    words: str,
) -> None:
    done = eoctl("metadata", *arguments)
    assert (done.status, words in done.errors) == (status, True), done.errors


@pytest.mark.exhaustive
def test_on_a_terminal_of_80_columns(diverged: Path) -> None:
    for options in ((), ("--history",), ("--acknowledged", "div-0:40")):
        shown = on_terminal("metadata", *ALL, *options, streams=("stdout",)).lines
        assert max(map(len, shown)) <= 80
        assert len(shown) > 5
    text = "\n".join(on_terminal("metadata", *ALL, streams=("stdout",)).lines)
    assert "2 of 3 fenced: 1, 3" in text
    assert "led since an unclean election: calm-0, div-0" in text


# --- --durability


def test_settings_of_a_cluster_that_never_ran(eoctl: Any, tmp_path: Path) -> None:
    config = ("--config", "orders:min.insync.replicas=2")
    made = eoctl("init", tmp_path / "new", "--topic", "orders:3", *config, "--apply")
    assert made.status == 0, made.errors
    done = eoctl("metadata", tmp_path / "new", "--durability", *JSONL)
    assert done.status == 1, done.errors
    (found,) = [each for each in rows_of(done) if each["topic"] == "orders"]
    assert (found["partitions_count"], found["min_insync_replicas"]) == (3, 2)
    assert "bootstrap.checkpoint" in done.errors
    assert eoctl("start-order", tmp_path / "new").status == 2


def test_what_topics_survive(diverged: Path, eoctl: Callable[..., Any]) -> None:
    done = eoctl("metadata", "broker-2", "--durability", *JSONL)
    assert done.status == 1
    found = {each["topic"]: each for each in rows_of(done, "topic")}
    assert {*found} == {"__transaction_state", "calm", "div"}
    assert found["div"]["faults"] == ["min.insync 1", "no ELR"]
    assert found["div"]["settings_from"] == "default"
    assert (
        found["div"]["replicas_count"],
        found["div"]["survives_for_writes"],
        found["div"]["survives_for_data"],
        found["div"]["survives_power"],
    ) == (3, 2, 0, 0)


def test_a_topic_that_survives_nothing_at_a_moment(
    diverged: Path, eoctl: Callable[..., Any]
) -> None:
    """At an offset of the metadata, and with the answer first."""
    shown = on_terminal("metadata", *ALL, "--durability", streams=("stdout",)).text
    assert "Topics  3 of 3 topics may not survive the loss of one broker" in shown
    before = rows_of(eoctl("metadata", *ALL, "--durability", "--at", 11, *JSONL), "topic")
    assert len(before) < 3
    assert eoctl("metadata", *ALL, "--durability", "--settings").status == 2
