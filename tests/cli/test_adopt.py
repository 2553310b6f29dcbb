"""`eoctl adopt`: what is taken of dead brokers, what is refused, and that it can be taken back."""

from __future__ import annotations

import errno
import os
import re
import shlex
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from storage.dirs.cluster_image import load_bootstrap_image, load_snapshot
from storage.dirs.log_dir import read_log_dir
from storage.file_names import BEGINNING_NAME
from storage.files.fsio import FileSystem
from storage.formats.meta_properties import parse_meta_properties
from storage.formats.partition_metadata import (
    PartitionMetadata,
    encode_partition_metadata,
    format_uuid,
    parse_partition_metadata,
)
from tests.changes import held, rows_of
from tests.crash.trees import difference, leftovers, tree_of
from tests.damage.faults import read_batches
from tests.kafka.broker import copy_log_dir
from tests.terminal import on_terminal

if TYPE_CHECKING:
    from collections.abc import Callable

    from storage.files.fsio import OpenFile
    from tests.running import Outcome

    Cli = Callable[..., Outcome]
    Golden = Callable[[str], Path]

LOG = "00000000000000000000.log"
SMALL = ("txn-0", "txn-1", "compacted-0", "rolled-0", "idem-none-0", "trimmed-0")


@pytest.fixture(autouse=True)
def _in_an_empty_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def dead(golden: Golden) -> Path:
    """A clean log dir without metadata, and of its topics a few."""
    copy_log_dir(golden("kafka-4.3.1") / "clean", Path("dead"))
    for path in Path("dead").iterdir():
        if path.is_dir() and path.name not in SMALL and not path.name.startswith("__t"):
            shutil.rmtree(path)
    return Path("dead")


def three(golden: Golden) -> list[Path]:
    root = golden("kafka-4.3.1-three-brokers") / "diverged"
    return [copy_log_dir(root / f"broker-{n}", Path(f"b{n}")) for n in (1, 2, 3)]


def topic_id_of(partition: Path) -> bytes:
    return parse_partition_metadata((partition / "partition.metadata").read_bytes()).topic_id


def set_topic_id(partition: Path, topic_id: bytes) -> None:
    content = encode_partition_metadata(PartitionMetadata(0, topic_id))
    (partition / "partition.metadata").write_bytes(content)


def test_only_looked_at(dead: Path, eoctl: Cli) -> None:
    before = tree_of(dead, directory_times=True)
    outcome = eoctl("adopt", dead, "--to", "new")
    assert outcome.status == 0, outcome.errors
    assert "this is a plan, nothing was changed: --apply runs it\n" in outcome.errors
    assert not Path("new").exists()
    assert difference(before, tree_of(dead, directory_times=True)) == []
    # Another call would draw other ids.
    assert "a new cluster, for Kafka" in outcome.errors
    assert not re.findall(r"\bcluster [A-Za-z0-9_-]{22}\b", outcome.errors)
    given = eoctl("adopt", dead, "--to", "new", "--cluster-id", "mine")
    assert "cluster mine, for Kafka" in given.errors


def test_the_ids_of_a_plan_are_those_that_are_written(dead: Path, eoctl: Cli) -> None:
    saved = eoctl("adopt", dead, "--to", "new", "--save-plan", "plan")
    applied = eoctl("adopt", dead, "--to", "other", "--apply")
    assert eoctl("apply", "plan").status == 0
    for reported, name in ((saved, "new"), (applied, "other")):
        meta = parse_meta_properties(Path(name, "meta.properties").read_bytes())
        assert f"cluster {meta.cluster_id}, for Kafka" in reported.errors
        assert "drawn" not in reported.errors


@pytest.mark.parametrize("way", ["--copy", "--link"])
def test_what_is_made(way: str, dead: Path, eoctl: Cli) -> None:
    """The files, the checkpoints, the metadata; the sources are what they were."""
    before = tree_of(dead, directory_times=True)
    outcome = eoctl(
        "adopt", dead, "--to", "new", way, "--cluster-id", "mine", "--apply", "-o", "jsonl"
    )
    assert outcome.status == 0, outcome.errors
    assert difference(before, tree_of(dead, directory_times=True)) == []
    new = Path("new")
    meta = parse_meta_properties((new / "meta.properties").read_bytes())
    assert (meta.cluster_id, meta.node_id) == ("mine", 1)
    assert not (new / ".kafka_cleanshutdown").exists()
    image = load_bootstrap_image("new")
    assert image is not None
    for row in rows_of(outcome, "adopted"):
        name = f"{row['topic']}-{row['partition']}"
        placed = image.partition(row["topic"], row["partition"])
        assert placed is not None
        assert (placed.replicas, placed.isr, placed.leader) == ((1,), (1,), 1)
        assert placed.leader_epoch == row["leader_epoch"] > 0
        assert image.topics[row["topic"]].topic_id == topic_id_of(dead / name)
        for path in (dead / name).iterdir():
            assert (new / name / path.name).read_bytes() == path.read_bytes(), path
            is_closed = path.suffix == ".log" and path != max((dead / name).glob("*.log"))
            is_one = path.stat().st_ino == (new / name / path.name).stat().st_ino
            assert is_one == (is_closed and way == "--link"), path
    old, found = read_log_dir(dead), read_log_dir(new)
    keys = {each.topic_partition for each in found.partitions}
    for name in ("recovery_points", "high_watermarks", "log_start_offsets", "cleaner_offsets"):
        kept = {key: at for key, at in (getattr(old, name) or {}).items() if key in keys}
        assert (getattr(found, name) or {}) == kept, name
    assert image.next_producer_id is not None
    assert image.next_producer_id > 1_000_000
    assert eoctl("check", "new", "--fail-on", "error").status == 0


def test_settings_that_delete_nothing(dead: Path, eoctl: Cli) -> None:
    done = eoctl("adopt", dead, "--to", "new", "--apply")
    assert "compacted: its log has the gaps that compaction leaves" in done.errors
    image = load_bootstrap_image("new")
    assert image is not None
    for name in image.topics:
        if not name.startswith("__"):
            assert image.topic_config(name, "retention.ms") == "-1"
            assert image.topic_config(name, "retention.bytes") == "-1"
    assert image.topic_config("compacted", "cleanup.policy") == "compact"
    assert image.topic_config("compacted", "min.compaction.lag.ms") == str(2**63 - 1)
    assert image.topic_config("txn", "cleanup.policy") is None
    assert image.topic_config("__transaction_state", "cleanup.policy") == "compact"


def test_settings_of_the_old_metadata(golden: Golden, dead: Path, eoctl: Cli) -> None:
    """They are taken over; what they delete only if it is asked for."""
    metadata = golden("kafka-4.3.1") / "clean"
    for more, retention in (((), "-1"), (("--keep-retention",), None)):
        target = f"new{len(more)}"
        done = eoctl("adopt", dead, "--to", target, "--metadata-dir", metadata, *more, "--apply")
        assert done.status == 0, done.errors
        image = load_bootstrap_image(target)
        assert image is not None
        assert image.topic_config("compacted", "cleanup.policy") == "compact"
        lag = None if more else str(2**63 - 1)
        assert image.topic_config("compacted", "min.compaction.lag.ms") == lag
        assert image.topic_config("rolled", "segment.bytes") == "1048576"
        assert image.topic_config("rolled", "retention.ms") == retention
        assert "topics of the cluster have no copy here" in done.errors


@pytest.mark.parametrize("release", ["3.9", "4.4"])
def test_a_dynamic_quorum(release: str, dead: Path, eoctl: Cli) -> None:
    """The new node is the only voter, as after `init --standalone`."""
    listener = "CONTROLLER://127.0.0.1:9093"
    words = ("--to", "new", "--standalone", listener, "--broker-version", release, "--apply")
    done = eoctl("adopt", dead, *words)
    assert done.status == 0, done.errors
    assert "controller.quorum.bootstrap.servers=127.0.0.1:9093" in done.errors
    snapshot = load_snapshot(f"new/__cluster_metadata-0/{BEGINNING_NAME}", 0)
    assert snapshot is not None
    meta = parse_meta_properties(Path("new/meta.properties").read_bytes())
    assert meta.node_id is not None
    assert snapshot.voter_directories == {meta.node_id: meta.directory_id}
    assert ("txn" in snapshot.topics) is (release == "4.4")
    checked = eoctl("check", "new", "--fail-on", "error", "--broker-version", release)
    assert checked.status == 0, checked.text


def test_a_release_without_dynamic_quorums(dead: Path, eoctl: Cli) -> None:
    words = ("--to", "new", "--standalone", "CONTROLLER://h:9093", "--broker-version", "3.8")
    done = eoctl("adopt", dead, *words)
    assert done.status == 4
    assert "has no dynamic quorum" in done.errors


def test_preallocated_indexes_are_not_copied(golden: Golden, eoctl: Cli) -> None:
    copy_log_dir(golden("kafka-4.3.1") / "crash", Path("dead"))
    assert eoctl("adopt", "dead", "--to", "new", "--apply").status == 0
    old = Path("dead/txn-0/00000000000000000000.index")
    new = Path("new/txn-0/00000000000000000000.index")
    assert old.stat().st_size == 16384
    assert new.stat().st_size < 1000
    assert old.read_bytes().rstrip(b"\0") == new.read_bytes().rstrip(b"\0")
    before, after = (
        eoctl("consume", f"{each}/txn-0", "-o", "jsonl").text for each in ("dead", "new")
    )
    assert before == after != ""


def test_what_a_start_does_is_told(golden: Golden, eoctl: Cli) -> None:
    copy_log_dir(golden("kafka-4.3.1") / "crash", Path("dead"))
    log = Path("dead/txn-0") / LOG
    log.write_bytes(log.read_bytes() + b"half a batch")
    reported = eoctl("adopt", "dead", "--to", "new").errors
    assert "2 transactions open (open-1, open-2). A start aborts them" in reported
    assert "transaction.abort.timed.out.transaction.cleanup.interval.ms=86400000" in reported


def test_moved_and_taken_back(dead: Path, eoctl: Cli) -> None:
    before = tree_of(dead)
    outcome = eoctl("adopt", dead, "--to", "new", "--move", "--apply")
    assert outcome.status == 0, outcome.errors
    assert [path for path in dead.rglob("*") if path.suffix in {".log", ".index"}] == []
    for name, entry in before.items():
        if name.endswith(".log"):
            assert (Path("new") / name).read_bytes() == entry.data
    [call] = [line for line in outcome.errors.splitlines() if line.endswith("undoes it")]
    assert eoctl(*shlex.split(call)[1:-2]).status == 0
    assert difference(before, tree_of(dead)) == []
    assert [path.name for path in Path("new").iterdir()] == [".lock"]
    assert leftovers(dead) == []


@pytest.mark.parametrize("way", ["--copy", "--link"])
def test_taken_back(way: str, dead: Path, eoctl: Cli) -> None:
    before = tree_of(dead, directory_times=True)
    outcome = eoctl("adopt", dead, "--to", "new", way, "--apply")
    [call] = [line for line in outcome.errors.splitlines() if line.endswith("undoes it")]
    assert eoctl(*shlex.split(call)[1:-2]).status == 0
    assert [path.name for path in Path("new").iterdir()] == [".lock"]
    assert difference(before, tree_of(dead, directory_times=True)) == []
    assert eoctl("adopt", dead, "--to", "new", way, "--apply").status == 0


def test_an_append_does_not_reach_the_source(dead: Path, eoctl: Cli) -> None:
    assert eoctl("adopt", dead, "--to", "new", "--link", "--apply").status == 0
    before = tree_of(dead)
    Path("lines").write_text("a\nb\n")
    for call in (
        "produce new/rolled-0 lines --apply",
        "truncate new/rolled-0 --to-offset 1 --apply",
    ):
        outcome = eoctl(*shlex.split(call))
        assert outcome.status == 0, outcome.errors
    assert difference(before, tree_of(dead)) == []


def test_a_saved_plan(dead: Path, eoctl: Cli) -> None:
    """It is refused when a source has changed since."""
    assert eoctl("adopt", dead, "--to", "new", "--save-plan", "plan").status == 0
    log = dead / "txn-0" / LOG
    kept = log.read_bytes()
    log.write_bytes(kept + b"\0")
    assert eoctl("apply", "plan").status == 4
    log.write_bytes(kept)
    assert eoctl("adopt", dead, "--to", "new", "--save-plan", "second").status == 0
    assert eoctl("apply", "second").status == 0


@pytest.mark.share(2)
@pytest.mark.parametrize("there", ["nothing", "directory", "lock"])
def test_a_stale_plan_leaves_what_was_there(there: str, dead: Path, eoctl: Cli) -> None:
    """Neither a directory nor a lock: nothing was changed, as it says."""
    if there != "nothing":
        Path("new").mkdir()
    if there == "lock":
        Path("new/.lock").touch()
    assert eoctl("adopt", dead, "--to", "new", "--save-plan", "plan").status == 0
    before = tree_of(Path())
    log = dead / "txn-0" / LOG
    kept = log.read_bytes()
    log.write_bytes(kept + b"\0")
    outcome = eoctl("apply", "plan")
    assert outcome.status == 4, outcome.errors
    assert "nothing was changed" in outcome.errors
    log.write_bytes(kept)
    changed = difference(before, tree_of(Path()))
    assert [each for each in changed if not each.endswith("mtime_ns")] == []


def test_no_room_for_the_plan_leaves_nothing(
    dead: Path, eoctl: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Full(FileSystem):
        def write(self, file: OpenFile, data: bytes) -> None:
            if ".eoctl/" in file.path:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            super().write(file, data)

    before = tree_of(Path())
    monkeypatch.setattr("storage.files.fsio.FileSystem", Full)
    for call in (("adopt", dead, "--to", "new"), ("init", "new", "--topic", "t")):
        outcome = eoctl(*call, "--apply")
        assert outcome.status == 3
        assert "nothing was changed" in outcome.errors
        assert not Path("new").exists()
    changed = [each for each in difference(before, tree_of(Path())) if ".eoctl" not in each]
    assert changed == []


# --- several brokers ------------------------------------------------------------------------------


def test_the_copy_that_compare_puts_first(golden: Golden, eoctl: Cli) -> None:
    dirs = three(golden)
    rows = rows_of(eoctl("adopt", *dirs, "--to", "new", "-o", "jsonl"), "adopted")
    best = rows_of(eoctl("replicas", "compare", *dirs, "-o", "jsonl"), "recommendation")
    assert {(e["topic"], e["partition"]): e["source"] for e in rows} == {
        (e["topic"], e["partition"]): e["leader"] for e in best
    }
    [div] = [each for each in rows if each["topic"] == "div"]
    assert (div["source"], div["broker"], div["leader_epoch"]) == ("b2/div-0", 2, 2)
    assert "the others have 33 records more, lost" in div["reason"]


@pytest.mark.parametrize("preferred", ["b1", "b1/div-0"])
def test_another_copy_is_preferred(preferred: str, golden: Golden, eoctl: Cli) -> None:
    """Its leader epoch is above that of every other copy all the same."""
    dirs = three(golden)
    rows = rows_of(
        eoctl("adopt", *dirs, "--to", "new", "--prefer", preferred, "-o", "jsonl"), "adopted"
    )
    [div] = [each for each in rows if each["topic"] == "div"]
    assert (div["source"], div["leader_epoch"], div["log_end_offset"]) == ("b1/div-0", 2, 73)
    outcome = eoctl("adopt", *dirs, "--to", "new", "--prefer", "elsewhere")
    assert outcome.status == 2


def test_two_log_dirs_of_one_node(golden: Golden, eoctl: Cli) -> None:
    root = golden("kafka-4.3.1-two-dirs")
    dirs = [each.parent for each in sorted(root.rglob("meta.properties"))][:2]
    found = eoctl("adopt", *dirs, "--to", "new", "-o", "jsonl")
    assert found.status == 0, found.errors
    both = {Path(each["source"]).parent for each in rows_of(found, "adopted")}
    assert both == set(dirs)


def test_an_older_release(golden: Golden, eoctl: Cli) -> None:
    root = golden("kafka-3.9.1")
    dirs = [each.parent for each in sorted(root.rglob("meta.properties"))]
    done = eoctl("adopt", *dirs, "--to", "new", "--apply", "--fill-holes")
    assert done.status == 0, done.errors
    assert "for Kafka 3.9" in done.errors
    assert eoctl("check", "new", "--broker-version", "3.9").status == 0


# --- what must be said first ----------------------------------------------------------------------


def test_all_that_is_missing_is_named_at_once(dead: Path, eoctl: Cli) -> None:
    """And the call that is told works."""
    (dead / "rolled-0/partition.metadata").unlink()
    shutil.rmtree(dead / "txn-0")
    damaged = dead / "idem-none-0" / LOG
    data = bytearray(damaged.read_bytes())
    data[read_batches(bytes(data))[1].pos + 70] ^= 1
    damaged.write_bytes(data)
    refused = eoctl("adopt", dead, "--to", "new", "--apply")
    assert refused.status == 4
    for words in (
        "rolled: has no single topic id", "txn: of 2 partitions these are not here: 0",
        "dead/idem-none-0: is damaged", "eoctl repair dead/idem-none-0",
        "--fill-holes", "--repair salvage", "--topic-id rolled=",
    ):  # fmt: skip
        assert words in refused.errors
    assert not Path("new").exists()
    call = refused.errors.split("if that is what you want: ")[1].strip()
    assert eoctl(*shlex.split(call)[1:]).status == 0
    assert damaged.read_bytes() == data
    image = load_bootstrap_image("new")
    assert image is not None
    assert set(image.topics["txn"].partitions) == {0, 1}
    assert [each.name for each in Path("new/txn-0").iterdir()] == ["partition.metadata"]
    checked = rows_of(eoctl("check", "new", "--output", "jsonl"), "finding")
    errors = [each for each in checked if each["severity"] == "error"]
    assert [(each["check_id"], each["topic"]) for each in errors] == [("JNL-3", "idem-none")]


def test_a_pipe_in_the_place_of_a_file_is_not_waited_for(dead: Path, eoctl: Cli) -> None:
    (dead / "txn-0/partition.metadata").unlink()
    os.mkfifo(dead / "txn-0/partition.metadata")
    outcome = eoctl("adopt", dead, "--to", "new")
    assert outcome.status == 3
    assert "dead/txn-0/partition.metadata: Not a regular file" in outcome.errors
    outcome = eoctl("produce", dead / "txn-0", os.devnull, "--single-copy")
    assert outcome.status == 3, outcome.errors
    assert "dead/txn-0/partition.metadata: Not a regular file" in outcome.errors


def test_two_ids_of_one_name(dead: Path, eoctl: Cli) -> None:
    """The one that is named counts; copies with the other are left out."""
    right, wrong = topic_id_of(dead / "txn-1"), bytes(range(16))
    set_topic_id(dead / "txn-0", wrong)
    refused = eoctl("adopt", dead, "--to", "new")
    assert refused.status == 4
    assert f"{format_uuid(wrong)}: dead/txn-0; {format_uuid(right)}: dead/txn-1" in refused.errors
    chosen = f"txn={format_uuid(wrong)}"
    done = eoctl("adopt", dead, "--to", "new", "--topic-id", chosen, "--apply", "-o", "jsonl")
    assert done.status == 0, done.errors
    assert [e["partition"] for e in rows_of(done, "adopted") if e["topic"] == "txn"] == [0]
    assert "txn: dead/txn-1: left out, of another topic of that name" in done.errors
    assert topic_id_of(Path("new/txn-0")) == wrong


def test_coordinators_keep_their_number_of_partitions(dead: Path, eoctl: Cli) -> None:
    """Or nobody finds a transactional id any more: its partition follows from that number."""
    shutil.rmtree(dead / "__transaction_state-3")
    refused = eoctl("adopt", dead, "--to", "new")
    assert refused.status == 4
    assert "__transaction_state: with 3 partitions" in refused.errors
    assert "--partitions __transaction_state=4" in refused.errors
    more = ("--partitions", "__transaction_state=4", "--fill-holes")
    assert eoctl("adopt", dead, "--to", "new", *more, "--apply").status == 0
    shutil.rmtree(dead / "__transaction_state-1")
    assert "of 50 partitions these are not here" in eoctl("adopt", dead, "--to", "n").errors


def test_offsets_beyond_the_end(golden: Golden, eoctl: Cli) -> None:
    copy_log_dir(golden("kafka-4.3.1") / "clean", Path("dead"))
    cut = eoctl("truncate", "dead/plain-1", "--to-offset", "3", "--single-copy", "--apply")
    assert cut.status == 0, cut.errors
    outcome = eoctl("adopt", "dead", "--to", "new", "-o", "jsonl")
    groups = eoctl("groups", "describe", "dead", "-o", "jsonl")
    beyond = [e for e in rows_of(groups, "committed_offset") if e["place"] == "beyond-end"]
    reported = [line for line in outcome.errors.splitlines() if "auto.offset.reset decides" in line]
    assert len(reported) == len(beyond) > 0


@pytest.mark.share(11)
@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        ("", 2, "no LOG-DIR given"),
        ("dead", 2, "no --to given"),
        ("dead --to new --link --move", 2, "--link and --move: one of them"),
        ("dead --to new --repair move-away", 2, "needs another replica"),
        ("dead --to new --topic-id txn", 2, "--topic-id txn: "),
        ("dead --to new --topic-id txn=x", 2, "--topic-id txn=x"),
        ("dead --to new --topic-id none=AAAAAAAAAAAAAAAAAAAAAQ", 2, "no partition of that topic"),
        ("dead --to new --topic-id txn=AAAAAAAAAAAAAAAAAAAAAQ", 2, "no copy has that id"),
        ("dead --to new --partitions txn=1", 2, "partition 1 of it is here"),
        ("dead --to new --partitions txn=x", 2, "NAME=N is needed"),
        ("dead --to new --partitions txn=1000000", 2, "at most 100000"),
        ("dead --to new --prefer dead/nothing", 2, "no copy that could be taken"),
        ("dead --to new --with-security", 4, "no __cluster_metadata-0 there"),
        ("dead --to new --cluster-id ''", 2, "letters, digits"),
        ("dead --to new --broker-version 3.2", 4, "reads no bootstrap.checkpoint"),
        ("none --to new", 3, "No such file"),
        ("empty --to new", 3, "neither a log dir nor a partition"),
        ("dead --to dead/new", 4, "lies outside of others"),
        ("dead --to dead", 4, "is a log dir already"),
        ("dead --to full", 4, "is not empty"),
        ("dead other --to new", 2, "these are of different clusters"),
        ("dead --to none/new", 2, "there is no directory"),
    ],
)
def test_refused(words: str, status: int, said: str, dead: Path, eoctl: Cli) -> None:
    Path("empty").mkdir()
    Path("full").mkdir()
    Path("full/a").touch()
    assert eoctl("init", "other", "--topic", "t", "--no-internal-topics", "--apply").status == 0
    before = tree_of(dead)
    for more in ((), ("--apply",)):
        outcome = eoctl("adopt", *shlex.split(words), *more)
        assert outcome.status == status, outcome.errors
        assert said in outcome.errors
        assert outcome.text == ""
        assert not Path("new").exists()
    assert difference(before, tree_of(dead)) == []


def test_a_broker_that_runs(dead: Path, eoctl: Cli) -> None:
    (dead / ".lock").touch()
    with held(dead):
        outcome = eoctl("adopt", dead, "--to", "new", "--apply")
    assert outcome.status == 4
    assert "in use by" in outcome.errors


def test_a_disk_that_is_too_small(dead: Path, eoctl: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    full = os.statvfs_result((4096, 4096, 100, 10, 10, 0, 0, 0, 0, 255))
    monkeypatch.setattr("recovery.new_log_dir.adoption.os.statvfs", lambda _: full)
    outcome = eoctl("adopt", dead, "--to", "new")
    assert outcome.status == 4
    assert "bytes are needed there, 40,960 are free" in outcome.errors


def test_links_reach_no_other_disk(dead: Path, eoctl: Cli, other_disk: Path) -> None:
    target = other_disk / "new"
    for way in ("--link", "--move"):
        outcome = eoctl("adopt", dead, "--to", target, way, "--apply")
        assert outcome.status == 4
        assert f"where {way} cannot reach" in outcome.errors
        assert not target.exists()


def test_set_aside_directories_are_told(dead: Path, eoctl: Cli) -> None:
    name = f"txn-5.{'0' * 32}-stray"
    (dead / "txn-1").rename(dead / name)
    outcome = eoctl("adopt", dead, "--to", "new")
    assert outcome.status == 0, outcome.errors
    assert f"dead/{name}: left out, a broker had set it aside" in outcome.errors


def test_users_and_acls(golden: Golden, eoctl: Cli) -> None:
    """The last word of each, as it was written; only if asked for."""
    from recovery.new_log_dir.records import encode_bootstrap
    from storage.formats import cluster_metadata as records

    copy_log_dir(golden("kafka-4.3.1") / "clean", Path("dead"))
    user = {"name": "u", "mechanism": 1, "salt": b"s", "storedKey": b"k", "serverKey": b"v"}
    acl = {
        "id": bytes(range(16)), "resourceType": 2, "resourceName": "t", "patternType": 3,
        "principal": "User:u", "host": "*", "operation": 3, "permissionType": 3,
    }  # fmt: skip
    gone = records.encode_record(records.ACCESS_CONTROL_ENTRY, 0, acl | {"id": bytes(16)})
    values = [
        records.encode_record(records.USER_SCRAM_CREDENTIAL, 0, user | {"iterations": 4096}),
        records.encode_record(records.USER_SCRAM_CREDENTIAL, 0, user | {"iterations": 8192}),
        gone,
        records.encode_record(records.ACCESS_CONTROL_ENTRY, 0, acl),
        records.encode_record(records.REMOVE_ACCESS_CONTROL_ENTRY, 0, {"id": bytes(16)}),
    ]
    metadata = Path("dead/__cluster_metadata-0")
    for path in metadata.glob("*.checkpoint"):
        path.unlink()
    (metadata / "00000000000000000001-0000000001.checkpoint").write_bytes(
        encode_bootstrap(values, 0)
    )
    for more in ((), ("--with-security",)):
        done = eoctl("adopt", "dead", "--to", f"new{len(more)}", *more, "--apply", "--fill-holes")
        assert done.status == 0, done.errors
        dumped = eoctl(
            "dump-segment", f"new{len(more)}/bootstrap.checkpoint", "--cluster-metadata-decoder"
        ).text
        words = ("USER_SCRAM", '"ACCESS_CONTROL', '"iterations":8192')
        counts = [dumped.count(each) for each in words]
        assert counts == ([1, 1, 1] if more else [0, 0, 0])


def test_for_people(dead: Path) -> None:
    shown = on_terminal("adopt", "dead", "--to", "new")
    assert "Plan    make new with 6 topics" in shown.text
    assert "Next    eoctl adopt dead --to new --apply" in shown.text


def test_a_file_that_cannot_be_written(
    dead: Path, eoctl: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of several that are written at once: what was begun is finished, or taken back."""
    before = tree_of(dead)

    class Full(FileSystem):
        def write(self, file: OpenFile, data: bytes) -> None:
            if "/new/rolled-0/" in file.path:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            super().write(file, data)

    with monkeypatch.context() as patched:
        patched.setattr("storage.files.fsio.FileSystem", Full)
        outcome = eoctl("adopt", dead, "--to", "new", "--move", "--apply")
    assert outcome.status == 3
    assert "No space left on device" in outcome.errors
    assert not Path("new/meta.properties").exists()
    [journal] = Path("new.eoctl").iterdir()
    assert eoctl("undo", journal).status == 0
    assert difference(before, tree_of(dead)) == []
    with monkeypatch.context() as patched:
        patched.setattr("storage.files.fsio.FileSystem", Full)
        assert eoctl("adopt", dead, "--to", "new", "--apply").status == 3
    again = eoctl("adopt", dead, "--to", "new", "--apply")
    assert again.status == 0, again.errors
    assert "completed what an earlier run began" in again.errors
    assert eoctl("check", "new", "--fail-on", "error").status == 0


def test_a_directory_that_was_kept_beside_its_like(dead: Path, eoctl: Cli) -> None:
    """By its name it is a topic; by its id it is none of its own."""
    shutil.copytree(dead / "txn-0", dead / "txn-0-old-0")
    refused = eoctl("adopt", dead, "--to", "new", "--apply")
    assert refused.status == 4
    assert "txn-0-old and txn have one topic id" in refused.errors or (
        "txn and txn-0-old have one topic id" in refused.errors
    )
    assert not Path("new").exists()


@pytest.mark.parametrize("name", ["a b", "..", "x\ny", "\udcff", "\u0430", "a" * 250])
def test_a_name_that_no_topic_can_have(name: str, dead: Path, eoctl: Cli) -> None:
    """No client could ask for it."""
    shutil.copytree(dead / "txn-0", dead / f"{name}-0")
    set_topic_id(dead / f"{name}-0", bytes(range(16)))
    refused = eoctl("adopt", dead, "--to", "new", "--apply")
    assert refused.status == 4
    assert b"no topic can have that name" in refused.stderr
    assert not Path("new").exists()


def test_offsets_in_an_empty_partition(golden: Golden, eoctl: Cli) -> None:
    copy_log_dir(golden("kafka-4.3.1") / "clean", Path("dead"))
    shutil.rmtree("dead/plain-1")
    outcome = eoctl("adopt", "dead", "--to", "new", "--fill-holes")
    assert outcome.status == 0, outcome.errors
    assert "has 200 committed for plain-1, whose log ends at 0" in outcome.errors
    assert "plain: empty, as no copy of it is here: 1" in outcome.errors


def test_a_segment_without_its_bytes(dead: Path, eoctl: Cli) -> None:
    """What a repair makes nothing of is told as lost all the same."""
    (dead / "rolled-0" / LOG).write_bytes(b"")
    assert eoctl("adopt", dead, "--to", "new").status == 4
    outcome = eoctl("adopt", dead, "--to", "new", "--repair", "salvage")
    assert outcome.status == 0, outcome.errors
    assert f"rolled-0/{LOG}: offsets 0 to 24 (25) are missing" in outcome.errors


def leave_swaps(partition: Path, *, old: str) -> None:
    """New segments for the first two, as a compaction leaves them that was cut short."""
    for base in ("00000000000000000000", "00000000000000000025"):
        for kind in ("log", "index", "timeindex"):
            path = partition / f"{base}.{kind}"
            shutil.copy(path, f"{path}.swap")
            if old == "none" or (old == "second" and base.endswith("0")):
                path.rename(f"{path}.deleted")


@pytest.mark.share(3)
@pytest.mark.parametrize("way", ["--copy", "--link", "--move"])
@pytest.mark.parametrize("old", ["all", "second", "none"])
def test_a_compaction_that_did_not_end(old: str, way: str, dead: Path, eoctl: Cli) -> None:
    """What it made is taken as it is, for the first start to end it; and it goes back."""
    leave_swaps(dead / "rolled-0", old=old)
    before = tree_of(dead)
    done = eoctl("adopt", dead, "--to", "new", way, "--apply", "-o", "jsonl")
    assert done.status == 0, done.errors
    [row] = [each for each in rows_of(done, "adopted") if each["topic"] == "rolled"]
    assert (row["log_start_offset"], row["log_end_offset"]) == (0, 60)
    assert (
        "rolled-0: a compaction did not end there. A start replaces old segments by 2 new"
        in done.errors
    )
    assert "are lost" not in done.errors.replace("which records are lost, new or changed", "")
    for name, entry in before.items():
        if name.startswith("rolled-0/") and name.endswith(".swap"):
            assert (Path("new") / name).read_bytes() == entry.data
            assert (dead / name).exists() == (way != "--move")
    assert [*Path("new/rolled-0").glob("*.deleted")] == []
    [journal] = Path("new.eoctl").iterdir()
    assert eoctl("undo", journal).status == 0
    assert difference(before, tree_of(dead)) == []


def test_what_a_compaction_had_not_made_whole(dead: Path, eoctl: Cli) -> None:
    """By a `.cleaned` a broker throws the `.swap` files from there on away; a damaged one is told."""
    leave_swaps(dead / "rolled-0", old="all")
    cleaned = dead / "rolled-0/00000000000000000025.log.cleaned"
    cleaned.touch()
    assert eoctl("adopt", dead, "--to", "new", "--apply").status == 0
    names = {each.name for each in Path("new/rolled-0").iterdir() if each.suffix != ".index"}
    assert "00000000000000000000.log.swap" in names
    assert not names & {"00000000000000000025.log.swap", cleaned.name}
    cleaned.unlink()
    swap = dead / "rolled-0/00000000000000000000.log.swap"
    data = bytearray(swap.read_bytes())
    data[read_batches(bytes(data))[1].pos + 70] ^= 1
    swap.write_bytes(data)
    refused = eoctl("adopt", dead, "--to", "other")
    assert refused.status == 4
    assert f"{swap}: position" in refused.errors
    assert "left by a compaction that did not end, and damaged there" in refused.errors


def test_nothing_is_known_of_a_topic(dead: Path, eoctl: Cli) -> None:
    for number in (0, 2):
        (dead / f"bare-{number}").mkdir()
    refused = eoctl("adopt", dead, "--to", "new").errors
    assert "bare: has no single topic id" in refused
    assert "bare: of 3 partitions these are not here: 1" in refused
    call = refused.split("if that is what you want: ")[1].strip()
    assert eoctl(*shlex.split(call)[1:]).status == 0
