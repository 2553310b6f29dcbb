"""Prepare a directory, change it, check what a crash leaves: also with one fsync left out.

scenario = Scenario(prepare, run, check)
print(report := check_scenario(scenario, tmp_path))
assert report.failures == []
assert surviving_mutants(scenario, tmp_path) == []      # each fsync is needed, and tested
"""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, NamedTuple

from tests.crash.recording import RecordingFileSystem, SyncDirectory, SyncFile
from tests.crash.states import COMBINATIONS_MAX, CrashReport, CrashState, check_states

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from storage.fsio import OpenFile, StrPath


class Scenario(NamedTuple):
    """Something that changes a directory.

    Attributes:
        prepare: makes the directory as it is before; it gets a path that does not exist.
        run: changes the directory that it gets, through the file system only, and calls `mark` where
            a caller would rely on what is done.
        check: `assert`s what must hold after any crash; it gets the directory and the state.
    """

    prepare: Callable[[Path], None]
    run: Callable[[RecordingFileSystem, Path], None]
    check: Callable[[Path, CrashState], None]


class ForgetfulFileSystem(RecordingFileSystem):
    """The mutant: its n-th fsync, of a file or of a directory, counted from 0, does nothing."""

    def __init__(self, root: Path, forgotten: int) -> None:
        super().__init__(root)
        self._syncs_left = forgotten

    def _forgets(self) -> bool:
        self._syncs_left -= 1
        return self._syncs_left == -1

    def fsync(self, file: OpenFile) -> None:
        if not self._forgets():
            super().fsync(file)

    def fsync_dir(self, path: StrPath) -> None:
        if not self._forgets():
            super().fsync_dir(path)


def record(
    scenario: Scenario,
    work_dir: Path,
    make: Callable[[Path], RecordingFileSystem] = RecordingFileSystem,
) -> RecordingFileSystem:
    """Run it once on a fresh directory, and give what was recorded."""
    root = work_dir / "run"
    scenario.prepare(root)
    try:
        recording = make(root)
        scenario.run(recording, root)
    finally:
        shutil.rmtree(root)
    return recording


def check_scenario(
    scenario: Scenario, work_dir: Path, *, combinations_max: int = COMBINATIONS_MAX
) -> CrashReport:
    """Check every state that a crash may leave."""
    recording = record(scenario, work_dir)
    return check_states(recording, scenario.check, work_dir, combinations_max=combinations_max)


def syncs_of(recording: RecordingFileSystem) -> list[str]:
    """The fsyncs of a run, as text."""
    operations = recording.operations
    return [each.text for each in operations if isinstance(each, SyncFile | SyncDirectory)]


def surviving_mutants(
    scenario: Scenario, work_dir: Path, *, combinations_max: int = COMBINATIONS_MAX
) -> list[str]:
    """Leave out each fsync in turn. Returns those whose absence the checker never notices."""
    survivors = []
    for forgotten, text in enumerate(syncs_of(record(scenario, work_dir))):

        def forgetful(root: Path, forgotten: int = forgotten) -> RecordingFileSystem:
            return ForgetfulFileSystem(root, forgotten)

        recording = record(scenario, work_dir, forgetful)
        report = check_states(
            recording, scenario.check, work_dir, combinations_max=combinations_max
        )
        if not report.failures:
            survivors.append(text)
    return survivors
