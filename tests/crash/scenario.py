"""Prepare a directory, change it, check what a crash leaves: also with one fsync left out.

scenario = Scenario(prepare, run, check)
print(report := check_scenario(scenario, tmp_path))
assert report.failures == []
assert surviving_mutants(scenario, tmp_path) == []      # each fsync is needed, and tested
"""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from storage.errors import EoctlError
from tests.crash.recording import RecordingFileSystem, SyncDirectory, SyncFile
from tests.crash.states import COMBINATIONS_MAX, RUN_NAME, CrashReport, CrashState, check_states
from tests.drawn import drawn

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from storage.files.fsio import OpenFile, StrPath


F = TypeVar("F", bound=RecordingFileSystem)


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


def refusing_nothing(
    check: Callable[[Path, CrashState], None],
) -> Callable[[Path, CrashState], None]:
    """A checker for which it is a failure, too, that the program refuses to go on."""

    def checked(root: Path, state: CrashState) -> None:
        try:
            check(root, state)
        except EoctlError as error:
            raise AssertionError(f"{error}; try: {error.next_step}") from error

    return checked


class ForgetfulFileSystem(RecordingFileSystem):
    """The mutant: its n-th fsync, of a file or of a directory, counted from 0, does nothing.

    Until then, `forgotten_at` operations long, it is no other than the unchanged one.
    """

    def __init__(self, root: Path, forgotten: int) -> None:
        super().__init__(root)
        self._syncs_left = forgotten
        self.forgotten_at = 0

    def _forgets(self) -> bool:
        self._syncs_left -= 1
        if self._syncs_left == -1:
            self.forgotten_at = len(self.operations)
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
    make: Callable[[Path], F] = RecordingFileSystem,
) -> F:
    """Run it once on a fresh directory, and give what was recorded."""
    root = work_dir / RUN_NAME
    scenario.prepare(root)
    try:
        recording = make(root)
        scenario.run(recording, root)
    finally:
        shutil.rmtree(root)
    return recording


def check_scenario(
    scenario: Scenario,
    work_dir: Path,
    *,
    combinations_max: int = COMBINATIONS_MAX,
    share: int | None = None,
) -> CrashReport:
    """Check every state that a crash may leave; or a share of them, see `tests.drawn`."""
    recording = record(scenario, work_dir)
    return check_states(
        recording, scenario.check, work_dir, combinations_max=combinations_max, share=share
    )


def syncs_of(recording: RecordingFileSystem) -> list[str]:
    """The fsyncs of a run, as text."""
    operations = recording.operations
    return [each.text for each in operations if isinstance(each, SyncFile | SyncDirectory)]


def named_syncs(syncs: Sequence[str]) -> list[str]:
    """The fsyncs of a run, each with its number, as `surviving_mutants` names them."""
    return [f"{number}: {text}" for number, text in enumerate(syncs)]


def drawn_syncs(scenario: Scenario, work_dir: Path, share: int) -> list[str]:
    """A share of the fsyncs of a run."""
    return drawn(named_syncs(syncs_of(record(scenario, work_dir))), share)


def surviving_mutants(
    scenario: Scenario,
    work_dir: Path,
    *,
    combinations_max: int = COMBINATIONS_MAX,
    among: Sequence[str] | None = None,
) -> list[str]:
    """Leave out each fsync in turn. Returns those whose absence the checker never notices.

    Each comes as its number among the fsyncs of the run, and what it syncs; `among` takes such ones
    that another checker has not noticed, or that are drawn. States of a crash before the fsync that
    is left out are those of `check_scenario`, and not checked again.
    """
    survivors = []
    # By number: what a text names, as a journal, may have another name in each run.
    numbers = None if among is None else {int(each.partition(":")[0]) for each in among}
    for forgotten, text in enumerate(syncs_of(record(scenario, work_dir))):
        if numbers is not None and forgotten not in numbers:
            continue

        def forgetful(root: Path, forgotten: int = forgotten) -> ForgetfulFileSystem:
            return ForgetfulFileSystem(root, forgotten)

        recording = record(scenario, work_dir, forgetful)
        report = check_states(
            recording,
            scenario.check,
            work_dir,
            combinations_max=combinations_max,
            failures_max=1,
            skipped_count=recording.forgotten_at,
        )
        if not report.failures:
            survivors.append(f"{forgotten}: {text}")
    return survivors
