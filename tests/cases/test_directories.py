"""Directories with a suffix: what `check` says of them, and what other commands make of it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from recovery.start.prediction import REPLACES
from storage.formats.cluster_metadata import PARTITION, TOPIC, encode_record
from storage.formats.partition_metadata import format_uuid
from tests.cases.files import HandLogDir, batch, singles, unpack_golden
from tests.cases.states import ID
from tests.serving import Served
from tests.terminal import on_terminal

if TYPE_CHECKING:
    from collections.abc import Callable

STEM = f"{0:020d}"


def findings_of(outcome: Any, path: Path) -> list[tuple[str, str, str]]:
    """Rule, severity and action of each finding in a directory."""
    rows = [json.loads(line) for line in outcome.text.splitlines()]
    return [
        (each["check_id"], each["severity"], each["broker_action"])
        for each in rows
        if each["kind"] == "finding" and each["path"].startswith(str(path))
    ]


@pytest.mark.parametrize("state", ["future", "stray", "delete"])
def test_a_directory_with_a_suffix_owes_nothing_to_the_lines_of_the_live_one(
    tmp_path: Path, eoctl: Callable[..., Any], state: str
) -> None:
    """Its log ends far below the checkpointed high watermark, and begins below the log start."""
    made = HandLogDir(tmp_path)
    made.epochs()
    beside = made.path / f"t-0.{ID}-{state}"
    shutil.copytree(made.path / "t-0", beside)
    (beside / f"{STEM}.log").write_bytes(b"".join(singles(0, 2)))
    (beside / f"{STEM}.timeindex").write_bytes(b"")
    made.closed(singles(0, 30), 30)
    made.checkpoints(log_start=20)
    made.crash()
    outcome = eoctl("check", "--output", "jsonl", made.path)
    rules = {rule for rule, _, _ in findings_of(outcome, made.path)}
    assert rules <= {"DIR-6"}


@pytest.mark.parametrize(
    "left",
    [
        (f"{5:020d}.index",),
        (f"{5:020d}.log",),
        (f"{5:020d}.log", f"{9:020d}.timeindex", f"{9:020d}.snapshot"),
        ("leader-epoch-checkpoint",),
        (),
    ],
)
def test_half_a_delete_directory_is_a_note(
    tmp_path: Path, eoctl: Callable[..., Any], left: tuple[str, ...]
) -> None:
    made = HandLogDir(tmp_path)
    made.closed(singles(0, 30), 30)
    beside = made.path / f"gone-0.{ID}-delete"
    beside.mkdir()
    for name in left:
        (beside / name).write_bytes(b"".join(singles(5, 9)) if name.endswith(".log") else b"")
    outcome = eoctl("check", "--output", "jsonl", made.path)
    assert outcome.status == 0
    assert {severity for _, severity, _ in findings_of(outcome, made.path)} == {"note"}


def test_a_foreign_name_in_a_delete_directory_keeps_a_broker_from_starting(
    case: Callable[[str], Path], eoctl: Callable[..., Any]
) -> None:
    made = case("delete-dir-half-gone")
    (beside,) = made.glob("*-delete")
    (beside / "abc.snapshot").touch()
    outcome = eoctl("check", "--output", "jsonl", made)
    assert outcome.status == 1
    assert ("DIR-9", "error", "refuses to start") in findings_of(outcome, beside)


def test_readers_of_a_log_dir_say_that_a_metadata_record_is_unknown(
    case: Callable[[str], Path], eoctl: Callable[..., Any], tmp_path: Path
) -> None:
    made = case("unknown-metadata-record")
    for call in (
        ("loss", made), ("export", made, "--to", tmp_path / "to"), ("duplicates", made),
        ("producers", made), ("spark-audit", made), ("txn", "list", made), ("describe", made),
        ("txn", "hanging", made), ("groups", "list", made), ("start-order", made),
    ):  # fmt: skip
        outcome = eoctl(*call)
        assert (call, outcome.status) == (call, 5), outcome.errors
        assert str(made / "__cluster_metadata-0") in outcome.errors
    with Served(made) as served:
        ended = served.stop()
    assert "metadata record of a newer release" in ended.stderr


def test_an_unknown_metadata_record_is_the_end_of_a_start(
    case: Callable[[str], Path], eoctl: Callable[..., Any]
) -> None:
    made = case("unknown-metadata-record")
    outcome = eoctl("check", "--output", "jsonl", made)
    assert outcome.status == 1
    assert findings_of(outcome, made) == [
        ("KRF-4", "error", "cannot load the cluster's metadata, and stops")
    ]
    assert eoctl("describe", made).status == 5
    assert eoctl("metadata", made).status == 5
    assert eoctl("adopt", made, "--to", made.parent / "new").status == 5


def test_another_node_id_than_the_configured_one(
    case: Callable[[str], Path], eoctl: Callable[..., Any]
) -> None:
    made = case("node-id-mismatch")
    properties = made.parent / "server.properties"
    outcome = eoctl("check", "--output", "jsonl", "--server-properties", properties)
    assert outcome.status == 1
    assert findings_of(outcome, made) == [("DIR-3", "error", "refuses to start")]


def test_one_node_id_in_two_clusters_is_a_warning(
    case: Callable[[str], Path], eoctl: Callable[..., Any]
) -> None:
    made = case("cluster-id-two-dirs")
    outcome = eoctl("check", "--output", "jsonl", made / "one", made / "two")
    assert outcome.status == 1
    action = "refuses to start if both log dirs belong to one node"
    assert ("DIR-3", "warning", action) in findings_of(outcome, made / "two")


# --- -future directories --------------------------------------------------------------------------

REFUSES = "refuses to start"


def split(out: Path) -> tuple[Path, Path]:
    """Unpack a node with two log dirs; the metadata assign each partition to the one it is in."""
    made = unpack_golden(out, "kafka-4.3.1-two-dirs")
    return made / "one", made / "two"


def suffixed(path: Path, state: str, unique: str = ID) -> Path:
    return path.with_name(f"{path.name}.{unique}-{state}")


def verdict(eoctl: Callable[..., Any], *paths: Path) -> tuple[int, list[dict[str, Any]]]:
    outcome = eoctl("check", "--output", "jsonl", *paths)
    return outcome.status, [json.loads(line) for line in outcome.text.splitlines()]


def errors(rows: list[dict[str, Any]]) -> list[tuple[str, str, str]]:
    return [
        (each["check_id"], Path(each["path"]).name, each["fix"])
        for each in rows
        if each["kind"] == "finding" and each["severity"] == "error"
    ]


def starts(rows: list[dict[str, Any]]) -> dict[str, str]:
    """What a start does with each directory that it does not serve, and with which it refuses."""
    return {
        "/".join(Path(each["path"]).parts[-2:]): each["start"]
        for each in rows
        if each["kind"] == "partition" and each["start_end_offset"] is None
    }


def cut(directory: Path, end_offset: int) -> None:
    """Remove segments from an offset on, with what a stop leaves at the end."""
    for each in directory.iterdir():
        if each.suffix and each.stem.isdigit() and int(each.stem) >= end_offset:
            each.unlink()


@pytest.mark.parametrize("length", ["shorter", "equal", "longer"])
def test_a_future_directory_beside_the_live_one(
    case: Callable[[str], Path], eoctl: Callable[..., Any], length: str
) -> None:
    made = case("future-replica-same-dir")
    live, future = made / "t-0", suffixed(made / "t-0", "future")
    is_longer = length == "longer"
    if length != "shorter":
        shutil.rmtree(future)
        shutil.copytree(live, future)
    if is_longer:
        (live / f"{STEM}.log").write_bytes(b"".join(singles(0, 2)))
    status, rows = verdict(eoctl, made)
    assert status == 1
    found = [each for each in errors(rows) if each[0] == "DIR-6"]
    # Without the live one the broker takes the other.
    assert found[0] == ("DIR-6", future.name, f"Move {live if is_longer else future} away.")
    assert len(found) == 1 + is_longer  # its records are nowhere else
    assert eoctl("loss", made).status == is_longer
    assert starts(rows) == {f"d/{future.name}": REFUSES}


def test_a_future_directory_that_takes_the_place_of_a_longer_one(
    tmp_path: Path, eoctl: Callable[..., Any]
) -> None:
    """The metadata assign the partition to where the copy is, and the broker removes the other."""
    one, two = split(tmp_path)
    future = suffixed(one / "plain-1", "future")
    (one / "plain-1").rename(future)
    shutil.copytree(future, two / "plain-1")
    status, rows = verdict(eoctl, one, two)
    assert status == 0
    assert list(starts(rows).values()).count(REPLACES) == 1
    cut(future, 40)
    status, rows = verdict(eoctl, one, two)
    assert status == 1
    assert ("DIR-6", future.name, f"Move {future} away.") in errors(rows)
    shown = eoctl("check", one, two, "-v").text
    assert "without offsets 40 to 59" in shown


def test_a_future_directory_alone(tmp_path: Path, eoctl: Callable[..., Any]) -> None:
    """In the assigned log dir it becomes the live one; elsewhere the broker empties it."""
    one, two = split(tmp_path)
    (one / "plain-1").rename(suffixed(one / "plain-1", "future"))
    status, rows = verdict(eoctl, one, two)
    assert (status, errors(rows)) == (0, [])
    suffixed(one / "plain-1", "future").rename(suffixed(two / "plain-1", "future"))
    status, rows = verdict(eoctl, one, two)
    assert status == 1
    undo_steps = (
        f"Stop the broker, rename {suffixed(two / 'plain-1', 'future')} to {two / 'plain-1'}, "
        "start the broker."
    )
    assert errors(rows) == [("DIR-6", suffixed(two / "plain-1", "future").name, undo_steps)]
    # If a log dir of the node was not given, the live directory may be there.
    assert "DIR-6" not in {rule for rule, _, _ in errors(verdict(eoctl, two)[1])}


@pytest.mark.parametrize("has_metadata", [True, False])
def test_a_future_directory_that_is_longer_than_the_live_one(
    tmp_path: Path, eoctl: Callable[..., Any], *, has_metadata: bool
) -> None:
    """The broker cuts it to match the live one."""
    one, two = split(tmp_path)
    future = suffixed(two / "plain-1", "future")
    shutil.copytree(one / "plain-1", future)
    cut(one / "plain-1", 40)
    if not has_metadata:
        shutil.rmtree(one / "__cluster_metadata-0")
    _, rows = verdict(eoctl, one, two)
    found = [each for each in rows if each.get("check_id") == "DIR-6" and each["base_offset"]]
    assert [(each["path"], each["base_offset"], each["last_offset"]) for each in found] == [
        (str(future), 40, 59)
    ]


def test_a_stray_directory_in_one_of_two_log_dirs(
    tmp_path: Path, eoctl: Callable[..., Any]
) -> None:
    """The live one may lie in the log dir that was not given."""
    one, two = split(tmp_path)
    shutil.copytree(one / "plain-1", suffixed(two / "plain-1", "stray"))
    assert errors(verdict(eoctl, two)[1]) == []
    assert errors(verdict(eoctl, one, two)[1]) == []


def test_a_copy_that_is_under_way(tmp_path: Path, eoctl: Callable[..., Any]) -> None:
    one, two = split(tmp_path)
    shutil.copytree(one / "plain-1", suffixed(two / "plain-1", "future"))
    status, rows = verdict(eoctl, one, two)
    assert (status, errors(rows)) == (0, [])


# --- the same partition twice ---------------------------------------------------------------------


def test_the_metadata_decide_which_of_two_live_directories_is_moved_away(
    case: Callable[[str], Path], eoctl: Callable[..., Any], tmp_path: Path
) -> None:
    made = case("duplicate-dirs")
    status, rows = verdict(eoctl, made / "one", made / "two")
    assert status == 1
    two = made / "two/plain-1"
    assert errors(rows) == [("DIR-2", "plain-1", f"Move {two} away.")]
    assert starts(rows)["two/plain-1"] == REFUSES
    # The order of the log dirs does not count.
    assert errors(verdict(eoctl, made / "two", made / "one")[1]) == errors(rows)
    # One of another topic's id is set aside, and the other one is served.
    path = two / "partition.metadata"
    path.write_text("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ")
    _, rows = verdict(eoctl, made / "one", made / "two")
    assert "DIR-2" not in {rule for rule, _, _ in errors(rows)}


def test_two_future_directories_of_one_partition(tmp_path: Path, eoctl: Callable[..., Any]) -> None:
    one, two = split(tmp_path)
    for unique in ("a" * 32, "b" * 32):
        shutil.copytree(one / "plain-1", suffixed(two / "plain-1", "future", unique))
    status, rows = verdict(eoctl, one, two)
    assert status == 1
    assert [rule for rule, _, _ in errors(rows)] == ["DIR-2"]


# --- records that only a directory with a suffix has ----------------------------------------------


def test_a_stray_directory_that_holds_a_live_topic(
    case: Callable[[str], Path], eoctl: Callable[..., Any]
) -> None:
    made = case("stray-holds-data")
    stray = suffixed(made / "t-0", "stray")
    undo_steps = f"Stop the broker, rename {stray} to {made / 't-0'}, start the broker."
    status, rows = verdict(eoctl, made)
    assert (status, errors(rows)) == (1, [("DIR-6", stray.name, undo_steps)])
    for call in (("loss",), ("describe",), ("duplicates",)):
        outcome = eoctl(*call, made)
        assert outcome.status != 0
        assert "lost: nothing" not in outcome.text
    assert verdict(eoctl, stray)[0] == 1  # by itself, too
    reclaimed = eoctl("reclaim", "--class", "A,B,C,D", "--output", "jsonl", made).text
    assert '"reclaimable"' not in reclaimed
    advised = eoctl("start-order", made)
    assert advised.status == 1
    assert undo_steps in advised.errors
    shown = on_terminal("start-order", str(made)).text
    assert shown.startswith("First   Stop the broker, rename")
    stray.rename(made / "t-0")
    assert verdict(eoctl, made)[0] == 0


@pytest.mark.parametrize("state", ["stray", "delete"])
def test_a_directory_that_is_longer_than_the_live_one(
    tmp_path: Path, eoctl: Callable[..., Any], state: str
) -> None:
    made = HandLogDir(tmp_path)
    made.closed(singles(0, 30), 30)
    aside = suffixed(made.path / "t-0", state)
    shutil.copytree(made.path / "t-0", aside)
    assert verdict(eoctl, made.path)[0] == 0
    (made.path / "t-0" / f"{30:020d}.snapshot").unlink()
    made.closed(singles(0, 10), 10)
    status, rows = verdict(eoctl, made.path)
    assert status == 1
    assert [each[:2] for each in errors(rows)] == [("DIR-6", aside.name)]
    lost = [each for each in rows if each.get("check_id") == "DIR-6" and each["base_offset"]]
    assert [(each["base_offset"], each["last_offset"]) for each in lost] == [(10, 29)]
    assert eoctl("loss", made.path).status == 1


@pytest.mark.parametrize("topic_id", ["AAAAAAAAAAAAAAAAAAAAAQ", ""])
def test_a_stray_directory_of_no_topic_of_the_cluster(
    tmp_path: Path, eoctl: Callable[..., Any], topic_id: str
) -> None:
    """Deleted, or created again under another id, which the live directory has."""
    made = HandLogDir(tmp_path)
    made.closed(singles(0, 30), 30)
    stray = suffixed(made.path / "t-0", "stray")
    shutil.copytree(made.path / "t-0", stray)
    (stray / "partition.metadata").unlink()
    if topic_id:
        (stray / "partition.metadata").write_text(f"version: 0\ntopic_id: {topic_id}")
    (made.path / "t-0" / f"{30:020d}.snapshot").unlink()
    made.closed(singles(0, 10), 10)
    assert verdict(eoctl, made.path)[0] == 0
    assert eoctl("loss", made.path).status == 0


def test_what_a_stray_directory_lacks_is_missing(
    case: Callable[[str], Path], eoctl: Callable[..., Any]
) -> None:
    made = case("stray-holds-data")
    stray = suffixed(made / "t-0", "stray")
    (stray / f"{STEM}.log").write_bytes(b"".join(singles(0, 20)))
    _, rows = verdict(eoctl, made)
    reported = {
        (each["check_id"], each["base_offset"], each["last_offset"])
        for each in rows
        if each["kind"] == "finding" and each["severity"] == "error"
    }
    assert reported == {("DIR-6", 0, 19), ("DIR-8", 20, 29)}


def test_a_stray_directory_without_metadata(
    case: Callable[[str], Path], eoctl: Callable[..., Any]
) -> None:
    """The recovery point tells that the broker still had the partition."""
    made = case("stray-holds-data")
    shutil.rmtree(made / "__cluster_metadata-0")
    (made / "bootstrap.checkpoint").unlink(missing_ok=True)
    assert verdict(eoctl, made)[0] == 1
    path = made / "recovery-point-offset-checkpoint"
    path.write_text("0\n1\nc 0 0\n")
    assert verdict(eoctl, made)[0] == 0


def test_a_stray_directory_whose_topic_is_cut_in_its_name(
    tmp_path: Path, eoctl: Callable[..., Any]
) -> None:
    """A name of exactly 255 bytes; the metadata have the whole one by the topic id."""
    made = HandLogDir(tmp_path)
    made.closed(singles(0, 30), 30)
    topic, topic_id = "n" * 249, bytes(range(16))
    placed = {"partitionId": 0, "topicId": topic_id, "replicas": [1], "isr": [1], "leader": 1}
    placed |= {"removingReplicas": [], "addingReplicas": [], "leaderEpoch": 0, "partitionEpoch": 0}
    values = (
        encode_record(TOPIC, 0, {"name": topic, "topicId": topic_id}),
        encode_record(PARTITION, 0, placed),
    )
    with made.file(f"{STEM}.log", "__cluster_metadata-0").open("ab") as log:
        log.writelines(
            batch(86 + place, [(None, value)], leader_epoch=1) for place, value in enumerate(values)
        )
    tail = f"-0.{ID}-stray"
    stray = made.path / f"{topic[: 255 - len(tail)]}{tail}"
    assert len(stray.name) == 255
    shutil.copytree(made.path / "t-0", stray)
    (stray / "partition.metadata").write_text(f"version: 0\ntopic_id: {format_uuid(topic_id)}")
    _, rows = verdict(eoctl, made.path)
    (found,) = (each for each in rows if each.get("fix", "").startswith("Stop"))
    assert found["topic"] == topic
    assert str(made.path / f"{topic}-0") in found["fix"]


def test_adopt_refuses_to_leave_out_what_only_a_stray_directory_has(
    case: Callable[[str], Path], eoctl: Callable[..., Any], tmp_path: Path
) -> None:
    made = case("stray-holds-data")
    stray = suffixed(made / "t-0", "stray")
    outcome = eoctl("adopt", made, "--to", tmp_path / "new")
    assert outcome.status == 4
    assert f"{stray}: has offsets 0 to 29 (30) of t-0, which no copy has" in outcome.errors
    assert f"rename it to {made / 't-0'}" in outcome.errors
    shutil.copytree(stray, made / "t-0")
    assert eoctl("adopt", made, "--to", tmp_path / "new").status == 0


def test_what_a_start_creates_lies_in_the_log_dirs_that_were_given(
    tmp_path: Path, eoctl: Callable[..., Any]
) -> None:
    """Partitions of the node's other log dir are not made anew in the one that was given."""
    one, _ = split(tmp_path)
    shutil.rmtree(one / "plain-1")
    outcome = eoctl("check", "--predict", "--output", "jsonl", one)
    rows = [json.loads(line) for line in outcome.text.splitlines()]
    made = {Path(each["path"]).parent.name for each in rows if each.get("action") == "creates"}
    assert made == {"plain-1"}


def test_a_start_writes_a_directory_id(tmp_path: Path, eoctl: Callable[..., Any]) -> None:
    one, two = split(tmp_path)
    meta = two / "meta.properties"
    lines = [each for each in meta.read_text().splitlines() if "directory.id" not in each]
    meta.write_text("\n".join(lines) + "\n")
    outcome = eoctl("check", "--predict", "--output", "jsonl", one, two)
    rows = [json.loads(line) for line in outcome.text.splitlines()]
    assert [each["action"] for each in rows if each["path"] == str(meta)] == ["rewrites"]


def test_a_stray_directory_that_ends_a_start(tmp_path: Path, eoctl: Callable[..., Any]) -> None:
    """Its log dir was stopped cleanly, so that the broker reads its end without a recovery."""
    one, two = split(tmp_path)
    stray = suffixed(one / "plain-1", "stray")
    shutil.copytree(one / "plain-1", stray)
    log = max(stray.glob("*.log"))
    log.write_bytes(log.read_bytes() + bytes(1000))
    outcome = on_terminal("check", "-q", str(one), str(two))
    assert outcome.status == 1
    assert "Kafka 4.4.0 will NOT start" in outcome.text
    assert f"move {stray} away" in " ".join(outcome.text.split())
    (one / ".kafka_cleanshutdown").unlink()
    assert on_terminal("check", "-q", str(one), str(two)).status == 0
