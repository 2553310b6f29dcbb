"""Partition directories against the cluster's metadata: real ones, and planted contradictions."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from recovery.checks.context.broker_version import parse_broker_version
from recovery.checks.context.collector import Collector
from recovery.checks.log_dirs.log_dirs import check_against_cluster
from recovery.cluster.clusters import Clusters
from recovery.rules.findings import Finding, Severity
from storage.dirs.discovery import discover, select_partition
from storage.dirs.partition import Partition

if TYPE_CHECKING:
    from collections.abc import Callable

STATES = ["clean", "crash", "recovered", "hard", "hard-clean", "tv2", "tv2-clean"]
REFUSES = "refuses to start"
OFFLINE = "takes this log dir offline; without another log dir it stops"
STRAY = "renames the directory to -stray and does not serve it, unless newer metadata differ"


def findings_of(log_dir: Path, name: str = "", version: str = "") -> list[Finding]:
    """Check all partitions of a log dir, or one, against the metadata log in it."""
    found = discover([log_dir])
    clusters = Clusters(found.log_dirs)
    collector = Collector()
    release = parse_broker_version(version) if version else None
    for selected in found.selected:
        if name in {"", Path(selected.partition.path).name}:
            image = clusters.image_for(selected.log_dir)
            check_against_cluster(Partition.of(selected), image, collector, release)
    return collector.kept


@pytest.fixture
def log_dir(golden: Callable[[str], Path], tmp_path: Path) -> Path:
    """Some partitions of a crashed broker, and its metadata."""
    source, target = golden("kafka-4.3.1") / "crash", tmp_path / "d"
    target.mkdir()
    shutil.copyfile(source / "meta.properties", target / "meta.properties")
    for name in ("__cluster_metadata-0", "plain-0", "plain-1", "idem-none-0"):
        shutil.copytree(source / name, target / name, copy_function=shutil.copyfile)
        (target / name).chmod(0o755)
    return target


def topic_id_of(path: Path) -> str:
    return (path / "partition.metadata").read_text().split()[-1]


def the_one(findings: list[Finding], path: Path) -> Finding:
    (finding,) = findings
    assert finding.check_id == "DIR-4"
    assert finding.path == str(path / "partition.metadata")
    return finding


# --- real directories -----------------------------------------------------------------------------


@pytest.mark.parametrize("state", STATES)
def test_one_node(golden: Callable[[str], Path], state: str) -> None:
    assert findings_of(golden("kafka-4.3.1") / state) == []


@pytest.mark.parametrize("state", ["diverged", "after"])
def test_three_nodes(golden: Callable[[str], Path], state: str) -> None:
    root = golden("kafka-4.3.1-three-brokers") / state
    for node in (1, 2, 3):
        assert findings_of(root / f"broker-{node}") == []


def test_before_topic_ids(golden: Callable[[str], Path]) -> None:
    assert findings_of(golden("kafka-0.10.2-legacy")) == []


# --- planted --------------------------------------------------------------------------------------


def test_the_copy_is_sound(log_dir: Path) -> None:
    assert findings_of(log_dir) == []


@pytest.mark.parametrize(
    "text, pos, action",
    [
        ("", 0, REFUSES),
        ("version: 0\n", 11, REFUSES),
        ("version: x\ntopic_id: AAECAwQFBgcICQoLDA0ODw", 0, OFFLINE),
        ("version: -1\ntopic_id: AAECAwQFBgcICQoLDA0ODw", 0, OFFLINE),
        ("version: 0\ntopic_id: AAECAwQFBgcICQoLDA0O", 11, REFUSES),
        ("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA", 11, OFFLINE),
        ("version 0\ntopic_id: AAECAwQFBgcICQoLDA0ODw", 0, OFFLINE),
    ],
)
def test_damaged(log_dir: Path, text: str, pos: int, action: str) -> None:
    """A broker 4.3.1 does not start with those of a missing line or no UUID."""
    (log_dir / "plain-0" / "partition.metadata").write_text(text)
    finding = the_one(findings_of(log_dir), log_dir / "plain-0")
    assert (finding.severity, finding.start_pos) == (Severity.ERROR, pos)
    assert finding.broker_action == action
    # It is read in directories that are set aside, too.
    aside = log_dir / f"plain-0.{'0' * 32}-delete"
    (log_dir / "plain-0").rename(aside)
    the_one(findings_of(log_dir), aside)


def test_missing(log_dir: Path) -> None:
    (log_dir / "plain-0" / "partition.metadata").unlink()
    finding = the_one(findings_of(log_dir), log_dir / "plain-0")
    assert (finding.severity, finding.broker_action) == (Severity.WARNING, STRAY)
    shutil.rmtree(log_dir / "__cluster_metadata-0")  # its meta.properties is KRaft's all the same
    the_one(findings_of(log_dir), log_dir / "plain-0")


def test_missing_of_a_log_without_data(log_dir: Path) -> None:
    """What a crash right after the creation of a partition leaves."""
    (log_dir / "plain-0" / "partition.metadata").unlink()
    for path in (log_dir / "plain-0").glob("*.log"):
        path.write_bytes(b"")
    finding = the_one(findings_of(log_dir), log_dir / "plain-0")
    assert finding.severity is Severity.NOTE


def test_of_an_earlier_topic_of_that_name(log_dir: Path) -> None:
    path = log_dir / "plain-0" / "partition.metadata"
    own = topic_id_of(path.parent)
    path.write_text(path.read_text().replace(own, "AAECAwQFBgcICQoLDA0ODw"))
    finding = the_one(findings_of(log_dir), path.parent)
    assert (finding.severity, finding.broker_action) == (Severity.ERROR, STRAY)
    assert (finding.expected, finding.found) == (own, "AAECAwQFBgcICQoLDA0ODw")


def test_of_another_topic(log_dir: Path) -> None:
    path = log_dir / "plain-0" / "partition.metadata"
    shutil.copyfile(log_dir / "idem-none-0" / "partition.metadata", path)
    finding = the_one(findings_of(log_dir), path.parent)
    assert finding.severity is Severity.ERROR
    assert (finding.expected, finding.found) == ("plain", "idem-none")


def test_of_no_topic(log_dir: Path) -> None:
    path = log_dir / "new-0"
    shutil.copytree(log_dir / "plain-0", path)
    (path / "partition.metadata").write_text("version: 0\ntopic_id: AAECAwQFBgcICQoLDA0ODw")
    finding = the_one(findings_of(log_dir), path)
    assert (finding.severity, finding.broker_action) == (Severity.WARNING, STRAY)
    assert finding.found == "AAECAwQFBgcICQoLDA0ODw"


def test_a_partition_that_the_topic_does_not_have(log_dir: Path) -> None:
    (log_dir / "plain-0").rename(log_dir / "plain-7")
    finding = the_one(findings_of(log_dir), log_dir / "plain-7")
    assert (finding.severity, finding.broker_action) == (Severity.WARNING, STRAY)
    assert (finding.expected, finding.found) == ("2 partitions", "7")


def test_a_directory_that_was_set_aside(log_dir: Path) -> None:
    (log_dir / "plain-0").rename(log_dir / f"plain-7.{'0' * 32}-stray")
    assert findings_of(log_dir) == []


def change_meta(log_dir: Path, key: str, value: str) -> None:
    path = log_dir / "meta.properties"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(f"{key}={value}\n" if each.startswith(key) else each for each in lines))


def test_another_broker(log_dir: Path) -> None:
    change_meta(log_dir, "node.id", "9")
    found = findings_of(log_dir)
    assert {Path(each.path).parent.name for each in found} == {"plain-0", "plain-1", "idem-none-0"}
    finding = the_one(findings_of(log_dir, "plain-0"), log_dir / "plain-0")
    assert (finding.severity, finding.broker_action) == (Severity.WARNING, STRAY)
    assert (finding.expected, finding.found) == ("one of [1]", "9")


def test_another_log_dir(log_dir: Path) -> None:
    text = (log_dir / "meta.properties").read_text()
    own = next(each for each in text.splitlines() if each.startswith("directory.id"))
    change_meta(log_dir, "directory.id", "AAECAwQFBgcICQoLDA0ODw")
    finding = the_one(findings_of(log_dir, "plain-0"), log_dir / "plain-0")
    assert finding.severity is Severity.NOTE
    assert finding.expected == own.partition("=")[2]
    assert finding.found == "AAECAwQFBgcICQoLDA0ODw"


def test_nothing_is_held_against_incomplete_metadata(log_dir: Path) -> None:
    (log_dir / "plain-0").rename(log_dir / "plain-7")
    assert len(findings_of(log_dir)) == 1
    log = log_dir / "__cluster_metadata-0" / f"{0:020d}.log"
    data = bytearray(log.read_bytes())
    data[len(data) // 2] ^= 0x10
    log.write_bytes(data)
    assert findings_of(log_dir) == []
    log.write_bytes(b"")
    assert findings_of(log_dir) == []
    shutil.rmtree(log.parent)
    assert findings_of(log_dir) == []


def test_a_copy_elsewhere(log_dir: Path, tmp_path: Path) -> None:
    """Of which broker a directory outside of a log dir is, nobody knows; its topic is known."""
    shutil.copytree(log_dir / "plain-0", tmp_path / "elsewhere" / "plain-7")
    (selected,) = discover([log_dir / "__cluster_metadata-0"]).selected
    image = Clusters([], selected).image_for(None)
    collector = Collector()
    partition = Partition.of(select_partition(tmp_path / "elsewhere" / "plain-7"))
    check_against_cluster(partition, image, collector)
    assert [each.check_id for each in collector.kept] == ["DIR-4"]


# --- other releases -------------------------------------------------------------------------------

DELETED = "deletes the directory after file.delete.delay.ms, unless newer metadata differ"
WRITTEN = "writes it again, if the replica is one of its own; else deletes no replica at all"


@pytest.mark.parametrize(
    "version, action, missing_action",
    [
        ("4.0", STRAY, STRAY),
        ("3.7", STRAY, STRAY),
        ("3.7.1", STRAY, STRAY),
        ("3.7.0", DELETED, REFUSES),
        ("3.6", DELETED, WRITTEN),
        ("3.3.2", DELETED, WRITTEN),
        ("2.8", "nothing", WRITTEN),
    ],
)
def test_a_replica_that_is_not_its_own(
    log_dir: Path, version: str, action: str, missing_action: str
) -> None:
    """Of 3.3.2, 3.6.2 and 3.9.1 as real brokers of these releases did it."""
    path = log_dir / "plain-0"
    (path / "partition.metadata").write_text("version: 0\ntopic_id: AAECAwQFBgcICQoLDA0ODw")
    assert the_one(findings_of(log_dir, "plain-0", version), path).broker_action == action
    (path / "partition.metadata").unlink()
    assert the_one(findings_of(log_dir, "plain-0", version), path).broker_action == missing_action
