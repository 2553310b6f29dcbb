"""Checks of log dirs: real ones give nothing, planted faults exactly what they are."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from recovery.checks.context.broker_version import parse_broker_version
from recovery.checks.context.collector import Collector
from recovery.checks.log_dirs.log_dirs import check_absent, check_leftovers, check_log_dirs
from recovery.cluster.clusters import Clusters
from recovery.rules.findings import Finding, Severity
from storage.dirs.discovery import ServerProperties, select_partition
from storage.dirs.log_dir import read_log_dir
from storage.dirs.partition import Partition

if TYPE_CHECKING:
    from collections.abc import Callable

CHECKPOINTS = ["recovery-point", "log-start", "replication", "cleaner"]
STATES = ["clean", "crash", "recovered", "hard", "hard-clean", "tv2", "tv2-clean"]


def findings_of(*paths: Path, is_one_node: bool = True, version: str = "") -> list[Finding]:
    log_dirs = [read_log_dir(path) for path in paths]
    collectors = {each.path: Collector() for each in log_dirs}
    check_log_dirs(
        log_dirs,
        lambda each: collectors[each.path],
        is_one_node=is_one_node,
        version=parse_broker_version(version) if version else None,
    )
    check_absent(log_dirs, Clusters(log_dirs), lambda each: collectors[each.path])
    return [finding for each in collectors.values() for finding in each.kept]


def leftovers_of(path: Path) -> list[Finding]:
    collector = Collector("t", 0)
    check_leftovers(Partition.of(select_partition(path)), collector)
    return collector.kept


def ids(findings: list[Finding]) -> list[str]:
    return sorted(each.check_id for each in findings)


def make_log_dir(path: Path, *, node_id: int = 1, directory: str = "D") -> Path:
    """A formatted log dir of one partition, `t-0`, with text as a broker writes it."""
    (path / "t-0").mkdir(parents=True)
    (path / "t-0" / "00000000000000000000.log").write_bytes(b"")
    (path / "meta.properties").write_text(
        f"#\n#Tue Nov 14 22:13:20 UTC 2023\ncluster.id=C\nnode.id={node_id}\nversion=1\n"
        f"directory.id={directory * 21}A\n"
    )
    for name in CHECKPOINTS:
        (path / f"{name}-offset-checkpoint").write_text("0\n1\nt 0 0\n")
    return path


# --- real directories -----------------------------------------------------------------------------


@pytest.mark.parametrize("state", STATES)
def test_one_node_in_each_state(golden: Callable[[str], Path], state: str) -> None:
    log_dir = golden("kafka-4.3.1") / state
    assert findings_of(log_dir) == []
    for each in read_log_dir(log_dir).partitions:
        assert leftovers_of(Path(each.path)) == []


@pytest.mark.parametrize("state", ["diverged", "after"])
def test_three_nodes(golden: Callable[[str], Path], state: str) -> None:
    root = golden("kafka-4.3.1-three-brokers") / state
    brokers = [root / f"broker-{node}" for node in (1, 2, 3)]
    assert findings_of(*brokers, is_one_node=False) == []
    claimed = findings_of(*brokers)
    assert {each.check_id for each in claimed} == {"DIR-3"}
    assert [(each.expected, each.found) for each in claimed] == [("1", "2"), ("1", "3")]


def test_a_log_dir_of_before_kraft(golden: Callable[[str], Path]) -> None:
    assert findings_of(golden("kafka-0.10.2-legacy")) == []


def test_real_leftovers_of_a_clean_stop(golden: Callable[[str], Path], tmp_path: Path) -> None:
    """What is about to be deleted is normal after a crash; after a clean stop it is told."""
    log_dir = tmp_path / "tv2"
    shutil.copytree(golden("kafka-4.3.1") / "tv2", log_dir)
    log_dir.chmod(0o755)
    (log_dir / ".kafka_cleanshutdown").write_bytes(b"")
    deleted = list((log_dir / "c2-0").glob("*.deleted"))
    (finding,) = leftovers_of(log_dir / "c2-0")
    size_bytes = sum(each.stat().st_size for each in deleted)
    assert finding.check_id == "DIR-5"
    assert finding.severity is Severity.NOTE
    assert finding.found == f"{len(deleted)} files, {size_bytes:,} bytes"
    assert finding.broker_action == "deletes them"


# --- planted faults -------------------------------------------------------------------------------


def test_a_sound_log_dir(tmp_path: Path) -> None:
    assert findings_of(make_log_dir(tmp_path / "d")) == []


def test_a_foreign_directory(tmp_path: Path) -> None:
    log_dir = make_log_dir(tmp_path / "d")
    (log_dir / "lost+found").mkdir()
    (log_dir / "remote-log-index-cache").mkdir()
    (log_dir / "some-file.txt").write_bytes(b"")
    (finding,) = findings_of(log_dir)
    assert (finding.check_id, finding.severity) == ("DIR-1", Severity.ERROR)
    assert finding.path == str(log_dir / "lost+found")
    assert finding.broker_action == "refuses to start"


def test_a_partition_in_two_log_dirs(tmp_path: Path) -> None:
    one = make_log_dir(tmp_path / "one")
    two = make_log_dir(tmp_path / "two", directory="B")
    (finding,) = findings_of(one, two)
    assert (finding.check_id, finding.severity) == ("DIR-2", Severity.ERROR)
    assert (finding.path, finding.found) == (str(two / "t-0"), str(one / "t-0"))
    assert (finding.topic, finding.partition) == ("t", 0)


def test_a_metadata_log_in_two_log_dirs(tmp_path: Path) -> None:
    one = make_log_dir(tmp_path / "one")
    two = make_log_dir(tmp_path / "two", directory="B")
    for each in (one, two):
        (each / "t-0").rename(each / "__cluster_metadata-0")
        for name in CHECKPOINTS:
            (each / f"{name}-offset-checkpoint").write_bytes(b"")
    (finding,) = findings_of(one, two)
    assert (finding.check_id, finding.broker_action) == ("DIR-2", "refuses to start")


def two_dirs(tmp_path: Path, **other: str | int) -> tuple[Path, Path]:
    one = make_log_dir(tmp_path / "one")
    two = make_log_dir(tmp_path / "two", **({"directory": "B"} | other))  # type: ignore[arg-type]
    shutil.rmtree(two / "t-0")
    for name in CHECKPOINTS:
        (two / f"{name}-offset-checkpoint").write_bytes(b"")
    return one, two


def test_two_sound_log_dirs(tmp_path: Path) -> None:
    assert findings_of(*two_dirs(tmp_path)) == []


@pytest.mark.parametrize(
    "old, new, expected, found",
    [
        ("cluster.id=C", "cluster.id=X", "C", "X"),
        ("node.id=1", "node.id=7", "1", "7"),
        (f"directory.id={'B' * 21}A", f"directory.id={'A' * 22}", "a random UUID", "A" * 22),
        ("version=1", "version=2", "0 or 1", "2"),
        ("node.id=1\n", "", "", ""),
        ("node.id=1", "node.id=one", "a decimal number", "'one'"),
    ],
)  # fmt: skip
def test_meta_properties(tmp_path: Path, old: str, new: str, expected: str, found: str) -> None:
    one, two = two_dirs(tmp_path)
    meta = two / "meta.properties"
    assert old in meta.read_text()
    meta.write_text(meta.read_text().replace(old, new))
    (finding,) = findings_of(one, two)
    assert (finding.check_id, finding.severity) == ("DIR-3", Severity.ERROR)
    assert finding.path == str(meta)
    assert (finding.expected, finding.found) == (expected, found)


def test_one_directory_id_for_two(tmp_path: Path) -> None:
    one, two = two_dirs(tmp_path)
    for each in (one, two):
        text = (each / "meta.properties").read_text()
        (each / "meta.properties").write_text(
            "".join(line for line in text.splitlines(True) if "directory" not in line)
            + f"directory.id={'D' * 21}A\n"
        )
    (finding,) = findings_of(one, two)
    assert (finding.check_id, finding.found) == ("DIR-3", "D" * 21 + "A")
    assert finding.path == str(two / "meta.properties")


def test_no_meta_properties(tmp_path: Path) -> None:
    log_dir = make_log_dir(tmp_path / "d")
    (log_dir / "meta.properties").unlink()
    (finding,) = findings_of(log_dir)
    assert (finding.check_id, finding.path) == ("DIR-3", str(log_dir / "meta.properties"))


def test_meta_properties_that_name_nobody(tmp_path: Path) -> None:
    """An empty file parses; a broker 4.3.1 then asks for the id of no cluster, and ends."""
    log_dir = make_log_dir(tmp_path / "d")
    (log_dir / "meta.properties").write_bytes(b"")
    (finding,) = findings_of(log_dir)
    assert (finding.check_id, finding.path) == ("DIR-3", str(log_dir / "meta.properties"))
    assert finding.broker_action.startswith("refuses to start")
    (log_dir / "meta.properties").write_text("version=0\nbroker.id=0\n")  # as before 2.4
    assert findings_of(log_dir) == []


def test_a_plain_directory_is_not_missing_anything(tmp_path: Path) -> None:
    """Partitions that somebody copied elsewhere are in no log dir."""
    (tmp_path / "d" / "t-0").mkdir(parents=True)
    assert findings_of(tmp_path / "d") == []


def test_leftovers_of_writes(tmp_path: Path) -> None:
    log_dir = make_log_dir(tmp_path / "d")
    (log_dir / "replication-offset-checkpoint.tmp").write_bytes(b"0\n")
    (log_dir / "notes.tmp").write_bytes(b"")  # nothing of Kafka's
    (finding,) = findings_of(log_dir)
    assert (finding.check_id, finding.severity) == ("DIR-5", Severity.NOTE)
    assert finding.path == str(log_dir / "replication-offset-checkpoint.tmp")
    assert finding.found == "2 bytes"


def test_leftovers_of_a_crashed_compaction(tmp_path: Path) -> None:
    partition = make_log_dir(tmp_path / "d") / "t-0"
    (partition / "00000000000000000000.log.swap").write_bytes(b"x" * 10)
    (partition / "00000000000000000000.index.swap").write_bytes(b"x" * 4)
    (partition / "00000000000000000050.log.cleaned").write_bytes(b"x")
    (partition / "00000000000000000050.log.deleted").write_bytes(b"x")
    (partition / "partition.metadata.tmp").write_bytes(b"x")
    found = {each.message.split()[0]: each.found for each in leftovers_of(partition)}
    assert found == {
        ".cleaned": "1 file, 1 byte",
        ".swap": "2 files, 14 bytes",
        ".tmp": "1 file, 1 byte",
    }


@pytest.mark.parametrize("state", ["delete", "future", "stray"])
def test_directories_set_aside(tmp_path: Path, state: str) -> None:
    log_dir = make_log_dir(tmp_path / "d")
    path = log_dir / f"gone-3.{'0' * 32}-{state}"
    path.mkdir()
    (path / "00000000000000000000.log").write_bytes(b"x" * 7)
    for name in CHECKPOINTS:  # the entries of such a partition go with the next write
        (log_dir / f"{name}-offset-checkpoint").write_text("0\n2\nt 0 0\ngone 3 5\n")
    (finding,) = findings_of(log_dir)
    assert (finding.check_id, finding.severity) == ("DIR-6", Severity.NOTE)
    assert (finding.path, finding.topic, finding.partition) == (str(path), "gone", 3)
    assert finding.found == "1 file, 7 bytes"


@pytest.mark.parametrize("name", CHECKPOINTS)
@pytest.mark.parametrize(
    "text, pos, fails",
    [
        ("0\n2\nt 0 0\n", 2, True),
        ("1\n1\nt 0 0\n", 0, True),
        ("0\n1\nt 0\n", 4, True),
        ("0\n1\nt 0 0\n\n", 10, True),
        ("0\n1\nt 0 x\n", 4, False),
        ("0\n-1\n", 2, False),
    ],
)
def test_checkpoints_that_do_not_parse(
    tmp_path: Path, name: str, text: str, pos: int, fails: bool
) -> None:
    log_dir = make_log_dir(tmp_path / "d")
    path = log_dir / f"{name}-offset-checkpoint"
    path.write_text(text)
    (finding,) = findings_of(log_dir)
    assert (finding.check_id, finding.severity) == ("DIR-7", Severity.ERROR)
    assert (finding.path, finding.start_pos) == (str(path), pos)
    is_first = name in {"recovery-point", "log-start"}
    words = "refuses to start" if is_first else "takes this log dir offline"
    assert finding.broker_action.startswith(words) is fails


@pytest.mark.parametrize("text", ["", "0\n", "0\n0\n"])
def test_empty_checkpoints_are_sound(tmp_path: Path, text: str) -> None:
    log_dir = make_log_dir(tmp_path / "d")
    for name in CHECKPOINTS:
        (log_dir / f"{name}-offset-checkpoint").write_text(text)
    assert findings_of(log_dir) == []


def test_entries_of_no_partition(tmp_path: Path) -> None:
    log_dir = make_log_dir(tmp_path / "d")
    path = log_dir / "replication-offset-checkpoint"
    path.write_text("0\n3\nt 0 0\nt 1 5\nother 0 6\n")
    found = findings_of(log_dir)
    assert {each.check_id for each in found} == {"DIR-8"}
    assert {each.severity for each in found} == {Severity.NOTE}
    assert [(each.path, each.topic, each.partition, each.found) for each in found] == [
        (str(path), "t", 1, "5"),
        (str(path), "other", 0, "6"),
    ]


def test_a_marker_without_content(tmp_path: Path) -> None:
    log_dir = make_log_dir(tmp_path / "d")
    (log_dir / ".kafka_cleanshutdown").write_text('{"version":')
    (finding,) = findings_of(log_dir)
    assert (finding.check_id, finding.severity) == ("CSD-1", Severity.NOTE)


HOLD_LOCK = """
import fcntl, sys
with open(sys.argv[1], "r+b") as file:
    fcntl.lockf(file, fcntl.LOCK_EX)
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_broker_at_work_has_leftovers(tmp_path: Path) -> None:
    log_dir = make_log_dir(tmp_path / "d")
    (log_dir / ".lock").write_bytes(b"")
    (log_dir / "cleaner-offset-checkpoint.tmp").write_bytes(b"")
    (log_dir / f"gone-3.{'0' * 32}-delete").mkdir()
    (log_dir / f"gone-4.{'0' * 32}-stray").mkdir()
    (log_dir / "cleaner-offset-checkpoint").write_text("0\n1\nnew 0 5\n")
    (log_dir / "t-0" / "00000000000000000009.log.swap").write_bytes(b"")
    assert ids(findings_of(log_dir)) == ["DIR-5", "DIR-6", "DIR-6", "DIR-8"]
    with subprocess.Popen(
        [sys.executable, "-c", HOLD_LOCK, str(log_dir / ".lock")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        live, inside = findings_of(log_dir), leftovers_of(log_dir / "t-0")
    assert [(each.check_id, each.topic, each.partition) for each in live] == [
        ("DIR-6", "gone", 4)  # what is stray stays that
    ]
    assert inside == []


def test_what_cannot_be_read_is_no_finding(tmp_path: Path) -> None:
    """The disk has not said what is in it; the command says that it was not read."""
    log_dir = make_log_dir(tmp_path / "d")
    (log_dir / "meta.properties").unlink()
    os.mkfifo(log_dir / "meta.properties")
    assert findings_of(log_dir) == []


# --- other releases -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("version", "name"),
    [
        ("3.4", "remote-log-index-cache"),
        ("3.5", ""),
        ("3.6.0", f"q-0.{'0' * 32}-stray"),
        ("3.6", ""),
    ],
)
def test_names_that_a_release_cannot_read(tmp_path: Path, version: str, name: str) -> None:
    log_dir = make_log_dir(tmp_path / "d")
    is_stray = version.startswith("3.6")
    (log_dir / (f"q-0.{'0' * 32}-stray" if is_stray else "remote-log-index-cache")).mkdir()
    found = [each for each in findings_of(log_dir, version=version) if each.check_id == "DIR-1"]
    assert [each.found for each in found] == [name][: bool(name)]
    assert all(each.broker_action == "refuses to start" for each in found)
    aside = [each for each in findings_of(log_dir, version=version) if each.check_id == "DIR-6"]
    expected = "refuses to start" if name else "leaves it aside"
    assert [each.broker_action for each in aside] == [expected] * is_stray


@pytest.mark.parametrize(
    ("meta", "refusing"), [(1, ["2.8", "3.3"]), (0, ["2.8", "3.3", "3.4", "3.6"])]
)
def test_log_dirs_with_ids_of_their_own(tmp_path: Path, meta: int, refusing: list[str]) -> None:
    """Before 3.7 nobody knew of directory.id; who compares all properties takes them for others'."""
    first, second = (make_log_dir(tmp_path / each, directory=each) for each in "DE")
    shutil.rmtree(second / "t-0")
    for path in (first, second):
        properties = path / "meta.properties"
        text = properties.read_text().replace("version=1", f"version={meta}")
        properties.write_text(text.replace("node.id", "node.id" if meta else "broker.id"))
    for version in ("2.8", "3.3", "3.4", "3.6", "3.7", "3.9"):
        found = [
            each for each in findings_of(first, second, version=version) if each.check_id == "DIR-3"
        ]
        assert [each.path for each in found] == [str(second / "meta.properties")] * (
            version in refusing
        )
        assert all(each.broker_action == "refuses to start" for each in found)


def test_two_log_dirs_with_one_id(tmp_path: Path) -> None:
    first, second = make_log_dir(tmp_path / "a"), make_log_dir(tmp_path / "b")
    shutil.rmtree(second / "t-0")
    assert "DIR-3" in ids(findings_of(first, second, version="3.7"))
    assert "DIR-3" not in ids(findings_of(first, second, version="3.6"))


def test_a_broker_with_zookeeper_and_releases_without(golden: Callable[[str], Path]) -> None:
    log_dir = golden("kafka-0.10.2-legacy")
    assert findings_of(log_dir, version="3.9") == []
    (finding,) = findings_of(log_dir, version="4.0")
    assert (finding.check_id, finding.severity) == ("DIR-3", Severity.WARNING)


@pytest.mark.parametrize(
    ("version", "content", "action"),
    [
        ("3.0", "0\n1\nt 0 abc\n", "takes this log dir offline; without another log dir it stops"),
        (
            "3.3",
            "0\n1\nt 0 abc\n",
            "recovers all segments of all partitions, unless the stop was clean",
        ),
        ("3.6", "0\n2\nt 0 10\n", "takes this log dir offline; without another log dir it stops"),
        ("3.9", "0\n2\nt 0 10\n", "refuses to start"),
    ],
)
def test_a_recovery_point_checkpoint(
    tmp_path: Path, version: str, content: str, action: str
) -> None:
    log_dir = make_log_dir(tmp_path / "d")
    (log_dir / "recovery-point-offset-checkpoint").write_text(content)
    (finding,) = findings_of(log_dir, version=version)
    assert (finding.check_id, finding.broker_action) == ("DIR-7", action)


def test_a_partition_twice_in_releases_that_set_none_aside(tmp_path: Path) -> None:
    first, second = (make_log_dir(tmp_path / each, directory=each) for each in "DE")
    actions = {
        version: [
            each.broker_action
            for each in findings_of(first, second, version=version)
            if each.check_id == "DIR-2"
        ]
        for version in ("3.6", "3.7")
    }
    assert actions["3.6"] == ["refuses to start"]
    assert actions["3.7"][0].startswith("refuses to start, unless")


@pytest.mark.parametrize(
    ("lines", "names", "action"),
    [
        # One of them is missing: in a node with a metadata log that ends each start.
        ("version=0\nbroker.id=1\n", "does not name the cluster", "refuses to start"),
        ("version=0\ncluster.id=C\n", "does not name the node", "refuses to start"),
        ("version=0\ncluster.id=C\nbroker.id=1\n", "", ""),
        ("", "names neither a node nor a cluster", "refuses to start"),
        ("version=2\n", "version of meta.properties is unknown", "takes this log dir offline"),
    ],
)
def test_meta_properties_beside_those_of_a_kraft_node(
    tmp_path: Path, lines: str, names: str, action: str
) -> None:
    one, two = two_dirs(tmp_path)
    (one / "__cluster_metadata-0").mkdir()
    (two / "meta.properties").write_text(lines)
    found = [each for each in findings_of(one, two) if each.check_id == "DIR-3"]
    assert [names in each.message for each in found] == [True] * bool(names)
    assert all(each.broker_action.startswith(action) for each in found)


def test_a_meta_properties_beside_the_metadata_log_that_cannot_be_read(tmp_path: Path) -> None:
    one, two = two_dirs(tmp_path)
    (one / "__cluster_metadata-0").mkdir()
    (one / "meta.properties").write_text("version=2\n")
    found = [each for each in findings_of(one, two) if each.check_id == "DIR-3"]
    assert [each.broker_action for each in found] == ["refuses to start"]


def test_one_node_id_in_two_clusters(tmp_path: Path) -> None:
    one, two = two_dirs(tmp_path)
    meta = two / "meta.properties"
    meta.write_text(meta.read_text().replace("cluster.id=C", "cluster.id=X"))
    (finding,) = findings_of(one, two, is_one_node=False)
    assert (finding.check_id, finding.severity) == ("DIR-3", Severity.WARNING)
    assert (finding.path, finding.expected, finding.found) == (str(meta), "C", "X")
    assert finding.broker_action == "refuses to start if both log dirs belong to one node"


@pytest.mark.parametrize(
    ("node_id", "metadata_dir", "expected"),
    [(1, "one", []), (None, "one", []), (7, "one", ["DIR-3", "DIR-3"]), (1, "two", ["DIR-2"])],
)
def test_the_configuration_of_the_node(
    tmp_path: Path, node_id: int | None, metadata_dir: str, expected: list[str]
) -> None:
    paths = two_dirs(tmp_path)
    (paths[0] / "__cluster_metadata-0").mkdir()
    log_dirs = [read_log_dir(path) for path in paths]
    node = ServerProperties(tuple(map(str, paths)), str(tmp_path / metadata_dir), node_id)
    collector = Collector()
    check_log_dirs(log_dirs, lambda _: collector, node=node)
    assert ids(collector.kept) == expected
    assert {each.broker_action for each in collector.kept} <= {"refuses to start"}
