"""`rebuild --apply` and `recover-state --apply`: what a crash at any point leaves."""

from __future__ import annotations

import shutil
import threading
from typing import TYPE_CHECKING

import pytest

from recovery.rebuild import RebuildSettings, rebuild_partition
from recovery.rebuild_diff import FileState, compare_files
from recovery.write_derived import write_files, writing
from storage.discovery import discover
from storage.log_dir import CLEAN_SHUTDOWN_NAME
from storage.partition import Partition
from tests.crash.scenario import Scenario, check_scenario, record, surviving_mutants
from tests.crash.states import crash_states
from tests.kafka.broker import Broker, copy_log_dir

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from storage.fsio import FileSystem
    from tests.crash.recording import RecordingFileSystem
    from tests.crash.states import CrashState

PARTITION = "txn-0"
BROKEN = "00000000000000000000.timeindex"
MISSING = "00000000000000000329.snapshot"
INTERVAL_BYTES = 512


def small_log_dir(source: Path, target: Path) -> None:
    """One partition of a cleanly stopped node: an index cut short, a snapshot gone."""
    shutil.copytree(source / PARTITION, target / PARTITION)
    for name in ("meta.properties", "recovery-point-offset-checkpoint", CLEAN_SHUTDOWN_NAME):
        shutil.copy2(source / name, target / name)
    (target / ".lock").touch()
    for path in [target / PARTITION, *target.rglob("*")]:
        path.chmod(path.stat().st_mode | 0o200)
    damage(target)


def damage(log_dir: Path) -> None:
    index = log_dir / PARTITION / BROKEN
    index.write_bytes(index.read_bytes()[:-24])
    (log_dir / PARTITION / MISSING).unlink()


def apply(fs: FileSystem, log_dir: Path) -> Iterator[str]:
    """What both commands do, on this directory; yields what is durable."""
    (selected,) = discover([log_dir / PARTITION]).selected
    partition = Partition.of(selected)
    rebuilt = rebuild_partition(partition, RebuildSettings(0, INTERVAL_BYTES))
    changed = [(each.name, each.content) for each in compare_files(partition, rebuilt)]
    files = [(name, content) for name, content in changed if content is not None]
    with writing([selected], fs):
        yield from write_files(fs, partition.path, files)


def scenario(golden: Callable[[str], Path]) -> Scenario:
    clean = golden("kafka-4.3.1") / "clean"
    wanted = {name: (clean / PARTITION / name).read_bytes() for name in (BROKEN, MISSING)}
    short = wanted[BROKEN][:-24]
    untouched = {
        path.name: path.read_bytes()
        for path in (clean / PARTITION).iterdir()
        if path.name not in wanted
    }

    def prepare(root: Path) -> None:
        root.mkdir()
        small_log_dir(clean, root)

    def run(fs: RecordingFileSystem, root: Path) -> None:
        for name in apply(fs, root):
            fs.mark(name)

    def check(root: Path, state: CrashState) -> None:
        directory = root / PARTITION
        index = (directory / BROKEN).read_bytes()
        snapshot = directory / MISSING
        assert index in (short, wanted[BROKEN])
        assert not snapshot.exists() or snapshot.read_bytes() == wanted[MISSING]
        is_changed = index != short or snapshot.exists()
        # With the marker a broker would trust what it finds: it goes before the first change.
        assert not (is_changed and (root / CLEAN_SHUTDOWN_NAME).exists())
        assert BROKEN not in state.marks or index == wanted[BROKEN]
        assert MISSING not in state.marks or snapshot.exists()
        for name, data in untouched.items():
            assert (directory / name).read_bytes() == data

    return Scenario(prepare, run, check)


def test_every_crash_state_is_old_or_new_and_unclean(
    golden: Callable[[str], Path],
    tmp_path: Path,
    record_property: Callable[[str, object], None],
) -> None:
    """Each file whole; the marker gone before any change; the log never touched."""
    report = check_scenario(scenario(golden), tmp_path)
    record_property("crash_states", f"derived files: {report}")
    print(f"derived files: {report}")
    assert report.failures == []
    assert report.states_count > 15


def test_each_fsync_is_needed(golden: Callable[[str], Path], tmp_path: Path) -> None:
    """Leaving out any one of them makes some state fail."""
    assert surviving_mutants(scenario(golden), tmp_path) == []


def test_a_second_run_completes_every_state(golden: Callable[[str], Path], tmp_path: Path) -> None:
    """Afterwards nothing differs, and nothing is left over."""
    base = scenario(golden)

    def check(root: Path, state: CrashState) -> None:
        from storage.fsio import FileSystem

        list(apply(FileSystem(), root))
        (selected,) = discover([root / PARTITION]).selected
        partition = Partition.of(selected)
        rebuilt = rebuild_partition(partition, RebuildSettings(0, INTERVAL_BYTES))
        states = {each.state for each in compare_files(partition, rebuilt)}
        assert states == {FileState.EQUAL}, state

    assert check_scenario(base._replace(check=check), tmp_path).failures == []


@pytest.mark.broker
def test_a_broker_starts_on_what_a_crash_leaves(
    golden: Callable[[str], Path], tmp_path: Path
) -> None:
    """First state, last state, and some in between, put into a whole log dir."""
    states = list(crash_states(record(scenario(golden), tmp_path)))
    chosen = [states[place * (len(states) - 1) // 3] for place in range(4)]
    failures: list[str] = []

    def start(number: int, state: CrashState) -> None:
        log_dir = copy_log_dir(golden("kafka-4.3.1") / "clean", tmp_path / f"broker-{number}")
        left = tmp_path / f"left-{number}"
        state.write_to(left)
        shutil.rmtree(log_dir / PARTITION)
        shutil.copytree(left / PARTITION, log_dir / PARTITION)
        if not (left / CLEAN_SHUTDOWN_NAME).exists():
            (log_dir / CLEAN_SHUTDOWN_NAME).unlink()
        with Broker(log_dir) as broker:
            text = "\n".join(broker.log_lines(PARTITION))
            if "Completed load" not in text:
                failures.append(f"{state}: {broker.log_tail()}")

    threads = [
        threading.Thread(target=start, args=(number, state)) for number, state in enumerate(chosen)
    ]
    for first in range(0, len(threads), 2):
        for thread in threads[first : first + 2]:
            thread.start()
        for thread in threads[first : first + 2]:
            thread.join()
    assert failures == []
