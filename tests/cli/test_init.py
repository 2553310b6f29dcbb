"""`eoctl init`: what it makes, what is refused, and that all of it can be taken back."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from storage.dirs.cluster_image import load_bootstrap_image, load_snapshot
from storage.file_names import BEGINNING_NAME
from storage.formats.meta_properties import RESERVED_DIRECTORY_IDS, parse_meta_properties
from storage.formats.partition_metadata import parse_partition_metadata, parse_uuid
from tests.changes import rows_of
from tests.terminal import on_terminal

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.running import Outcome

    Cli = Callable[..., Outcome]

ALONE = "--no-internal-topics"


@pytest.fixture(autouse=True)
def _in_an_empty_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def names(path: str) -> list[str]:
    return sorted(each.name for each in Path(path).iterdir())


def test_only_looked_at(eoctl: Cli) -> None:
    """Another call would draw other ids: those of this one are not shown as if they were written."""
    outcome = eoctl("init", "kafka", "--topic", "a:2", "--output", "jsonl")
    assert outcome.status == 0, outcome.errors
    assert "this is a plan, nothing was changed: --apply runs it" in outcome.errors
    assert not Path("kafka").exists()
    assert {row["topic_id"] for row in rows_of(outcome, "topic")} == {None}
    assert not re.findall(r"\b[A-Za-z0-9_-]{22}\b", outcome.text + outcome.errors)
    assert "a new cluster, for Kafka" in outcome.errors
    assert "--save-plan FILE" in outcome.errors
    given = eoctl("init", "kafka", "--topic", "a:2", "--cluster-id", "mine")
    assert "cluster mine, for Kafka" in given.errors


def test_what_is_applied_is_told(eoctl: Cli) -> None:
    outcome = eoctl("init", "k", "--topic", "t", ALONE, "--apply", "--output", "jsonl")
    (row,) = rows_of(outcome, "topic")
    image = load_bootstrap_image("k")
    assert image is not None
    assert image.topics["t"].topic_id == parse_uuid(row["topic_id"])
    meta = parse_meta_properties(Path("k/meta.properties").read_bytes())
    assert f"cluster {meta.cluster_id}, for Kafka" in outcome.errors
    assert "drawn" not in outcome.errors


def test_what_is_made(eoctl: Cli) -> None:
    outcome = eoctl(
        "init", "kafka", "--topic", "a.b:2", "--topic", "c", "--config", "c:cleanup.policy=compact",
        "--config", "c:segment.bytes=1048576", "--node-id", "3", "--cluster-id", "mine", ALONE,
        "--apply", "--output", "jsonl",
    )  # fmt: skip
    assert outcome.status == 0, outcome.errors
    rows = rows_of(outcome, "topic")
    assert [(each["topic"], each["partitions_count"], each["applied"]) for each in rows] == [
        ("a.b", 2, True), ("c", 1, True),
    ]  # fmt: skip
    assert names("kafka") == [
        ".lock", "__cluster_metadata-0", "a.b-0", "a.b-1", "c-0", "meta.properties",
    ]  # fmt: skip
    assert names("kafka/__cluster_metadata-0") == [BEGINNING_NAME]
    meta = parse_meta_properties(Path("kafka/meta.properties").read_bytes())
    assert (meta.version, meta.cluster_id, meta.node_id) == (1, "mine", 3)
    image = load_bootstrap_image("kafka")
    assert image is not None
    assert image.is_complete
    for row in rows:
        topic = image.topics[row["topic"]]
        assert topic.topic_id == parse_uuid(row["topic_id"])
        assert len(topic.partitions) == row["partitions_count"]
        for number, partition in topic.partitions.items():
            assert (partition.replicas, partition.isr, partition.leader) == ((3,), (3,), 3)
            assert partition.directories == (meta.directory_id,)
            data = Path(f"kafka/{topic.name}-{number}/partition.metadata").read_bytes()
            assert parse_partition_metadata(data).topic_id == topic.topic_id
    assert image.topic_config("c", "cleanup.policy") == "compact"
    assert image.topic_config("a.b", "cleanup.policy") is None
    assert rows[1]["settings"] == "cleanup.policy=compact,segment.bytes=1048576"


@pytest.mark.share(2)
@pytest.mark.parametrize(
    ("release", "has_directory_id", "version"),
    [("3.3", False, 0), ("3.6", False, 0), ("3.7", True, 1), ("4.0", True, 2), ("4.3", True, 2)],
)
def test_older_releases(release: str, has_directory_id: bool, version: int, eoctl: Cli) -> None:
    done = eoctl("init", "k", "--topic", "t", "--broker-version", release, "--apply")
    assert done.status == 0, done.errors
    meta = parse_meta_properties(Path("k/meta.properties").read_bytes())
    assert (meta.directory_id is not None) == has_directory_id
    assert not Path("k/__cluster_metadata-0").exists()
    dumped = eoctl("dump-segment", "k/bootstrap.checkpoint", "--cluster-metadata-decoder")
    assert f'"type":"PARTITION_RECORD","version":{version},' in dumped.text
    assert eoctl("check", "k", "--broker-version", release).status == 0


def test_nothing_more_is_asked_for_there(eoctl: Cli) -> None:
    """Factor, topic ids and settings are known; a topic that is not there is none."""
    assert eoctl("init", "k", "--topic", "t:2", "--apply").status == 0
    Path("lines").write_text("a\nb\n")
    for call in (
        "produce k/t-0 lines --apply",
        "produce k/t-1 lines --transactional-id x --apply",
        "copy k/t-0 k/t-1 --apply",
        "lease-pid acquire k --app-id a --expiry-ms 60000",
        "txn run k/t-0 --to k/t-1 --exec cat --transactional-id y --group g",
        "check k --deep",
        "truncate k/t-0 --to-offset 1 --apply",
    ):
        outcome = eoctl(*shlex.split(call))
        assert outcome.status == 0, (call, outcome.errors)
    refused = eoctl("produce", "k/other-0", "lines")
    assert refused.status == 4
    assert "does not know the topic" in refused.errors
    assert "has partitions 0, 1" in eoctl("produce", "k/t-2", "lines").errors


@pytest.mark.parametrize("release", ["3.9", "4.3", "4.4"])
def test_a_dynamic_quorum(release: str, eoctl: Cli) -> None:
    """The voter is in a snapshot of offset 0; before 4.4 the rest is in bootstrap.checkpoint."""
    listener = "CONTROLLER://[::1]:9093"
    words = ("--standalone", listener, "--broker-version", release, "--node-id", "4")
    done = eoctl("init", "k", "--topic", "t", *words, "--apply")
    assert done.status == 0, done.errors
    assert "controller.quorum.bootstrap.servers=[::1]:9093 in server.properties" in done.errors
    snapshot = load_snapshot(f"k/__cluster_metadata-0/{BEGINNING_NAME}", 0)
    assert snapshot is not None
    assert snapshot.voters == (4,)
    meta = parse_meta_properties(Path("k/meta.properties").read_bytes())
    assert snapshot.voter_directories == {4: meta.directory_id}
    assert Path("k/bootstrap.checkpoint").exists() is (release != "4.4")
    assert ("t" in snapshot.topics) is (release == "4.4")
    checked = eoctl("check", "k", "--deep", "--broker-version", release)
    assert checked.status == 0, checked.text
    assert "0 errors, 0 warnings, 0 notes" in checked.errors
    journal = next(Path("k.eoctl").iterdir())
    assert eoctl("undo", journal).status == 0
    assert names("k") == [".lock"]


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        ("--standalone 127.0.0.1:9093", 2, "no listener of a controller"),
        ("--standalone CONTROLLER://h:0", 2, "no listener of a controller"),
        ("--standalone CONTROLLER://h:9093 --broker-version 3.8", 4, "has no dynamic quorum"),
    ],
)
def test_no_dynamic_quorum(words: str, status: int, said: str, eoctl: Cli) -> None:
    outcome = eoctl("init", "k", *words.split())
    assert (outcome.status, said in outcome.errors) == (status, True), outcome.errors


def test_features_alone_are_no_topics(eoctl: Cli) -> None:
    """As every formatted log dir has them: they say nothing about the topics of a cluster."""
    assert eoctl("init", "k", ALONE, "--apply").status == 0
    assert load_bootstrap_image("k") is None
    Path("lines").write_text("a\n")
    outcome = eoctl("produce", "k/t-0", "lines")
    assert "without the cluster's metadata the id of its topic is unknown" in outcome.errors


def test_a_metadata_log_counts_for_more(golden: Callable[[str], Path], eoctl: Cli) -> None:
    """Once a controller has begun its log, what it began with is history."""
    from tests.kafka.broker import copy_log_dir

    copy_log_dir(golden("kafka-4.3.1") / "clean", Path("clean"))
    older = ("--broker-version", "4.3")
    assert eoctl("init", "k", "--topic", "plain:9", ALONE, *older, "--apply").status == 0
    Path("clean/bootstrap.checkpoint").write_bytes(Path("k/bootstrap.checkpoint").read_bytes())
    Path("lines").write_text("a\n")
    assert "the topic has partitions 0" in eoctl("produce", "clean/plain-8", "lines").errors


def test_taken_back(eoctl: Cli) -> None:
    outcome = eoctl("init", "k", "--topic", "t:3", "--apply")
    [call] = [line for line in outcome.errors.splitlines() if line.endswith("undoes it")]
    assert eoctl(*shlex.split(call)[1:-2]).status == 0
    assert names("k") == [".lock"]
    assert eoctl("init", "k", "--topic", "t:3", "--apply").status == 0


def test_not_taken_back_with_something_in_it(eoctl: Cli) -> None:
    assert eoctl("init", "k", "--topic", "t:3", "--apply").status == 0
    Path("k/t-1/notes").write_text("mine")
    [journal] = Path("k.eoctl").iterdir()
    outcome = eoctl("undo", journal)
    assert outcome.status == 4
    assert "k/t-1/notes: is no file of a partition" in outcome.errors
    Path("k/t-1/notes").unlink()
    Path("k/t-1/00000000000000000000.log").touch()
    outcome = eoctl("undo", journal)
    assert outcome.status == 4
    assert "was not there when the plan was begun" in outcome.errors
    Path("k/t-1/00000000000000000000.log").unlink()
    assert eoctl("undo", journal).status == 0


def test_a_saved_plan_keeps_its_ids(eoctl: Cli) -> None:
    saved = eoctl("init", "k", "--topic", "t", "--save-plan", "plan", "--output", "jsonl")
    assert saved.status == 0, saved.errors
    assert eoctl("apply", "plan").status == 0
    image = load_bootstrap_image("k")
    assert image is not None
    ids = {row["topic"]: parse_uuid(row["topic_id"]) for row in rows_of(saved, "topic")}
    assert {name: each.topic_id for name, each in image.topics.items()} == ids
    meta = parse_meta_properties(Path("k/meta.properties").read_bytes())
    assert f"cluster {meta.cluster_id}, for Kafka" in saved.errors
    assert "drawn" not in saved.errors
    again = eoctl("apply", "plan")
    assert again.status == 0
    assert "had been applied before" in again.errors


def test_ids(eoctl: Cli) -> None:
    first, second = (json.loads(eoctl("init", "--ids", "--output", "jsonl").text) for _ in range(2))
    for name in ("topic_id", "cluster_id", "directory_id"):
        assert first[name] != second[name]
        assert int.from_bytes(parse_uuid(first[name]), "big") >= RESERVED_DIRECTORY_IDS
    assert eoctl("init", "k", "--ids").status == 2


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        ("", 2, "no LOG-DIR given"),
        ("k --topic a --topic a", 2, "is given twice"),
        ("k --topic a.b --topic a_b", 2, "collides with a.b"),
        ("k --topic a:0", 2, "no number of partitions"),
        ("k --topic a:x", 2, "no number of partitions"),
        ("k --topic 'a b'", 2, "no name of a topic"),
        ("k --topic a:1000000", 2, "at most 100000 in one log dir"),
        ("k --topic __cluster_metadata", 2, "the controller makes"),
        ("k --config a:retention.ms=1", 2, "a is none of the topics"),
        ("k --topic a --config a:retention.ms", 2, "TOPIC:KEY=VALUE is needed"),
        ("k --topic a --config retention.ms=1", 2, "TOPIC:KEY=VALUE is needed"),
        ("k --topic a --config a:retention=1", 2, "retention: no setting of a topic"),
        ("k --topic a --config a:retention.ms=-2", 2, "a broker takes -1 to"),
        ("k --topic a --config a:retention.ms=1h", 2, "a broker takes -1 to"),
        ("k --topic a --config a:cleanup.policy=compacted", 2, "delete or compact"),
        ("k --topic a --config a:min.cleanable.dirty.ratio=2", 2, "a broker takes 0 to 1"),
        ("k --topic a --config a:preallocate=yes", 2, "true or false"),
        ("k --cluster-id ''", 2, "letters, digits"),
        ("k --directory-id x", 2, "--directory-id"),
        ("k --directory-id AAAAAAAAAAAAAAAAAAAAAQ", 2, "is one that Kafka has reserved"),
        ("k --broker-version 3.2", 4, "reads no bootstrap.checkpoint"),
        ("k --broker-version 9.9", 2, "nothing is known of it"),
        ("k --topic a:20000 --broker-version 3.5", 4, "takes 10000 to begin with"),
        ("none/k", 2, "there is no directory"),
        ("file", 2, "is no directory"),
        ("full", 4, "is not empty: a and 1 more"),
        ("made", 4, "is a log dir already"),
        ("made/k", 4, "lies outside of others"),
        ("made/t-0", 4, "is not empty: partition.metadata"),
    ],
)
def test_refused(words: str, status: int, said: str, eoctl: Cli) -> None:
    Path("file").touch()
    Path("full").mkdir()
    Path("full/a").touch()
    Path("full/lost+found").mkdir()
    assert eoctl("init", "made", "--topic", "t", ALONE, "--apply").status == 0
    for more in ((), ("--apply",)):
        outcome = eoctl("init", *shlex.split(words), *more)
        assert outcome.status == status, outcome.errors
        assert said in outcome.errors
        assert outcome.text == ""
        assert not Path("k").exists()


def test_for_people() -> None:
    shown = on_terminal("init", "kafka", "--topic", "orders:3")
    assert "Plan    make kafka with 4 topics, 104 partitions" in shown.text
    assert "Next    eoctl init kafka --topic orders:3 --apply" in shown.text
