"""Changing commands, called as a user does, on a directory of their own and any file system."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING, NamedTuple

from recovery.changes.journals.journal import JOURNAL_NAME
from recovery.changes.journals.listing import UNFINISHED_NAME
from storage.file_names import CLEAN_SHUTDOWN_NAME
from storage.formats.transaction_state import (
    TransactionState,
    TransactionStatus,
    encode_key,
    encode_value,
)
from tests.crash.faults import UnsyncedFileSystem
from tests.crash.trees import difference, leftovers, tree_of
from tests.damage.faults import read_batches
from tests.diverged_logs import begin_epoch, copy_partition
from tests.hanging import append_record

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import pytest

    from storage.files.fsio import FileSystem
    from tests.running import Outcome

    Cli = Callable[..., Outcome]

OLD_NS = 1_700_000_000_123_456_789
LOG_DIR_NAMES = (
    "meta.properties",
    "recovery-point-offset-checkpoint",
    "replication-offset-checkpoint",
    CLEAN_SHUTDOWN_NAME,
)


REJOIN = ("replicas rejoin", "--leader", "{root}/leader", "--unclean")


class Change(NamedTuple):
    """A command with --apply on one partition of `clean`; `damage` gives it something to do.

    In an argument {root} is the directory around the log dir.
    `of_log_dir`: it is given the log dir, with that partition alone in it. `beside`: other
    directories there. `order`: files that come one after the other, each when those before it
    are on the disk.
    `keeps_segments`: each `.log` is by itself what it was or what it becomes. `has_log`: one is
    left at the end. `from_start`: segments go from the first on.
    """

    partition: str
    arguments: tuple[str, ...]
    damage: Callable[[Path], None]
    keeps_segments: bool = False
    has_log: bool = True
    of_log_dir: bool = False
    beside: tuple[str, ...] = ()
    order: tuple[str, ...] = ()
    from_start: bool = False


def nothing(_: Path) -> None:
    pass


def cut_index_short(partition: Path) -> None:
    index = partition / "00000000000000000000.timeindex"
    index.write_bytes(index.read_bytes()[:-24])
    os.utime(index, ns=(OLD_NS, OLD_NS))
    (partition / "00000000000000000329.snapshot").unlink()


def remove_snapshot(partition: Path) -> None:
    (partition / "00000000000000000329.snapshot").unlink()


def forget_transaction(partition: Path) -> None:
    """Put a coordinator's log beside the partition that does not know its open transaction."""
    state = TransactionState(
        "open-1", 1, 40, 40, -1, 0, -1, 600_000, TransactionStatus.EMPTY, None,
        1_795_229_940_647, -1, 0,
    )  # fmt: skip
    directory = partition.parent / "__transaction_state-2"
    append_record(directory, encode_key("open-1"), encode_value(state), 1_795_229_940_647)
    for path in directory.iterdir():
        os.utime(path, ns=(OLD_NS, OLD_NS))


def remove_first_segment(partition: Path) -> None:
    for path in partition.glob("00000000000000000000.*"):
        path.unlink()


def follow_over_segments(partition: Path) -> None:
    """The leader has what was there, with a second segment; the replica parts in the first one."""
    copy_partition(partition, partition.parents[1] / "leader" / partition.name)
    begin_epoch(partition, 12, 7)
    set_old_times(partition)


def follow_behind(partition: Path) -> None:
    """The leader has what was there; of the replica the second half was lost, and other data is."""
    copy_partition(partition, partition.parents[1] / "leader" / partition.name)
    log = partition / "00000000000000000000.log"
    batches = read_batches(log.read_bytes())
    os.truncate(log, batches[len(batches) * 3 // 4].pos)
    begin_epoch(partition, batches[len(batches) // 2].base_offset, 7)
    for path in (*partition.glob("*.snapshot"), *partition.glob("*index")):
        path.unlink()
    set_old_times(partition)


def set_old_times(partition: Path) -> None:
    for path in partition.iterdir():
        os.utime(path, ns=(OLD_NS, OLD_NS))


def damage_batches(partition: Path) -> None:
    """Bits in the middle of the first and the last segment, and a torn end."""
    logs = sorted(partition.glob("*.log"))
    for log in {logs[0], logs[-1]}:
        data = bytearray(log.read_bytes())
        data[75] ^= 4
        data[len(data) // 2] ^= 4
        log.write_bytes(data[:-5] if log == logs[-1] else data)
        os.utime(log, ns=(OLD_NS, OLD_NS))


def damage_checkpoints(partition: Path) -> None:
    """Beside damaged batches: one checkpoint with a torn line, one without any that parses."""
    damage_batches(partition)
    (partition.parent / "recovery-point-offset-checkpoint").write_text("0\n2\ntxn 0 329\ntxn 0 2")
    (partition.parent / "replication-offset-checkpoint").write_text("0\n1\ntxn 0\n")
    for path in partition.parent.glob("*-checkpoint"):
        os.utime(path, ns=(OLD_NS, OLD_NS))


def damage_directory(partition: Path) -> None:
    """Without its topic id, and with a `.log` that is none of its segments."""
    (partition / "partition.metadata").unlink()
    (partition / "backup.log").write_bytes(b"kept by hand")
    set_old_times(partition)


def write_offsets(partition: Path) -> None:
    """A file beside the log dir, with offsets of a group that is in the partition."""
    (partition.parents[1] / "offsets.csv").write_text("ctp,txn,1,80\nctp,plain,0,7\n")


CHANGES = {
    "truncate within a segment": Change(
        "txn-0", ("truncate", "--to-offset", "150", "--single-copy"), nothing
    ),
    "truncate over segments": Change(
        "compacted-0", ("truncate", "--to-offset", "20", "--single-copy"), nothing
    ),
    "truncate below the first segment": Change(
        "compacted-0", ("truncate", "--to-offset", "20", "--single-copy"), remove_first_segment
    ),
    "trim over segments": Change(
        "compacted-0", ("trim", "--to-offset", "41", "--single-copy"), nothing, from_start=True
    ),
    "trim within a segment": Change(
        "txn-0", ("trim", "--to-offset", "150", "--single-copy"), nothing, from_start=True
    ),
    "repair as broker": Change(
        "txn-0", ("repair", "--strategy", "as-broker", "--single-copy"), damage_batches
    ),
    "repair by salvage": Change(
        "txn-0", ("repair", "--strategy", "salvage", "--single-copy"), damage_batches
    ),
    "repair by salvage of segments": Change(
        "compacted-0",
        ("repair", "--strategy", "salvage", "--single-copy"),
        damage_batches,
        keeps_segments=True,
    ),
    "repair by salvage, checkpoints too": Change(
        "txn-0",
        ("repair", "--strategy", "salvage", "--single-copy"),
        damage_checkpoints,
        of_log_dir=True,
    ),
    "repair by salvage of a directory": Change(
        "txn-0",
        ("repair", "--strategy", "salvage"),
        damage_directory,
        beside=("__cluster_metadata-0",),
    ),
    "repair by moving away": Change(
        "compacted-0",
        ("repair", "--strategy", "move-away", "--replicated"),
        nothing,
        has_log=False,
    ),
    "rebuild": Change("txn-0", ("rebuild", "--index-interval-bytes", "512"), cut_index_short),
    "rejoin over segments": Change("compacted-0", REJOIN, follow_over_segments),
    "rejoin within a segment": Change("txn-0", REJOIN, follow_behind),
    "recover-state": Change("txn-0", ("recover-state",), remove_snapshot),
    "txn abort": Change(
        "txn-0",
        ("txn abort", "--producer-id", "40", "--single-copy", "--now", "2026-11-21T04:00:00Z"),
        forget_transaction,
    ),
    "groups import": Change(
        "__consumer_offsets-3",
        (
            *("groups import", "--from", "{root}/offsets.csv", "--outside", "keep"),
            *("--now", "2026-11-21T04:00:00Z"),
        ),
        write_offsets,
        of_log_dir=True,
        beside=("__cluster_metadata-0",),
    ),
    "txn commit": Change(
        "txn-0",
        (
            *("txn commit", "--transactional-id", "open-1", "--producer-id", "40"),
            *("--producer-epoch", "0", "--now", "2026-11-21T04:00:00Z"),
        ),
        nothing,
        of_log_dir=True,
        beside=("__transaction_state-2", "__cluster_metadata-0"),
        order=(
            "__transaction_state-2/00000000000000000032.log",
            "txn-0/00000000000000000329.log",
            "__transaction_state-2/00000000000000000033.log",
        ),
    ),
}


def prepare(change: Change, clean: Path, root: Path) -> None:
    """Make the log dir below `root` that the change has something to do in."""
    log_dir = root / "log-dir"
    for name in (change.partition, *change.beside):
        shutil.copytree(clean / name, log_dir / name)
    for name in LOG_DIR_NAMES:
        shutil.copy2(clean / name, log_dir / name)
    (log_dir / ".lock").touch()
    for path in log_dir.rglob("*"):
        path.chmod(path.stat().st_mode | 0o200)
    log_dir.chmod(0o700)
    change.damage(log_dir / change.partition)


def call_of(change: Change, root: Path) -> tuple[object, ...]:
    """The words of the call, without --apply."""
    command, *rest = (each.format(root=root) for each in change.arguments)
    path = root / "log-dir"
    if not change.of_log_dir:
        path /= change.partition
    return (*command.split(), path, *rest)


class Runs:
    """Runs commands on a directory of its own, on any file system."""

    def __init__(
        self, change: Change, clean: Path, eoctl: Cli, monkeypatch: pytest.MonkeyPatch, root: Path
    ) -> None:
        self.change = change
        self.clean = clean
        self.eoctl = eoctl
        self.monkeypatch = monkeypatch
        self.prepare(root)
        self.before = tree_of(root / "log-dir")
        self.apply(UnsyncedFileSystem(), root)
        self.after = self.contents(root)
        assert self.after != {name: each.data for name, each in self.before.items() if each.data}
        shutil.rmtree(root)

    def prepare(self, root: Path) -> None:
        """Make the log dir, with something to do in it."""
        prepare(self.change, self.clean, root)

    def call(self, fs: FileSystem, *arguments: object) -> None:
        outcome = self.try_call(fs, *arguments)
        assert outcome.status == 0, outcome.errors

    def try_call(self, fs: FileSystem, *arguments: object) -> Outcome:
        self.monkeypatch.setattr("storage.files.fsio.FileSystem", lambda: fs)
        return self.eoctl(*arguments)

    def apply_arguments(self, root: Path) -> tuple[object, ...]:
        return (*call_of(self.change, root), "--apply")

    def apply(self, fs: FileSystem, root: Path) -> None:
        self.call(fs, *self.apply_arguments(root))

    def journals(self, root: Path) -> list[Path]:
        return sorted(path.parent for path in (root / "log-dir.eoctl").glob(f"*/{JOURNAL_NAME}"))

    def undo(self, fs: FileSystem, root: Path) -> None:
        self.call(fs, "undo", *self.journals(root))

    def contents(self, root: Path) -> dict[str, bytes]:
        found = tree_of(root / "log-dir")
        return {name: each.data for name, each in found.items() if each.data is not None}

    # --- what must hold

    def require_before(self, root: Path) -> None:
        assert difference(self.before, tree_of(root / "log-dir")) == []

    def require_after(self, root: Path) -> None:
        assert self.contents(root) == self.after
        assert leftovers(root / "log-dir") == []

    def require_a_log(self, root: Path) -> None:
        """While it is applied: checkpoints first, then segments from the last one; never none.

        A new segment comes when all before it are what they become: it goes on from these. The one
        that takes the place of all others, in a full truncation, is there before they go.
        """
        now = self.contents(root)
        is_there = [bool(now.get(name)) for name in self.change.order]
        assert is_there == sorted(is_there, reverse=True), is_there
        before = {name: each.data for name, each in self.before.items() if each.data is not None}
        logs = sorted(name for name in before if name.endswith(".log"))
        if self.change.from_start:
            is_gone = [name not in now for name in logs]
            assert is_gone == sorted(is_gone, reverse=True), is_gone
            assert now[logs[-1]] == before[logs[-1]]
            return
        if self.change.keeps_segments:
            assert all(now[name] in {before[name], self.after[name]} for name in logs)
            changing = [name for name in logs if self.after[name] != before[name]]
            is_done = [now[name] != before[name] for name in changing]
            assert is_done == sorted(is_done), is_done
            if any(now[name] != before[name] for name in logs):
                self.require_checkpoints(now)
            return
        is_changed = [now.get(name) != before[name] for name in logs]
        assert is_changed == sorted(is_changed), is_changed
        first = is_changed.index(True) if True in is_changed else len(logs)
        assert [name for name in logs[first + 1 :] if name in now] == []
        assert any(name.endswith(".log") for name in now) or not self.change.has_log
        if any(name in now for name in self.after if name.endswith(".log") and name > logs[-1]):
            assert [now.get(name) for name in logs] == [self.after.get(name) for name in logs]
        if True in is_changed:
            self.require_checkpoints(now)

    def require_checkpoints(self, now: dict[str, bytes]) -> None:
        for name in LOG_DIR_NAMES:
            assert now.get(name) == self.after.get(name)

    def require_safe(self, root: Path) -> None:
        """No marker beside a change; what is half done is flagged."""
        found = tree_of(root / "log-dir")
        changed = bool(difference(self.before, found))
        assert not changed or CLEAN_SHUTDOWN_NAME not in found
        if changed and self.contents(root) != self.after:
            assert (root / "log-dir" / UNFINISHED_NAME).exists()
