"""`eoctl start-order`: which broker first, on the directories of three real brokers; what it refuses.

Broker 1 was alone in the ISR of all partitions when it died. `calm` and `div` were then led by 2,
elected uncleanly, which died too; broker 3 has been away since the beginning.
"""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING, Any

import pytest

from tests.changes import in_a_closed_pipe, notes_of, rows_of
from tests.kafka.broker import copy_log_dir, new_uuid, read_properties
from tests.terminal import on_terminal

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

JSONL = ("--output", "jsonl")
ALL = ("broker-1", "broker-2", "broker-3")
METADATA_LOG = "broker-2/__cluster_metadata-0/00000000000000000000.log"


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


def by_partition(outcome: Any, kind: str) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {}
    for each in rows_of(outcome, kind):
        found.setdefault(f"{each['topic']}-{each['partition']}", []).append(each)
    return found


def test_who_leads_at_once_and_who_only_uncleanly(
    diverged: Path, eoctl: Callable[..., Any]
) -> None:
    done = eoctl("start-order", *ALL, *JSONL)
    assert done.status == 1  # whichever way, an acknowledged offset is lost: it was already
    rows = {key: row for key, (row,) in by_partition(done, "partition").items()}
    leads = {key: (row["at_once"], row["unclean_only"], row["how"]) for key, row in rows.items()}
    assert leads == {
        "__transaction_state-0": ([1], [2, 3], "isr"),
        "__transaction_state-1": ([1], [3, 2], "isr"),
        "calm-0": ([2], [1, 3], "isr"),
        "div-0": ([2], [1, 3], "isr"),
    }
    orders = rows_of(done, "order")
    assert [each["order"] for each in orders if each["is_recommended"]] == ["1,2,3"]
    assert {each["order"]: each["waits_count"] for each in orders} == {
        "1,2,3": 2, "2,1,3": 2, "1,3,2": 4, "2,3,1": 4, "3,1,2": 6, "3,2,1": 6,
    }  # fmt: skip
    assert [(each["up"], each["led_count"]) for each in rows_of(done, "step")] == [
        ([], 0), ([1], 2), ([1, 2], 4), ([1, 2, 3], 4),
    ]  # fmt: skip


def test_what_each_leader_loses(diverged: Path, eoctl: Callable[..., Any]) -> None:
    """As `replicas compare` says of the same copies."""
    done = eoctl("start-order", *ALL, *JSONL, "--topic", "div")
    assert {
        each["broker"]: (
            each["from_broker"],
            each["start_offset"],
            each["lost_acknowledged_offsets_count"],
            each["lost_offsets_count"],
            each["lost_records_count"],
            each["lost_transactions_count"],
        )
        for each in rows_of(done, "choice")
    } == {2: (1, 36, 1, 37, 33, 3), 1: (2, 36, 0, 30, 30, 0), 3: (1, 36, 1, 37, 33, 3)}
    compared = eoctl(
        "replicas",
        "compare",
        *(f"{each}/div-0" for each in ALL),
        "--now",
        0,
        "--all-leaders",
        *JSONL,
    )
    costs = {
        each["leader"]: each["lost_records_count"]
        for each in rows_of(compared, "choice")
        if each["follower"] == "broker-1/div-0"
    }
    assert costs == {"broker-2/div-0": 33, "broker-3/div-0": 33}


def test_a_copy_that_is_not_there_makes_the_loss_unknown(
    diverged: Path, eoctl: Callable[..., Any]
) -> None:
    done = eoctl("start-order", "broker-3", "--metadata-dir", "broker-2", *JSONL)
    assert done.status == 1
    (order,) = rows_of(done, "order")
    assert (order["unknown_partitions_count"], order["unclean_count"]) == (4, 4)
    for each in rows_of(done, "partition"):
        assert (each["at_once"], each["unclean_only"], each["how"]) == ([], [3], "by request")
    for each in rows_of(done, "choice"):
        assert each["lost_offsets_count"] is None


def test_who_does_not_come_back_is_compared_with(diverged: Path, eoctl: Callable[..., Any]) -> None:
    done = eoctl("start-order", *ALL, "--gone", 2, *JSONL)
    assert done.status == 1
    rows = {key: row for key, (row,) in by_partition(done, "partition").items()}
    assert rows["div-0"]["how"] == "by request"
    assert rows["div-0"]["leads"] == 1
    assert rows["__transaction_state-0"]["how"] == "isr"
    (order,) = (each for each in rows_of(done, "order") if each["is_recommended"])
    assert (order["order"], order["lost_offsets_count"]) == ("1,3", 31)


def test_who_runs_leads_already(diverged: Path, eoctl: Callable[..., Any]) -> None:
    done = eoctl("start-order", "broker-1", "broker-2", "--running", 2, "--topic", "c*", *JSONL)
    (row,) = rows_of(done, "partition")
    assert (row["leads"], row["how"], row["step"]) == (2, "leads", 0)
    assert done.status == 5  # their controller, node 100, was not captured: it may know more
    assert "controller 100: not among these" in "\n".join(notes_of(done))


def test_the_answer_comes_first(diverged: Path) -> None:
    shown = on_terminal("start-order", *ALL, streams=("stdout",)).lines
    assert shown[:3] == [
        "Start   broker 1 first, then 2, 3",
        "Why     with 1 up, 2 of 4 partitions are led; 3 first: 4 wait",
        "        __transaction_state-0: broker 1 is the last member of the ISR",
    ]
    assert shown[3].startswith("Lost    1 acknowledged offset at least, 38 at most")
    assert any(each.startswith("Next    start brokers 1, 2 one after") for each in shown[4:10])


@pytest.mark.share(2)
@pytest.mark.parametrize("options", [(), ("--gone", 2), ("--topic", "div"), ("--limit", 1)])
def test_it_fits_80_columns(diverged: Path, options: tuple[object, ...]) -> None:
    shown = on_terminal("start-order", *ALL, *options, streams=("stdout",)).lines
    assert shown
    assert max(map(len, shown)) <= 80


# --- what it refuses, and what it cannot know -------------------------------------------------------


def test_without_metadata_nothing_is_known(writable: Path, eoctl: Callable[..., Any]) -> None:
    shutil.rmtree(writable / "broker-1" / "__cluster_metadata-0")
    done = eoctl("start-order", "broker-1")
    assert done.status == 2
    assert "the ISR is unknown" in done.errors
    assert "replicas compare" in done.errors


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "no LOG-DIR given"),
        (("broker-1/div-0",), "no log dir of a broker"),
        (("broker-1", "--running", 9), "no node of that id"),
        (("broker-1", "--topic", "none"), "no topic none"),
        (("broker-1", "--running", 1, "--gone", 1), "1: it runs, or does not come back"),
    ],
)
def test_wrong_calls(
    diverged: Path, eoctl: Callable[..., Any], arguments: tuple[object, ...], words: str
) -> None:
    done = eoctl("start-order", *arguments)
    assert done.status == 2
    assert words in done.errors


def test_two_clusters(writable: Path, eoctl: Callable[..., Any]) -> None:
    path = writable / "broker-2" / "meta.properties"
    path.write_text(path.read_text().replace("cluster.id=", "cluster.id=other"))
    done = eoctl("start-order", *ALL)
    assert done.status == 2
    assert "different clusters" in done.errors


def test_one_log_dir_twice(writable: Path, eoctl: Callable[..., Any]) -> None:
    shutil.copytree("broker-1", "copy")
    done = eoctl("start-order", *ALL, "copy")
    assert done.status == 2
    assert "copies of one log dir of broker 1" in done.errors
    assert (
        eoctl("start-order", *ALL, "broker-1", *JSONL).stdout
        == eoctl("start-order", *ALL, *JSONL).stdout
    )


def test_a_disk_that_was_replaced(writable: Path, eoctl: Callable[..., Any]) -> None:
    """Of what lay on the old one its broker leads nothing (KIP-858), though it is in the ISR."""
    path = writable / "broker-2" / "meta.properties"
    old = read_properties(path)["directory.id"]
    path.write_text(path.read_text().replace(old, new_uuid()))
    shutil.rmtree(writable / "broker-2" / "div-0")
    done = eoctl("start-order", *ALL, "--topic", "div", *JSONL)
    assert done.status == 1
    (row,) = rows_of(done, "partition")
    assert (row["isr"], row["at_once"], row["unclean_only"]) == ([2], [], [1, 3])
    assert row["how"] == "by request"
    assert row["perhaps"] == [2]
    assert "a new log dir was formatted" in "\n".join(notes_of(done))
    orders = rows_of(done, "order")
    assert orders[0]["order"].startswith("1,")
    assert orders[0]["lost_offsets_count"] == 0
    lost = {each["order"]: each["lost_offsets_count"] for each in orders}
    assert lost["2,1,3"] == 73  # all that broker 1 has
    shown = on_terminal("start-order", *ALL, "--topic", "div", streams=("stdout",)).lines
    assert any(each.startswith("Disk    broker 2 has a new disk") for each in shown)
    assert max(map(len, shown)) <= 80


def test_a_second_log_dir_that_was_not_given(
    golden: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch, eoctl: Callable[..., Any]
) -> None:
    monkeypatch.chdir(golden("kafka-4.3.1-two-dirs"))
    whole = eoctl("start-order", "one", "two", *JSONL)
    assert whole.status == 0
    assert {row["how"] for row in rows_of(whole, "partition")} == {"elr"}
    short = eoctl("start-order", "one", *JSONL)
    assert short.status == 5
    assert "it is not among these" in "\n".join(notes_of(short))


def test_older_metadata_that_are_whole(writable: Path, eoctl: Callable[..., Any]) -> None:
    data = bytearray((log := writable / METADATA_LOG).read_bytes())
    data[len(data) // 2] ^= 1
    log.write_bytes(data)
    done = eoctl("start-order", *ALL, *JSONL)
    assert "counts: older, and whole" in "\n".join(notes_of(done))
    alone = eoctl("start-order", "broker-2", *JSONL)
    assert alone.status in {1, 5}


def test_damage_is_named_and_does_not_count(writable: Path, eoctl: Callable[..., Any]) -> None:
    log = writable / "broker-2" / "div-0" / "00000000000000000000.log"
    data = bytearray(log.read_bytes())
    data[4000] ^= 1
    log.write_bytes(data)
    (writable / "broker-1" / "div-0" / "leader-epoch-checkpoint").write_text("0\n9\n")
    done = eoctl("start-order", *ALL, *JSONL)
    assert done.status == 5
    notes = "\n".join(notes_of(done))
    assert "records after it do not count" in notes
    assert "leader-epoch-checkpoint" in notes
    (row,) = by_partition(done, "partition")["div-0"]
    assert row["leads"] == 2
    choices = {each["broker"]: each for each in by_partition(done, "choice")["div-0"]}
    assert choices[1]["lost_offsets_count"] is None


def test_a_topic_made_anew_is_another_one(writable: Path, eoctl: Callable[..., Any]) -> None:
    data = (writable / "broker-1" / "calm-0" / "partition.metadata").read_bytes()
    (writable / "broker-3" / "div-0" / "partition.metadata").write_bytes(data)
    done = eoctl("start-order", *ALL, *JSONL)
    assert "of another topic of that name" in "\n".join(notes_of(done))
    assert done.status == 1


def test_metadata_that_end_early(writable: Path, eoctl: Callable[..., Any]) -> None:
    """The newest are damaged: what is not known is said, and the status is not 0."""
    log = writable / "broker-2" / "__cluster_metadata-0" / "00000000000000000000.log"
    data = bytearray(log.read_bytes())
    data[len(data) // 2] ^= 1
    log.write_bytes(data)
    done = eoctl("start-order", *ALL, *JSONL)
    assert done.status in {1, 5}
    assert "out of date" in "\n".join(notes_of(done))


def test_a_log_dir_that_cannot_be_read(writable: Path, eoctl: Callable[..., Any]) -> None:
    done = eoctl("start-order", "broker-2", "nowhere", "--topic", "calm", *JSONL)
    assert done.status == 5
    assert "nowhere" in "\n".join(notes_of(done))
    empty = writable / "empty"
    os.mkdir(empty)  # noqa: PTH102
    assert eoctl("start-order", empty).status == 3


def test_a_closed_pipe_ends_quietly(diverged: Path) -> None:
    done = in_a_closed_pipe("start-order", *ALL, *JSONL)
    assert b"Traceback" not in done.stderr
