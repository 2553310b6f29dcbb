"""What a truncation must leave, worked out slowly from bytes and rule TRUNC; imports no planner.

A tree is the files of a log dir by their path in it. `expected_tree` cuts one by the rules TRUNC and
FIX with `struct` and text; `carry_out` does to one what the steps of a plan say.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import TYPE_CHECKING

from recovery.changes.plans.plan import Action
from storage.dirs.discovery import discover
from storage.dirs.partition import Partition
from tests.damage.faults import read_batches

if TYPE_CHECKING:
    from collections.abc import Iterable

    from recovery.changes.plans.plan import Step
    from tests.damage.faults import Batch

Tree = dict[str, bytes]

LOWERED = ("recovery-point-offset-checkpoint", "replication-offset-checkpoint")
LOG_START = "log-start-offset-checkpoint"
CLEANER = "cleaner-offset-checkpoint"
EPOCHS = "leader-epoch-checkpoint"


def copy_log_dir(source: Path, target: Path, *names: str) -> Path:
    """Copy the files of a log dir and those partitions, to be written to."""
    for path in [
        *source.iterdir(),
        *(each for name in names for each in (source / name).iterdir()),
    ]:
        if path.is_file():
            copied = target / path.relative_to(source)
            copied.parent.mkdir(parents=True, exist_ok=True)
            copied.write_bytes(path.read_bytes())
    return target


def open_partition(path: Path) -> Partition:
    (selected,) = discover([path]).selected
    return Partition.of(selected)


def read_tree(log_dir: Path) -> Tree:
    return {
        str(path.relative_to(log_dir)): path.read_bytes()
        for path in log_dir.rglob("*")
        if path.is_file()
    }


def write_tree(tree: Tree, log_dir: Path) -> None:
    """Make the log dir hold this tree."""
    for path in [each for each in log_dir.rglob("*") if each.is_file()]:
        if str(path.relative_to(log_dir)) not in tree:
            path.unlink()
    for name, data in tree.items():
        (log_dir / name).parent.mkdir(parents=True, exist_ok=True)
        (log_dir / name).write_bytes(data)


def carry_out(tree: Tree, steps: Iterable[Step], log_dir: Path) -> Tree:
    """Do what steps say; each must find what it was planned for."""
    tree = dict(tree)
    for step in steps:
        name = str(Path(step.path).relative_to(log_dir))
        before = tree.get(name)
        assert (None if step.before is None else step.before.file_bytes) == (
            None if before is None else len(before)
        )
        if step.action is Action.REMOVE:
            del tree[name]
        elif step.action is Action.REPLACE:
            content = step.content
            if step.pieces is not None:
                content = b"".join(
                    Path(each.path).read_bytes()[each.start_pos : each.end_pos]
                    for each in step.pieces.ranges
                )
            assert content is not None
            assert len(content) == step.after_bytes
            assert content != before
            tree[name] = content
        else:
            assert before is not None
            assert step.after_bytes < len(before)
            tree[name] = before[: step.after_bytes]
    return tree


class Log:
    """The segments of one partition in a tree: base offset -> batches."""

    def __init__(self, tree: Tree, name: str) -> None:
        self.name = name
        self.segments: dict[int, list[Batch]] = {
            int(stem): read_batches(tree[f"{name}/{stem}.log"])
            for stem in sorted(stems(tree, name, ".log"))
        }

    @property
    def end_offset(self) -> int:
        base, batches = list(self.segments.items())[-1]
        return batches[-1].last_offset + 1 if batches else base

    @property
    def boundaries(self) -> list[int]:
        """Offsets behind each batch, and segment bases."""
        found = set(self.segments)
        for batches in self.segments.values():
            found |= {each.last_offset + 1 for each in batches}
        return sorted(found)


def stems(tree: Tree, name: str, suffix: str) -> list[str]:
    inside = [each.removeprefix(f"{name}/") for each in tree if each.startswith(f"{name}/")]
    return [each.removesuffix(suffix) for each in inside if each.endswith(suffix)]


def log_start_of(tree: Tree, name: str, first_base: int) -> int:
    topic, _, number = name.rpartition("-")
    for line in tree.get(LOG_START, b"").decode().splitlines()[2:]:
        if line.split()[:2] == [topic, number]:
            return max(int(line.split()[2]), first_base)
    return first_base


def expected_tree(tree: Tree, name: str, offset: int) -> tuple[int, Tree]:
    """The log end after a restart, and the tree, but for the producer snapshot at that end."""
    log = Log(tree, name)
    if offset >= log.end_offset:
        return log.end_offset, dict(tree)
    tree = dict(tree)
    kept = [base for base in log.segments if base <= offset]
    end = _cut_segments(tree, name, log, offset, kept)
    first_base = kept[0] if kept else offset
    log_start = min(log_start_of(tree, name, next(iter(log.segments))), end)
    for stem in stems(tree, name, ".snapshot"):
        if int(stem) > end or int(stem) <= log_start or not kept:
            del tree[f"{name}/{stem}.snapshot"]
    epochs = f"{name}/{EPOCHS}"
    if epochs in tree:
        lines = tree[epochs].decode().splitlines()[2:]
        left = [each for each in lines if int(each.split()[1]) < end and kept]
        if len(left) < len(lines):
            tree[epochs] = "\n".join(["0", str(len(left)), *left, ""]).encode()
    for checkpoint in LOWERED:
        _lower(tree, checkpoint, name, end)
    _lower(tree, LOG_START, name, end, goes=end == first_base)
    _lower(tree, CLEANER, name, kept[-1] if kept else offset)
    return end, tree


def _cut_segments(tree: Tree, name: str, log: Log, offset: int, kept: list[int]) -> int:
    for base in set(log.segments) - set(kept):
        for suffix in (".log", ".index", ".timeindex", ".txnindex", ".snapshot"):
            tree.pop(f"{name}/{base:020d}{suffix}", None)
    if not kept:
        for suffix in (".log", ".index", ".timeindex"):
            tree[f"{name}/{offset:020d}{suffix}"] = b""
        return offset
    base = kept[-1]
    pos, end = 0, base
    for each in log.segments[base]:
        if each.last_offset >= offset:
            break
        pos, end = each.end, each.last_offset + 1
    stem = f"{name}/{base:020d}"
    tree[f"{stem}.log"] = tree[f"{stem}.log"][:pos]
    for suffix, width in ((".index", 8), (".timeindex", 12), (".txnindex", 34)):
        data = tree.get(stem + suffix)
        if data is not None:
            tree[stem + suffix] = b"".join(
                entry
                for entry in _entries(data, width)
                if _stays(suffix, entry, base, end, pos, offset)
            )
    return end


def _entries(data: bytes, width: int) -> list[bytes]:
    """Entries before the preallocated zeros."""
    found = [data[at : at + width] for at in range(0, len(data) // width * width, width)]
    while found and not any(found[-1]):
        found.pop()
    return found


def _stays(suffix: str, entry: bytes, base: int, end: int, pos: int, offset: int) -> bool:
    if suffix == ".index":
        relative_offset, entry_pos = struct.unpack(">ii", entry)
        return bool(base + relative_offset < offset and entry_pos < pos)
    if suffix == ".timeindex":
        # In a gap between the end and the target there is nothing to point to.
        return bool(base + struct.unpack(">qi", entry)[1] < min(end, offset))
    return bool(struct.unpack(">hqqqq", entry)[3] < offset)


def _lower(tree: Tree, checkpoint: str, name: str, limit: int, *, goes: bool = False) -> None:
    topic, _, number = name.rpartition("-")
    lines = tree.get(checkpoint, b"").decode().splitlines()
    changed = []
    for line in lines[2:]:
        fields = line.split()
        if fields[:2] != [topic, number] or int(fields[2]) <= limit:
            changed.append(line)
        elif not goes:
            changed.append(f"{topic} {number} {limit}")
    if lines[2:] != changed:
        tree[checkpoint] = "\n".join(["0", str(len(changed)), *changed, ""]).encode()
