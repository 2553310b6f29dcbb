"""What a loss of power leaves is a state that the crash tests know, and nothing of what was synced."""

from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from eoctl.lab.nodes.power_loss import ForgettingFileSystem
from storage.files import fsio
from storage.files.fsio import FileSystem, attributes_for, sync_tree
from tests.crash.recording import RecordingFileSystem
from tests.crash.states import crash_states

if TYPE_CHECKING:
    from collections.abc import Callable


FULL_LOG = b"firstsecfourth"


def work(fs: FileSystem, root: Path) -> None:
    """What a broker does: a log grows and is cut, a checkpoint is replaced, segments come and go."""
    fsio.create_file(fs, root / "0.log", b"", attributes_for(root))
    fsio.sync_dir(fs, root)
    with fs.open_existing(root / "0.log") as log:
        fs.write(log, b"first")
        fs.fsync(log)
        fs.write(log, b"second")
        fs.write(log, b"third")
        fsio.put_file(fs, root / "checkpoint", b"0\n0\n")
        fsio.sync_dir(fs, root)
        fs.truncate(log, 8)
        fs.write(log, b"fourth")
        fsio.put_file(fs, root / "checkpoint", b"0\n1\nt 0 5\n")
        fs.unlink(root / "old.log")


def fresh(path: Path) -> Path:
    path.mkdir(parents=True)
    (path / "old.log").write_bytes(b"old")
    return path


def files_of(root: Path) -> dict[str, bytes]:
    return {each.name: each.read_bytes() for each in sorted(root.iterdir())}


@pytest.fixture
def known_states(tmp_path: Path) -> list[dict[str, bytes]]:
    """Of every moment: a state is given once, when it may first be."""
    root = fresh(tmp_path / "recorded")
    recording = RecordingFileSystem(root)
    work(recording, root)
    states = crash_states(recording, combinations_max=100_000)
    return [
        {path: inode.data for path, (_, inode) in each.tree.items() if path != "."}
        for each in states
    ]


def test_what_a_loss_of_power_leaves_is_a_state_of_the_crash_tests(
    tmp_path: Path, known_states: list[dict[str, bytes]]
) -> None:
    seen = []
    for seed in range(150):
        root = fresh(tmp_path / f"seed-{seed}")
        fs = ForgettingFileSystem(root)
        work(fs, root)
        fs.lose_power(draws(seed))
        found = files_of(root)
        assert found["0.log"].startswith(b"first")
        assert is_known(found, known_states)
        if found not in seen:
            seen.append(found)
    assert len(seen) >= 12


def is_known(found: dict[str, bytes], known: list[dict[str, bytes]]) -> bool:
    """Each file has a content that the crash tests have, and the names stand together as there.

    Zeros stand there for all that was not synced; here also for what follows a part of it.
    """
    names = [{*each} for each in known]
    contents = {name: {each.get(name) for each in known} for name in found}
    return {*found} in names and all(
        found[name] in contents[name]
        or (found[name].rstrip(b"\0") in contents[name] and len(found[name]) == len(FULL_LOG))
        for name in found
    )


def draws(seed: int) -> Callable[[int], int]:
    chooser = random.Random(seed)
    return lambda count: int(chooser.random() * count)


def test_nothing_is_lost_of_what_was_synced(tmp_path: Path) -> None:
    for seed in range(30):
        root = fresh(tmp_path / f"seed-{seed}")
        fs = ForgettingFileSystem(root)
        work(fs, root)
        before = files_of(root)
        with fs.open_existing(root / "0.log") as log:
            fs.fsync(log)
        fs.fsync_dir(root)
        assert fs.lose_power(draws(seed)) == []
        assert files_of(root) == before
        assert before["0.log"] == FULL_LOG


def test_the_real_disk_is_asked_for_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A played run syncs thousands of times, and what it plays is the loss of played power alone."""
    root = fresh(tmp_path / "root")
    fs = ForgettingFileSystem(root)
    work(fs, root)

    def refuse(_: int) -> None:
        raise AssertionError("fsync")

    monkeypatch.setattr("os.fsync", refuse)
    with fs.open_existing(root / "0.log") as log:
        fs.fsync(log)
    fs.fsync_dir(root)
    assert fs.lose_power(draws(1)) == []


def test_a_cut_that_was_not_synced_may_come_undone(tmp_path: Path) -> None:
    root = fresh(tmp_path / "root")
    fs = ForgettingFileSystem(root)
    with fs.open_existing(root / "old.log") as file:
        fs.truncate(file, 1)
    fs.lose_power(lambda _: 0)
    assert (root / "old.log").read_bytes() == b"old"


def test_the_size_may_be_there_without_the_data(tmp_path: Path) -> None:
    root = fresh(tmp_path / "root")
    fs = ForgettingFileSystem(root)
    with fs.open_existing(root / "old.log") as file:
        fs.write(file, b"new")
    numbers = iter([0, 2, 0])
    (lost,) = fs.lose_power(lambda _: next(numbers))
    assert (root / "old.log").read_bytes() == b"old\0\0\0"
    assert lost.lost == "1 of 1 changes, but for the size"


def test_what_waits_for_long_goes_to_the_disk_by_itself(tmp_path: Path) -> None:
    root = fresh(tmp_path / "root")
    now = [0]
    fs = ForgettingFileSystem(root, lambda: now[0])
    with fs.open_existing(root / "old.log") as file:
        fs.write(file, b"1")
        now[0] = 10
        fs.write(file, b"2")
    fs.write_back(10)
    fs.lose_power(lambda _: 0)
    assert (root / "old.log").read_bytes() == b"old1"


def test_nothing_outside_is_touched(tmp_path: Path) -> None:
    fs = ForgettingFileSystem(fresh(tmp_path / "root"))
    with pytest.raises(ValueError, match="outside"):
        fs.unlink(tmp_path / "other")


def test_all_of_a_directory_is_made_durable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was played goes to the real disk when its run has ended."""
    root = fresh(tmp_path / "root")
    work(ForgettingFileSystem(root), root)
    (root / "deeper").mkdir()
    (root / "deeper/file").write_bytes(b"1")
    (root / "link").symlink_to(tmp_path)
    synced: set[str] = set()
    monkeypatch.setattr(
        "os.fsync", lambda fd: synced.add(str(Path(f"/proc/self/fd/{fd}").readlink()))
    )
    sync_tree(FileSystem(), root)
    below = {str(each) for each in root.rglob("*") if not each.is_symlink()}
    assert synced == {*below, str(root)}
