"""Faults of log dirs and names, and of the files that say whose they are: DIR-1 to DIR-9."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

from tests.damage.planted import layout
from tests.damage.planted.shape import Expected, Faults

if TYPE_CHECKING:
    from pathlib import Path

FAULTS = Faults()
HEX = "0123456789abcdef0123456789abcdef"
OTHER_ID = "AAECAwQFBgcICQoLDA0ODw"


def _property(log_dir: Path, key: str, value: str | None) -> None:
    """Set or remove a line of meta.properties."""
    path = log_dir / "meta.properties"
    lines = [line for line in path.read_text().splitlines() if not line.startswith(f"{key}=")]
    if value is not None:
        lines.append(f"{key}={value}")
    layout.write(path, "".join(f"{line}\n" for line in lines))


def _second_log_dir(log_dir: Path, *partitions: str) -> Path:
    """Another log dir of the same node, with copies of some partitions."""
    second = log_dir.parent / "second"
    second.mkdir()
    for path in log_dir.iterdir():
        if path.is_file():
            shutil.copy2(path, second)
    for name in partitions:
        shutil.copytree(log_dir / name, second / name)
    for kind in ("recovery-point", "replication", "cleaner"):
        path = second / f"{kind}-offset-checkpoint"
        wanted = [row for row in layout.read_lines(path) if f"{row[0]}-{row[1]}" in partitions]
        layout.write_lines(path, wanted)
    _property(second, "directory.id", OTHER_ID)
    return second


# --- directories ----------------------------------------------------------------------------------


@FAULTS.plants("clean", "plain-0")
def directory_of_the_file_system(log_dir: Path) -> Expected:
    (log_dir / "lost+found").mkdir()
    return Expected("DIR-1", "lost+found", severity="error")


@FAULTS.plants("clean", "plain-0")
def directory_without_number(log_dir: Path) -> Expected:
    (log_dir / "plain-0-backup").mkdir()
    return Expected("DIR-1", "plain-0-backup", severity="error")


@FAULTS.plants("clean", "plain-0", "plain-1", beside=("second",))
def partition_in_two_log_dirs(log_dir: Path) -> Expected:
    _second_log_dir(log_dir, "plain-1")
    return Expected("DIR-2", "../second/plain-1", severity="error")


@FAULTS.plants("clean", "plain-0")
def meta_properties_missing(log_dir: Path) -> Expected:
    (log_dir / "meta.properties").unlink()
    return Expected("DIR-3", "meta.properties", severity="error")


@FAULTS.plants("clean", "plain-0")
def meta_properties_without_node(log_dir: Path) -> Expected:
    _property(log_dir, "node.id", None)
    return Expected("DIR-3", "meta.properties", severity="error")


@FAULTS.plants("clean", "plain-0")
def meta_properties_of_a_later_version(log_dir: Path) -> Expected:
    _property(log_dir, "version", "2")
    return Expected("DIR-3", "meta.properties", severity="error")


@FAULTS.plants("clean", "plain-0", beside=("second",))
def log_dirs_of_two_clusters(log_dir: Path) -> Expected:
    _property(_second_log_dir(log_dir), "cluster.id", OTHER_ID)
    return Expected("DIR-3", "../second/meta.properties", severity="error")


@FAULTS.plants("clean", "plain-0", beside=("second",))
def log_dirs_of_one_id(log_dir: Path) -> Expected:
    second = _second_log_dir(log_dir)
    shutil.copy2(log_dir / "meta.properties", second)
    return Expected("DIR-3", "../second/meta.properties", severity="error")


# --- partition.metadata ---------------------------------------------------------------------------


@FAULTS.plants("clean", "plain-0")
def partition_metadata_missing(log_dir: Path) -> Expected:
    (log_dir / "plain-0/partition.metadata").unlink()
    return Expected("DIR-4", "plain-0/partition.metadata")


@FAULTS.plants("clean", "plain-0")
def partition_metadata_malformed(log_dir: Path) -> Expected:
    layout.write(log_dir / "plain-0/partition.metadata", "version: 0\ntopic_id: not-an-id")
    return Expected("DIR-4", "plain-0/partition.metadata", severity="error")


@FAULTS.plants("clean", "plain-0", "__cluster_metadata-0")
def partition_of_another_topic(log_dir: Path) -> Expected:
    path = log_dir / "plain-0/partition.metadata"
    layout.write(path, f"version: 0\ntopic_id: {OTHER_ID}")
    return Expected("DIR-4", "plain-0/partition.metadata", severity="error")


# --- leftovers ------------------------------------------------------------------------------------


def _leave(log_dir: Path, *names: str) -> Expected:
    """Empty files in a partition directory, which has one finding for all of a kind."""
    for name in names:
        layout.write(log_dir / "plain-0" / name, b"")
    return Expected("DIR-5", "plain-0", severity="note")


@FAULTS.plants("clean", "plain-0")
def files_that_were_to_be_deleted(log_dir: Path) -> Expected:
    return _leave(log_dir, f"{900:020d}.log.deleted", f"{900:020d}.snapshot.deleted")


@FAULTS.plants("clean", "plain-0")
def cleaner_died_before_swapping(log_dir: Path) -> Expected:
    return _leave(log_dir, f"{0:020d}.log.cleaned", f"{0:020d}.index.cleaned")


@FAULTS.plants("clean", "plain-0")
def renames_that_did_not_happen(log_dir: Path) -> list[Expected]:
    name = "recovery-point-offset-checkpoint.tmp"
    layout.write(log_dir / name, "0\n0\n")
    found = _leave(log_dir, "leader-epoch-checkpoint.tmp", "partition.metadata.tmp")
    return [found, Expected("DIR-5", name, severity="note")]


@FAULTS.plants("crash", "compacted-0")
def cleaner_died_while_swapping(log_dir: Path) -> Expected:
    """The new segment is whole; it replaces the old one at the next start."""
    for kind in ("log", "index", "timeindex"):
        source = layout.segment(log_dir / "compacted-0", 0, kind)
        shutil.copy2(source, source.with_name(f"{source.name}.swap"))
    return Expected("DIR-5", "compacted-0", severity="note")


@FAULTS.plants("clean", "plain-0", "plain-1")
def directories_set_aside(log_dir: Path) -> list[Expected]:
    names = [f"gone-3.{HEX}-delete", f"lost-0.{HEX}-stray", f"plain-1.{HEX}-future"]
    for name in names:
        shutil.copytree(log_dir / "plain-1", log_dir / name)
    return [Expected("DIR-6", name, severity="note") for name in names]


# --- checkpoints ----------------------------------------------------------------------------------


@FAULTS.plants("clean", "plain-0")
def checkpoint_of_a_later_version(log_dir: Path) -> Expected:
    name = "recovery-point-offset-checkpoint"
    layout.patch(log_dir / name, 0, b"1")
    return Expected("DIR-7", name, severity="error")


@FAULTS.plants("clean", "plain-0")
def checkpoint_count_wrong(log_dir: Path) -> Expected:
    path = log_dir / "replication-offset-checkpoint"
    layout.write(path, path.read_bytes() + b"added 0 5\n")
    return Expected("DIR-7", path.name, severity="error")


@FAULTS.plants("clean", "plain-0")
def checkpoint_field_missing(log_dir: Path) -> Expected:
    layout.write(log_dir / "log-start-offset-checkpoint", "0\n1\nplain 0\n")
    return Expected("DIR-7", "log-start-offset-checkpoint", severity="error")


@FAULTS.plants("crash", "plain-0")
def checkpoint_not_a_number(log_dir: Path) -> Expected:
    layout.write(log_dir / "recovery-point-offset-checkpoint", "0\n1\nplain 0 1x9\n")
    return Expected("DIR-7", "recovery-point-offset-checkpoint", severity="error")


@FAULTS.plants("clean", "compacted-0", "__cluster_metadata-0")
def checkpoint_torn(log_dir: Path) -> Expected:
    """The metadata log knows that the topic is compacted."""
    layout.write(log_dir / "cleaner-offset-checkpoint", "0\n1\ncompac")
    return Expected("DIR-7", "cleaner-offset-checkpoint", severity="error")


# An epoch file that cannot be read says nothing of the batches' epochs.
@FAULTS.plants("clean", "plain-0", closure=("EPC-4",))
def leader_epochs_malformed(log_dir: Path) -> Expected:
    layout.write(log_dir / "plain-0/leader-epoch-checkpoint", "0\n2\n0 0\n")
    return Expected("DIR-7", "plain-0/leader-epoch-checkpoint", severity="error")


@FAULTS.plants("clean", "plain-0")
def checkpoint_line_of_no_partition(log_dir: Path) -> Expected:
    name = layout.set_offset(log_dir, "replication", "vanished-7", 12).name
    return Expected("DIR-8", name, severity="note")


# --- text that a broker would not have written ----------------------------------------------------


@FAULTS.plants("clean", "plain-0")
def clean_marker_garbled(log_dir: Path) -> Expected:
    """That it is there is what matters: the stop was clean."""
    layout.write(log_dir / ".kafka_cleanshutdown", b'{"version":0,"broker')
    return Expected("CSD-1", ".kafka_cleanshutdown", severity="note")


@FAULTS.plants("clean", "plain-0")
def checkpoint_edited_by_hand(log_dir: Path) -> Expected:
    """Two blanks instead of one: a broker takes them."""
    path = log_dir / "replication-offset-checkpoint"
    layout.write(path, path.read_text().replace("plain 0", "plain  0"))
    return Expected("TXT-1", path.name, severity="note")


# --- foreign segments -----------------------------------------------------------------------------


@FAULTS.plants("clean", "plain-0")
def log_without_number(log_dir: Path) -> Expected:
    """Loading of the partition fails."""
    layout.write(log_dir / "plain-0/backup.log", b"")
    return Expected("DIR-9", "plain-0/backup.log", severity="error")


@FAULTS.plants("clean", "plain-0")
def log_with_short_number(log_dir: Path) -> Expected:
    layout.write(log_dir / "plain-0/179.log", b"")
    return Expected("DIR-9", "plain-0/179.log", severity="error")


@FAULTS.plants("clean", "plain-0")
def snapshot_without_number(log_dir: Path) -> Expected:
    """A broker takes the number of each file that ends like one of a segment, and dies here."""
    layout.write(log_dir / "plain-0/old.snapshot", b"")
    return Expected("DIR-9", "plain-0/old.snapshot", severity="error")


@FAULTS.plants("clean", "plain-0")
def index_without_number(log_dir: Path) -> Expected:
    layout.write(log_dir / "plain-0/copy.timeindex", b"")
    return Expected("DIR-9", "plain-0/copy.timeindex", severity="error")
