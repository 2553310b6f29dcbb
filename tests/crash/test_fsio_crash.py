"""Every state that a crash may leave of what storage/files/fsio.py does, and its mutants."""

from __future__ import annotations

import os
import stat
from functools import partial
from typing import TYPE_CHECKING

import pytest

from storage.files import fsio
from storage.files.broker_lock import take
from tests.crash.recording import Rename, SyncFile
from tests.crash.scenario import Scenario, check_scenario, surviving_mutants

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.crash.recording import RecordingFileSystem
    from tests.crash.states import CrashState

OLD = b"the content before"
NEW = b"what it shall be afterwards, and a little longer"
TEMP = "file" + fsio.TEMP_SUFFIX
DONE = "done"
OWNER = (4321, 8765)  # used where the tests may give files away


def content(root: Path) -> bytes | None:
    path = root / "file"
    return path.read_bytes() if path.exists() else None


def prepare(root: Path, *, old: bytes | None = OLD, stale: bytes | None = None) -> None:
    root.mkdir(mode=0o750)
    for name, data in [("file", old), (TEMP, stale)]:
        if data is not None:
            (root / name).write_bytes(data)
            (root / name).chmod(0o640)
    if os.geteuid() == 0:
        for path in [root, *root.iterdir()]:
            os.chown(path, *OWNER)


def stream() -> Iterator[bytes]:
    yield NEW[:10]
    yield NEW[10:]


def replace(fs: RecordingFileSystem, root: Path, *, as_stream: bool = False) -> None:
    fsio.replace_file(fs, root / "file", stream() if as_stream else NEW)
    fs.mark(DONE)


def check_old_or_new(root: Path, state: CrashState, *, old: bytes | None = OLD) -> None:
    """Old content or new content, nothing else; the new one, once the caller was told so."""
    found = content(root)
    assert found == NEW or (found == old and DONE not in state.marks)
    if found is not None:
        status = (root / "file").stat()
        assert stat.S_IMODE(status.st_mode) == 0o640
        assert os.geteuid() != 0 or (status.st_uid, status.st_gid) == OWNER
    # A file that is added has a temporary name of its process.
    assert {path.name for path in root.iterdir()} <= {"file", TEMP, f"file.{os.getpid()}.eoctl-tmp"}


REPLACING = {
    "replace": Scenario(prepare, replace, check_old_or_new),
    "replace by a stream": Scenario(
        prepare, partial(replace, as_stream=True), check_old_or_new
    ),
    "make a new file": Scenario(
        partial(prepare, old=None), replace, partial(check_old_or_new, old=None)
    ),
    "replace, with a leftover": Scenario(
        partial(prepare, stale=b"leftover"), replace, check_old_or_new
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REPLACING)
def test_old_content_or_new_content_and_nothing_else(
    name: str, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    report = check_scenario(REPLACING[name], tmp_path)
    record_property("crash_states", f"{name}: {report}")
    print(f"{name}: {report}")
    assert report.failures == []
    assert report.states_count >= 10


@pytest.mark.parametrize("name", REPLACING)
def test_each_fsync_of_replacing_is_needed(name: str, tmp_path: Path) -> None:
    assert surviving_mutants(REPLACING[name], tmp_path) == []


def test_without_the_files_fsync_a_short_file_takes_the_place(tmp_path: Path) -> None:
    """The mutants fail for the reason that they should."""
    found = []

    def check(root: Path, state: CrashState) -> None:
        found.append(content(root))

    def run(fs: RecordingFileSystem, root: Path) -> None:
        replace(fs, root)
        fs.operations = [each for each in fs.operations if not isinstance(each, SyncFile)]

    check_scenario(Scenario(prepare, run, check), tmp_path)
    assert b"" in found
    assert bytes(len(NEW)) in found
    assert NEW[: len(NEW) // 2] in found


def test_a_rename_before_the_fsync_fails(tmp_path: Path) -> None:
    """All calls are there, in a wrong order."""

    def run(fs: RecordingFileSystem, root: Path) -> None:
        replace(fs, root)
        is_rename = [isinstance(each, Rename) and bool(each.removed) for each in fs.operations]
        place = is_rename.index(True)
        fsync = next(n for n, each in enumerate(fs.operations) if isinstance(each, SyncFile))
        assert fsync < place
        fs.operations.insert(fsync, fs.operations.pop(place))

    assert check_scenario(Scenario(prepare, run, check_old_or_new), tmp_path).failures


def test_a_run_after_each_crash_completes(tmp_path: Path) -> None:
    def check(root: Path, state: CrashState) -> None:
        fsio.replace_file(fsio.FileSystem(), root / "file", NEW)
        assert {path.name: path.read_bytes() for path in root.iterdir()} == {"file": NEW}

    for scenario in REPLACING.values():
        assert check_scenario(scenario._replace(check=check), tmp_path).failures == []


# --- removing -------------------------------------------------------------------------------------


def prepare_log_dir(root: Path) -> None:
    (root / "topic-0").mkdir(parents=True)
    (root / ".kafka_cleanshutdown").write_bytes(b'{"version":0,"brokerEpoch":5}')
    (root / ".lock").touch()
    (root / "topic-0" / "file").write_bytes(OLD)


def change_partition(fs: RecordingFileSystem, root: Path) -> None:
    """What each plan does: the lock, the marker, then the changes."""
    with take([root], fs=fs):
        fsio.remove_clean_marker(fs, root)
        fsio.replace_file(fs, root / "topic-0" / "file", NEW)
        fs.mark(DONE)


def check_marker_first(root: Path, state: CrashState) -> None:
    found = content(root / "topic-0")
    assert found in {OLD, NEW}
    if (root / ".kafka_cleanshutdown").exists():
        assert found == OLD
    if DONE in state.marks:
        assert found == NEW


MARKER_FIRST = Scenario(prepare_log_dir, change_partition, check_marker_first)


def test_the_marker_is_gone_before_anything_changes(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    report = check_scenario(MARKER_FIRST, tmp_path)
    record_property("crash_states", f"marker first: {report}")
    print(f"marker first: {report}")
    assert report.failures == []


def test_each_fsync_of_a_change_is_needed(tmp_path: Path) -> None:
    assert surviving_mutants(MARKER_FIRST, tmp_path) == []


def test_a_marker_that_a_killed_run_removed_is_made_sure_of(tmp_path: Path) -> None:
    """The run before was killed between unlink and fsync: this one finds no marker."""

    def run(fs: RecordingFileSystem, root: Path) -> None:
        fs.unlink(root / ".kafka_cleanshutdown")
        change_partition(fs, root)

    scenario = MARKER_FIRST._replace(run=run)
    assert check_scenario(scenario, tmp_path).failures == []
    assert surviving_mutants(scenario, tmp_path) == []


def test_removed_leftovers_stay_away(tmp_path: Path) -> None:
    def run(fs: RecordingFileSystem, root: Path) -> None:
        fsio.remove_leftovers(fs, root)
        fs.mark(DONE)

    def check(root: Path, state: CrashState) -> None:
        assert content(root) == OLD
        assert not (root / TEMP).exists() or DONE not in state.marks

    scenario = Scenario(partial(prepare, stale=b"leftover"), run, check)
    assert check_scenario(scenario, tmp_path).failures == []
    assert surviving_mutants(scenario, tmp_path) == []


def test_a_lock_file_that_is_made_has_its_owner_in_every_state(tmp_path: Path) -> None:
    """A broker could not start on a `.lock` that it must not open."""

    def run(fs: RecordingFileSystem, root: Path) -> None:
        with take([root], fs=fs):
            pass

    def check(root: Path, state: CrashState) -> None:
        lock = root / ".lock"
        if lock.exists():
            status = lock.stat()
            assert status.st_mode & 0o666 == 0o640
            assert os.geteuid() != 0 or (status.st_uid, status.st_gid) == OWNER

    assert check_scenario(Scenario(prepare, run, check), tmp_path).failures == []


def test_a_file_is_added_whole_or_not_at_all(tmp_path: Path) -> None:
    def run(fs: RecordingFileSystem, root: Path) -> None:
        fsio.add_file(fs, root / "file", NEW)
        fs.mark(DONE)

    scenario = Scenario(
        partial(prepare, old=None), run, partial(check_old_or_new, old=None)
    )  # fmt: skip
    assert check_scenario(scenario, tmp_path).failures == []
    assert surviving_mutants(scenario, tmp_path) == []


# --- changing in place ----------------------------------------------------------------------------


def prepare_linked(root: Path) -> None:
    prepare(root)
    (root / "other").mkdir()
    os.link(root / "file", root / "other" / "name")


def append_alone(fs: RecordingFileSystem, root: Path) -> None:
    with fsio.open_alone(fs, root / "file") as file:
        fs.write(file, NEW)
        fs.fsync(file)
    fs.mark(DONE)


def check_other_name(root: Path, state: CrashState) -> None:
    """The other name has what it had, whatever is left of the change."""
    assert (root / "other" / "name").read_bytes() == OLD
    found = content(root)
    assert found is not None
    assert found.startswith(OLD)
    if DONE in state.marks:
        assert found == OLD + NEW
    assert stat.S_IMODE((root / "file").stat().st_mode) == 0o640


LINKED = Scenario(prepare_linked, append_alone, check_other_name)


def test_a_file_of_two_names_is_changed_under_one(tmp_path: Path) -> None:
    assert check_scenario(LINKED, tmp_path).failures == []
    assert surviving_mutants(LINKED, tmp_path) == []
