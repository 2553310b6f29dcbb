"""From PATHs to partitions."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from storage.dirs.discovery import (
    UNKNOWN_PARTITION,
    NotKafkaError,
    discover,
    read_server_properties,
    select_partition,
)
from storage.errors import AccessError, CorruptError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SEGMENT = "00000000000000000000.log"


def make_partition(path: Path) -> Path:
    path.mkdir(parents=True)
    (path / SEGMENT).touch()
    return path


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    """A log dir whose own name is that of a partition, as `kafka-1` often is."""
    path = tmp_path / "kafka-1"
    make_partition(path / "t-0")
    make_partition(path / "t-1")
    (path / "meta.properties").write_text("version=1\ncluster.id=x\nnode.id=1\n")
    return path


def names(*paths: Path | str) -> list[str]:
    return [str(each.partition.topic_partition) for each in discover(paths).selected]


def test_log_dir(log_dir: Path) -> None:
    found = discover([log_dir])
    assert names(log_dir) == ["t-0", "t-1"]
    assert [each.path for each in found.log_dirs] == [str(log_dir)]
    assert found.selected[0].log_dir is found.log_dirs[0]


def test_log_dir_without_any_file_of_its_own(tmp_path: Path) -> None:
    make_partition(tmp_path / "copy-7" / "t-0")
    assert names(tmp_path / "copy-7") == ["t-0"]


def test_single_partition_has_its_log_dir(log_dir: Path) -> None:
    found = discover([log_dir / "t-1"])
    assert names(log_dir / "t-1") == ["t-1"]
    assert found.selected[0].partition.path == str(log_dir / "t-1")
    assert found.selected[0].log_dir is not None
    assert found.selected[0].log_dir.meta is not None


def test_empty_partition_goes_by_its_name_in_a_log_dir(log_dir: Path, tmp_path: Path) -> None:
    """A broker takes it for one; elsewhere a name like that says nothing."""
    (log_dir / "e-0").mkdir()
    assert names(log_dir / "e-0") == ["e-0"]
    assert "e-0" in names(log_dir)
    (tmp_path / "t-0").mkdir()
    with pytest.raises(NotKafkaError):
        discover([tmp_path / "t-0"])


def test_partition_outside_of_any_log_dir(tmp_path: Path) -> None:
    make_partition(tmp_path / "t-0")
    (tmp_path / "holiday pictures").mkdir()
    found = discover([tmp_path / "t-0"])
    assert found.selected[0].log_dir is None
    assert found.log_dirs == ()
    assert found.problems == ()


def test_partition_copied_under_another_name(tmp_path: Path) -> None:
    make_partition(tmp_path / "backup")
    (selected,) = discover([tmp_path / "backup"]).selected
    assert selected.partition.name.topic == "backup"
    assert selected.partition.name.partition == UNKNOWN_PARTITION


def test_files_stand_for_their_directory(log_dir: Path) -> None:
    assert names(log_dir / "t-0" / SEGMENT) == ["t-0"]
    assert names(log_dir / "meta.properties") == ["t-0", "t-1"]


def test_relative_paths(log_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(log_dir / "t-0")
    assert names(".") == ["t-0"]
    assert names("..") == ["t-0", "t-1"]
    assert names("../t-1/") == ["t-1"]
    assert names(SEGMENT) == ["t-0"]
    assert names("../t-1/..") == ["t-0", "t-1"]
    (selected,) = discover(["."]).selected
    assert selected.partition.path == "."
    assert selected.log_dir is not None
    monkeypatch.chdir(log_dir)
    assert discover(["t-0"]).selected[0].partition.path == "t-0"


def test_each_directory_once(log_dir: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(log_dir)
    assert names(log_dir / "t-1", log_dir, log_dir / "t-1" / SEGMENT) == ["t-1", "t-0"]
    assert names(log_dir, tmp_path / "link") == ["t-0", "t-1"]


def test_a_directory_that_is_mounted_twice(
    log_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No path tells that it is one; a link that is not resolved stands for the second mount."""
    (tmp_path / "mount").symlink_to(log_dir)
    monkeypatch.setattr("os.path.realpath", os.path.abspath)
    assert names(log_dir, tmp_path / "mount") == ["t-0", "t-1"]
    assert len(discover([log_dir, tmp_path / "mount"]).log_dirs) == 1


def test_what_the_log_dir_says_counts_in_either_order(log_dir: Path, tmp_path: Path) -> None:
    """The bounds and the lock of a partition on another disk are in the log dir that links to it."""
    make_partition(tmp_path / "disk" / "u-5")
    (log_dir / "u-5").symlink_to(tmp_path / "disk" / "u-5")
    for paths in (
        [log_dir, tmp_path / "disk"], [tmp_path / "disk", log_dir],
        [tmp_path / "disk/u-5", log_dir], [log_dir, tmp_path / "disk/u-5"],
    ):  # fmt: skip
        found = [each for each in discover(paths).selected if each.partition.name.topic == "u"]
        assert [each.partition.path for each in found] == [str(log_dir / "u-5")]
        assert found[0].log_dir is not None


def test_symbolic_link_to_a_partition_keeps_its_name(log_dir: Path, tmp_path: Path) -> None:
    make_partition(tmp_path / "disk" / "p7")
    (log_dir / "u-5").symlink_to(tmp_path / "disk" / "p7")
    assert names(log_dir / "u-5") == ["u-5"]


def test_foreign_directory_matters_to_the_log_dir_only(log_dir: Path) -> None:
    (log_dir / "lost+found").mkdir()
    assert discover([log_dir / "t-0"]).problems == ()
    (problem,) = discover([log_dir]).problems
    assert isinstance(problem, CorruptError)
    assert problem.check_id == "DIR-1"


def test_a_partition_in_two_log_dirs(log_dir: Path, tmp_path: Path) -> None:
    other = tmp_path / "kafka-2"
    make_partition(other / "t-1")
    (other / ".lock").touch()
    found = discover([log_dir, other])
    assert len(found.selected) == 3
    (problem,) = found.problems
    assert isinstance(problem, CorruptError)
    assert (problem.check_id, problem.path) == ("DIR-2", str(other / "t-1"))
    assert problem.found == str(log_dir / "t-1")


def test_the_other_copy_is_known_even_when_one_is_asked_for(log_dir: Path) -> None:
    make_partition(log_dir / "t-01")
    (problem,) = discover([log_dir / "t-0", log_dir / "t-01"]).problems
    assert isinstance(problem, CorruptError)
    assert problem.check_id == "DIR-2"


def test_future_copy_beside_the_live_one_is_normal(log_dir: Path) -> None:
    make_partition(log_dir / f"t-0.{'ab' * 16}-future")
    assert discover([log_dir]).problems == ()


def test_missing_paths(log_dir: Path, tmp_path: Path) -> None:
    with pytest.raises(AccessError) as caught:
        discover([tmp_path / "none"])
    assert caught.value.exit_status == 3
    found = discover([tmp_path / "none", log_dir])
    assert len(found.selected) == 2
    (problem,) = found.problems
    assert isinstance(problem, AccessError)
    assert problem.path == str(tmp_path / "none")


def test_what_is_no_part_of_kafka_is_refused(tmp_path: Path) -> None:
    (tmp_path / "music").mkdir()
    (tmp_path / "music" / "song.ogg").touch()
    with pytest.raises(UsageError):
        discover([tmp_path / "music"])
    with pytest.raises(UsageError):
        discover([])


@pytest.mark.parametrize("names_below", [(), ("lost+found",), ("dbus-1", "polkit-1"), ("a.log",)])
def test_no_kafka_directory(tmp_path: Path, names_below: tuple[str, ...]) -> None:
    """A wrong mount, another program's directory: it is said what was looked for."""
    target = tmp_path / "given"
    target.mkdir()
    for name in names_below:
        (target / name).mkdir()
        (target / name / "system.conf").touch()
    if "a.log" in names_below:
        (target / "b.log").touch()
    with pytest.raises(NotKafkaError, match=r"meta\.properties") as caught:
        discover([target])
    assert caught.value.exit_status == 3


def test_a_file_in_no_kafka_directory_is_named(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").touch()
    with pytest.raises(NotKafkaError) as caught:
        discover([tmp_path / "notes.txt"])
    reported = (
        f"{tmp_path}/notes.txt: its directory {tmp_path} is neither a log dir nor a partition"
    )
    assert caught.value.message.startswith(reported)


def test_a_snapshot_makes_a_partition(tmp_path: Path) -> None:
    """Of `__cluster_metadata-0` it may be all that is left, or all that was sent."""
    directory = tmp_path / "__cluster_metadata-0"
    directory.mkdir()
    (directory / "notes.checkpoint").touch()
    with pytest.raises(NotKafkaError):
        discover([directory])
    (directory / f"{20:020d}-{1:010d}.checkpoint").touch()
    assert names(directory) == ["__cluster_metadata-0"]


def test_beside_partitions_a_name_alone_says_nothing(tmp_path: Path) -> None:
    make_partition(tmp_path / "t-0")
    (tmp_path / "dbus-1").mkdir()
    (tmp_path / "dbus-1" / "system.conf").touch()
    assert names(tmp_path) == ["t-0"]


def test_replicas_of_different_nodes_are_no_duplicates(golden: Callable[[str], Path]) -> None:
    root = golden("kafka-4.3.1-three-brokers")
    found = discover([root / "diverged" / f"broker-{node}" for node in (1, 2, 3)])
    assert len(found.selected) == 15
    assert found.problems == ()
    again = discover([root / "diverged" / "broker-1", root / "after" / "broker-1"])
    assert {each.check_id for each in again.problems if isinstance(each, CorruptError)} == {"DIR-2"}


# --- server.properties ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "log_dirs", "metadata_log_dir"),
    [
        ("log.dirs=/a,/b\n", ("/a", "/b"), "/a"),
        ("log.dirs = /a , /b ,\nmetadata.log.dir=/m\n", ("/a", "/b"), "/m"),
        ("log.dir=/one\n", ("/one",), "/one"),
        ("log.dir=/one\nlog.dirs=/a\n", ("/a",), "/a"),
        ("node.id=1\n# log.dirs=/x\n", ("/tmp/kafka-logs",), "/tmp/kafka-logs"),
        ("log.dirs=/a,\\\n    /b\nprocess.roles=broker", ("/a", "/b"), "/a"),
    ],
)
def test_server_properties(
    tmp_path: Path, text: str, log_dirs: tuple[str, ...], metadata_log_dir: str
) -> None:
    path = tmp_path / "server.properties"
    path.write_text(text)
    found = read_server_properties(path)
    assert (found.log_dirs, found.metadata_log_dir) == (log_dirs, metadata_log_dir)
    assert found.node_id == (1 if "node.id=1" in text else None)
    assert found.all_dirs == tuple(dict.fromkeys((*log_dirs, metadata_log_dir)))


def test_server_properties_that_cannot_be_used(tmp_path: Path) -> None:
    with pytest.raises(AccessError):
        read_server_properties(tmp_path / "none")
    path = tmp_path / "server.properties"
    path.write_text("log.dirs=,\n")
    with pytest.raises(CorruptError) as caught:
        read_server_properties(path)
    assert caught.value.path == str(path)


def test_a_file_beside_partitions_is_none_of_them(log_dir: Path) -> None:
    """Even where there is but one: to copy that one would be to copy another partition."""
    (log_dir / "t-1" / SEGMENT).unlink()
    (log_dir / "t-1").rmdir()
    (log_dir / "t-1").write_text("x")
    with pytest.raises(UsageError, match="t-1: 0 partitions there"):
        select_partition(log_dir / "t-1")
    with pytest.raises(UsageError):
        select_partition(log_dir / "meta.properties")
    assert select_partition(log_dir).partition.path == str(log_dir / "t-0")
    found = select_partition(log_dir / "t-0" / SEGMENT)
    assert found.partition.path == str(log_dir / "t-0")
