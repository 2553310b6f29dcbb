"""`eoctl groups import`: offsets from a file into `__consumer_offsets`, and all that forbids it."""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from recovery.groups.offset_files import csv_line
from storage.formats.consumer_offsets import RECORD_TYPES
from storage.formats.coordinator_record import parse_key, parse_value
from storage.formats.partition_metadata import parse_partition_metadata
from storage.log.segment import open_segment
from storage.producers.java_hash_map import coordinator_partition
from tests import groups
from tests.changes import held, in_80_columns, notes_of, rows_of
from tests.crash.trees import difference, tree_of
from tests.drawn import examples
from tests.kafka.broker import copy_log_dir

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.running import Outcome

    Cli = Callable[..., Outcome]

HOSTILE = ["a,b", 'say "hi"', "אב\u202e", "g" * 249, " a ", "{", "two\nlines", "a\\b", "€" * 800]
SOON = "2026-11-21T03:00:00Z"
ONE = "--single-copy"
PROGRAM = f"env PYTHONPATH={Path(__file__).parents[2]} {sys.executable} -m eoctl"


@pytest.fixture
def offsets(tmp_path: Path) -> Callable[..., Path]:
    """Makes a file of CSV lines."""

    def make(*lines: str) -> Path:
        path = tmp_path / "offsets.csv"
        path.write_text("".join(f"{each}\n" for each in lines))
        return path

    return make


def exported(eoctl: Cli, log_dir: Path, *arguments: object) -> dict[tuple[str, str, int], Any]:
    outcome = eoctl("groups", "export", log_dir, *arguments, "-o", "jsonl")
    assert outcome.status == 0, outcome.errors
    return {
        (each["group"], each["topic"], each["partition"]): each
        for each in rows_of(outcome, "group_offset")
    }


def bring(eoctl: Cli, log_dir: Path, source: Path, *arguments: object) -> list[dict[str, Any]]:
    call = ("groups", "import", log_dir, "--from", source, *arguments, "--apply", "-o", "jsonl")
    outcome = eoctl(*call)
    assert outcome.status == 0, outcome.errors
    return rows_of(outcome, "imported_offset")


def refused(eoctl: Cli, log_dir: Path, source: Path, *arguments: object) -> str:
    """What a refusal says; nothing is changed by it, with and without --apply."""
    before = tree_of(log_dir)
    for more in ((), ("--apply",)):
        outcome = eoctl("groups", "import", log_dir, "--from", source, *arguments, *more)
        assert outcome.status == 4, outcome.errors
        assert difference(before, tree_of(log_dir)) == []
    return outcome.errors


def new_records(directory: Path) -> list[tuple[int, int, dict[str, Any], dict[str, Any]]]:
    """Type of the key, version of the value and both of the records in the last segment."""
    found = []
    with open_segment(str(max(directory.glob("*.log")))) as segment:
        for batch in segment.scan():
            for record in segment.records(batch):
                assert record.key is not None
                assert record.value is not None
                record_type, key = parse_key(RECORD_TYPES, record.key)
                _, version, value = parse_value(record_type, record.value)
                found.append((record_type.type, version, key, value))
    return found


# --- what is committed ----------------------------------------------------------------------------


def test_offsets_are_committed(kafka: Path, offsets: Callable[..., Path], eoctl: Cli) -> None:
    """Of groups that are there and of new ones; what else they have stays; undo undoes it."""
    before = tree_of(kafka)
    source = offsets("new,plain,0,5", "ctp,txn,1,80", "ctp,plain,0,7")
    outcome = eoctl("groups", "import", kafka, "--from", source)
    assert outcome.status == 0, outcome.errors
    assert "this is a plan" in outcome.errors
    assert difference(before, tree_of(kafka)) == []
    rows = bring(eoctl, kafka, source)
    assert [(each["offset_before"], each["committed_offset"]) for each in rows] == [
        (None, 5), (89, 80), (None, 7)
    ]  # fmt: skip
    assert {key: each["offset"] for key, each in exported(eoctl, kafka).items()} == {
        ("ctp", "plain", 0): 7, ("ctp", "txn", 1): 80, ("new", "plain", 0): 5,
        ("plain-group", "plain", 1): 200,
    }  # fmt: skip
    assert eoctl("undo", kafka).status == 0
    assert difference(before, tree_of(kafka)) == []


def test_what_a_broker_of_this_release_writes(
    kafka: Path, offsets: Callable[..., Path], eoctl: Cli
) -> None:
    """Version 4 with the topic's id, each group in a batch; a group that was emptied is so now."""
    bring(eoctl, kafka, offsets("ctp,plain,0,7"), "--now", SOON)
    topic_id = parse_partition_metadata(
        (kafka / "plain-0/partition.metadata").read_bytes()
    ).topic_id
    now_ms = 1_795_230_000_000
    assert new_records(groups.home_of(kafka, "ctp")) == [
        (
            1, 4, {"group": "ctp", "topic": "plain", "partition": 0},
            {"offset": 7, "leaderEpoch": -1, "metadata": "", "commitTimestamp": now_ms,
             "topicId": topic_id},
        ),
        (
            2, 3, {"group": "ctp"},
            {"protocolType": "consumer", "generation": 2, "protocol": None, "leader": None,
             "currentStateTimestamp": now_ms, "members": []},
        ),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "version"), [("kafka-3.9.1", 3), ("kafka-2.8.2", 3), ("kafka-1.1.1", 1)]
)
def test_older_releases(
    name: str,
    version: int,
    golden: Callable[[str], Path],
    tmp_path: Path,
    offsets: Callable[..., Path],
    eoctl: Cli,
) -> None:
    """The version that its brokers write; without metadata that of the commits that are there."""
    dirs = [copy_log_dir(golden(name) / each, tmp_path / each) for each in ("one", "two")]
    source = offsets("new,txn,0,0")
    call = ("groups", "import", *dirs, "--from", source, ONE, "--apply")
    outcome = eoctl(*call)
    assert outcome.status == 0, outcome.errors
    home = f"__consumer_offsets-{coordinator_partition('new', 3)}"
    (directory,) = (each / home for each in dirs if (each / home).is_dir())
    ((number, found_version, _, value),) = new_records(directory)
    assert (number, found_version) == (1, version)
    if version == 1:
        assert value["expireTimestamp"] == value["commitTimestamp"] + 7 * 86_400_000


def test_metadata_and_leader_epochs(kafka: Path, tmp_path: Path, eoctl: Cli) -> None:
    """The epoch is said if the log here has it there: another one would be taken for a cut."""
    source = tmp_path / "offsets.jsonl"
    rows = [
        {"group": "new", "topic": "plain", "partition": number, "offset": 5, "leader_epoch": epoch,
         "metadata": "at 5"}
        for number, epoch in ((0, 0), (1, 7))
    ]  # fmt: skip
    source.write_text("\n".join(map(json.dumps, rows)))
    outcome = eoctl("groups", "import", kafka, "--from", source, "--apply", "-o", "jsonl")
    assert "the leader epochs of 1 offset are left out" in " ".join(notes_of(outcome))
    found = exported(eoctl, kafka, "--group", "new")
    assert [(each["leader_epoch"], each["metadata"]) for each in found.values()] == [
        (0, "at 5"), (None, "at 5")
    ]  # fmt: skip


def test_a_file_without_groups(kafka: Path, offsets: Callable[..., Path], eoctl: Cli) -> None:
    source = offsets("plain,0,5")
    outcome = eoctl("groups", "import", kafka, "--from", source)
    assert outcome.status == 2
    assert "the group of its offsets is unknown" in outcome.errors
    bring(eoctl, kafka, source, "--group", "a b")
    assert exported(eoctl, kafka, "--group", "a b").keys() == {("a b", "plain", 0)}


def test_from_a_pipe(kafka: Path) -> None:
    """It is read once; without a broker's lock, and with one that is held."""
    call = f"printf 'new,plain,0,5\\n' | {PROGRAM} groups import {kafka} --from /dev/stdin --apply"
    done = subprocess.run(["sh", "-c", call], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    with held(kafka):
        done = subprocess.run(["sh", "-c", call], capture_output=True, text=True, check=False)
    assert done.returncode == 4
    assert "lock" in done.stderr


def test_some_groups_of_a_file(kafka: Path, offsets: Callable[..., Path], eoctl: Cli) -> None:
    source = offsets("one,plain,0,5", "two,plain,0,6")
    bring(eoctl, kafka, source, "--group", "two")
    assert {key[0] for key in exported(eoctl, kafka)} == {"ctp", "plain-group", "two"}
    assert eoctl("groups", "import", kafka, "--from", source, "--group", "three").status == 2


def test_hostile_names(kafka: Path, tmp_path: Path, eoctl: Cli) -> None:
    """Through CSV and JSON Lines, each in the partition that its hash says."""
    source = tmp_path / "offsets.csv"
    source.write_text("".join(f"{csv_line(name, 'plain', 0, 3)}\n" for name in HOSTILE), newline="")
    bring(eoctl, kafka, source)
    assert {key[0] for key in exported(eoctl, kafka)} == {*HOSTILE, "ctp", "plain-group"}
    listed = eoctl("groups", "list", kafka, "-o", "jsonl")
    for each in rows_of(listed, "group"):
        home = groups.home_of(kafka, each["group"]).name
        assert home == f"__consumer_offsets-{each['coordinator_partition']}"


def test_many_offsets_of_one_group(kafka: Path, tmp_path: Path, eoctl: Cli) -> None:
    """More than a batch may have, by the topic's max.message.bytes."""
    source = tmp_path / "offsets.jsonl"
    rows = (
        {"group": "new", "topic": "plain", "partition": 0, "offset": 1, "metadata": "m" * 30_000},
        *({"group": "new", "topic": f"none-{number}", "partition": 0, "offset": 1,
           "metadata": "m" * 30_000} for number in range(60)),
    )  # fmt: skip
    source.write_text("\n".join(map(json.dumps, rows)))
    shutil.rmtree(kafka / "__cluster_metadata-0")  # which knows none of these topics
    (kafka / "bootstrap.checkpoint").unlink()
    bring(eoctl, kafka, source, ONE, "--outside", "keep")
    assert len(new_records(groups.home_of(kafka, "new"))) == 61
    assert len(exported(eoctl, kafka, "--group", "new")) == 61
    assert eoctl("check", kafka, "--deep").status in (0, 1)


NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=30)


@settings(
    max_examples=examples(6),
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    deadline=None,
)
@given(st.dictionaries(
    st.tuples(NAMES, st.sampled_from([("plain", 0), ("plain", 1), ("txn", 1)])),
    st.tuples(st.integers(0, 170), NAMES), min_size=1, max_size=8,
))  # fmt: skip
def test_export_import_export(
    golden: Callable[[str], Path],
    tmp_path_factory: pytest.TempPathFactory,
    eoctl: Cli,
    wanted: dict[tuple[str, tuple[str, int]], tuple[int, str]],
) -> None:
    """What is exported, brought into another copy and exported again is the same."""
    root = tmp_path_factory.mktemp("round")
    one, other = (copy_log_dir(golden("kafka-4.3.1") / "clean", root / name) for name in "ab")
    lines = root / "lines"
    lines.write_text("\n".join(
        json.dumps({"group": group, "topic": topic, "partition": number, "offset": offset,
                    "metadata": metadata, "leader_epoch": 0})
        for (group, (topic, number)), (offset, metadata) in wanted.items()
    ))  # fmt: skip
    bring(eoctl, one, lines)
    between = root / "between"
    assert eoctl("groups", "export", one, "--to", between, "-o", "jsonl").status == 0
    bring(eoctl, other, between)
    ours, theirs = (exported(eoctl, each) for each in (one, other))
    for found in (*ours.values(), *theirs.values()):
        del found["commit_timestamp_ms"]
    assert ours == theirs
    for (group, place), (offset, metadata) in wanted.items():
        assert (theirs[group, *place]["offset"], theirs[group, *place]["metadata"]) == (
            offset, metadata
        )  # fmt: skip


# --- what is refused ------------------------------------------------------------------------------


def test_offsets_outside_of_their_logs(
    kafka: Path, offsets: Callable[..., Path], eoctl: Cli
) -> None:
    """Shown with the ends of the log; moved to the nearer one, or kept, if that is asked for."""
    (kafka / "log-start-offset-checkpoint").write_text("0\n1\ntrimmed 0 10\n")
    source = offsets("new,plain,0,999", "new,trimmed,0,3", "new,txn,0,5")
    errors = refused(eoctl, kafka, source)
    assert "line 1: 'new' at 999 of plain-0, which has offsets 0..179" in errors
    assert "line 2: 'new' at 3 of trimmed-0, which has offsets 10..300" in errors
    assert f"eoctl groups import {kafka} --from {source} --apply --outside clamp" in errors
    rows = bring(eoctl, kafka, source, "--outside", "clamp")
    assert [(each["committed_offset"], each["taken"]) for each in rows] == [
        (179, "clamped"), (10, "clamped"), (5, "as-given")
    ]  # fmt: skip
    assert eoctl("undo", kafka).status == 0
    rows = bring(eoctl, kafka, source, "--outside", "keep")
    assert [each["committed_offset"] for each in rows] == [999, 3, 5]


def test_partitions_that_are_not_there(
    kafka: Path, offsets: Callable[..., Path], eoctl: Cli
) -> None:
    source = offsets("new,plain,9,1", "new,nothing,0,1", "new,plain,0,1")
    errors = refused(eoctl, kafka, source)
    assert "line 1: the cluster has no plain-9; line 2: the cluster has no nothing-0" in errors
    rows = bring(eoctl, kafka, source, "--skip-unknown")
    assert [each["taken"] for each in rows] == ["skipped", "skipped", "as-given"]
    assert exported(eoctl, kafka, "--group", "new").keys() == {("new", "plain", 0)}


def test_logs_that_are_not_here(
    kafka: Path, tmp_path: Path, offsets: Callable[..., Path], eoctl: Cli
) -> None:
    """Another log dir may have them."""
    source = offsets("new,plain,0,170")
    other = tmp_path / "other"
    other.mkdir()
    shutil.copy2(kafka / "meta.properties", other)
    (kafka / "plain-0").rename(other / "plain-0")
    errors = refused(eoctl, kafka, source)
    assert "line 1: no log of plain-0 is here" in errors
    assert "--logs DIR" in errors
    (row,) = bring(eoctl, kafka, source, "--logs", other)
    assert row["log_end_offset"] == 179
    assert eoctl("undo", kafka).status == 0
    bring(eoctl, kafka, source, "--outside", "keep")


def test_groups_with_members(kafka: Path, offsets: Callable[..., Path], eoctl: Cli) -> None:
    groups.classic_group(kafka, "app", {"plain": [0]})
    source = offsets("app,plain,0,5")
    errors = refused(eoctl, kafka, source)
    assert "'app' has 1 member(s) by its records (app)" in errors
    assert "--apply --consumers-are-stopped" in errors
    bring(eoctl, kafka, source, "--consumers-are-stopped")
    assert [each[0] for each in new_records(groups.home_of(kafka, "app"))] == [1]


def test_groups_of_other_kinds(
    golden: Callable[[str], Path], tmp_path: Path, offsets: Callable[..., Path], eoctl: Cli
) -> None:
    """A consumer group (KIP-848) without members takes offsets and stays one; a share group not."""
    node = tmp_path / "node"
    for name in ("one", "two"):
        copy_log_dir(golden("kafka-4.3.1-two-dirs") / name, node / name)
    one, two = node / "one", node / "two"
    before = exported_of(eoctl, one, two)
    topic, number = next(key[1:] for key in before if key[0] == "next-generation")
    source = offsets(f"shared,{topic},{number},1", f"next-generation,{topic},{number},1")
    outcome = eoctl("groups", "import", one, two, "--from", source, "--single-copy")
    assert outcome.status == 4
    assert "'shared' is a share group" in outcome.errors
    call = ("groups", "import", one, two, "--from", source, "--single-copy",
            "--group", "next-generation", "--consumers-are-stopped", "--apply")  # fmt: skip
    outcome = eoctl(*call)
    assert outcome.status == 0, outcome.errors
    assert exported_of(eoctl, one, two)["next-generation", topic, number] == 1
    listed = eoctl("groups", "list", one, two, "-o", "jsonl")
    kinds = {each["group"]: each["type"] for each in rows_of(listed, "group")}
    assert kinds["next-generation"] == "Consumer"


def exported_of(eoctl: Cli, *log_dirs: Path) -> dict[tuple[str, str, int], int]:
    outcome = eoctl("groups", "export", *log_dirs, "-o", "jsonl")
    assert outcome.status == 0, outcome.errors
    return {
        (each["group"], each["topic"], each["partition"]): each["offset"]
        for each in rows_of(outcome, "group_offset")
    }


def test_a_pending_commit(kafka: Path, offsets: Callable[..., Path], eoctl: Cli) -> None:
    """Clients that ask for stable offsets would wait for its end; others of the group do not matter."""
    groups.pending(kafka, "app", "plain", 0, 5, producer_id=9)
    errors = refused(eoctl, kafka, offsets("app,plain,0,5"))
    assert "plain-0 of 'app' has offset 5 pending in an open transaction of producer 9" in errors
    assert "eoctl txn complete" in errors
    bring(eoctl, kafka, offsets("app,plain,1,5"))


def test_the_home_of_a_group_is_not_here(
    kafka: Path, offsets: Callable[..., Path], eoctl: Cli
) -> None:
    shutil.rmtree(groups.home_of(kafka, "ctp"))
    errors = refused(eoctl, kafka, offsets("ctp,plain,0,5"))
    assert "is not here, which has ctp" in errors
    assert "name the log dir that has it, too" in errors


def test_all_that_is_missing_is_told_at_once(
    kafka: Path, offsets: Callable[..., Path], eoctl: Cli
) -> None:
    """With the call that works, to be pasted."""
    groups.classic_group(kafka, "app", {"plain": [0]})
    shutil.rmtree(kafka / "__cluster_metadata-0")
    (kafka / "bootstrap.checkpoint").unlink()
    source = offsets("app,plain,0,999", "app,plain,1,5")
    errors = refused(eoctl, kafka, source)
    for part in ("has 1 member(s)", "at 999 of plain-0", "its replication factor is unknown"):
        assert part in errors
    call = errors[errors.rindex("eoctl groups import") :].strip()
    outcome = eoctl(*shlex.split(call)[1:])
    assert outcome.status == 0, outcome.errors
    assert exported(eoctl, kafka, "--group", "app")["app", "plain", 0]["offset"] == 179


def test_replicas_get_the_same(
    kafka: Path, tmp_path: Path, offsets: Callable[..., Path], eoctl: Cli
) -> None:
    """In both log dirs, with one way back; replicas that end differently are refused."""
    shutil.rmtree(kafka / "__cluster_metadata-0")
    (kafka / "bootstrap.checkpoint").unlink()
    other = tmp_path / "other"
    shutil.copytree(kafka, other)
    words = (other / "meta.properties").read_text().splitlines()
    kept = [each for each in words if not each.startswith(("node.id", "directory.id"))]
    (other / "meta.properties").write_text("\n".join([*kept, "node.id=2", ""]))
    before = tree_of(kafka), tree_of(other)
    source = offsets("ctp,txn,1,80", "new,plain,0,5")
    call = ("groups", "import", kafka, other, "--from", source, "--apply")
    assert eoctl(*call).status == 0
    assert exported_of(eoctl, kafka) == exported_of(eoctl, other) != {}
    for home in {groups.home_of(kafka, name).name for name in ("ctp", "new")}:
        logs = [sorted((each / home).glob("*.log")) for each in (kafka, other)]
        assert [each.read_bytes() for each in logs[0]] == [each.read_bytes() for each in logs[1]]
    assert eoctl("undo", kafka).status == 0
    assert (difference(before[0], tree_of(kafka)), difference(before[1], tree_of(other))) == (
        [], []
    )  # fmt: skip
    groups.commit(other, "ctp", "txn", 1, 81)
    outcome = eoctl(*call)
    assert outcome.status == 4
    assert "ends differently" in outcome.errors
    assert "eoctl replicas compare" in outcome.errors


def test_damage_is_not_built_upon(kafka: Path, offsets: Callable[..., Path], eoctl: Cli) -> None:
    log = groups.home_of(kafka, "ctp") / f"{0:020d}.log"
    data = bytearray(log.read_bytes())
    data[70] ^= 1
    log.write_bytes(data)
    errors = refused(eoctl, kafka, offsets("ctp,plain,0,5"))
    assert "cannot be read whole" in errors
    assert f"eoctl check {kafka}" in errors


def test_no_topic_for_it(kafka: Path, offsets: Callable[..., Path], eoctl: Cli) -> None:
    for each in kafka.glob("__consumer_offsets-*"):
        shutil.rmtree(each)
    assert "has no __consumer_offsets" in refused(eoctl, kafka, offsets("ctp,plain,0,5"))


def test_wrong_calls(kafka: Path, tmp_path: Path, offsets: Callable[..., Path], eoctl: Cli) -> None:
    source = offsets("g,plain,0,5", "g,plain,0")
    outcome = eoctl("groups", "import", kafka, "--from", source)
    assert outcome.status == 2
    assert f"{source}: line 2: " in outcome.errors
    assert eoctl("groups", "import", kafka, "--from", tmp_path / "gone").status == 3
    assert eoctl("groups", "import", kafka, "--from", kafka).status == 3
    assert eoctl("groups", "import", tmp_path, "--from", offsets("g,plain,0,5")).status == 2
    assert eoctl("groups", "import", kafka).status == 2
    source = offsets("g,plain,0,5")
    assert eoctl("groups", "import", kafka, "--from", source, "--logs", tmp_path / "no").status == 3


def test_in_80_columns(kafka: Path, offsets: Callable[..., Path]) -> None:
    source = offsets("ctp,txn,1,80").name
    shown = in_80_columns("groups", "import", "kafka", "--from", source).splitlines()
    assert shown[0] == "Plan    commit 1 offset of 1 group; 5 files change"
    assert shown[1] == "Loses   no record; groups skip 0 offsets, read 9 again"
