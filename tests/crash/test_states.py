"""The crash harness itself: the states it makes, and that it sees what goes wrong."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from storage.files.broker_lock import take
from storage.files.fsio import FileSystem
from tests.crash.faults import CALLS, FailingFileSystem
from tests.crash.recording import RecordingFileSystem
from tests.crash.scenario import ForgetfulFileSystem
from tests.crash.states import CrashState, check_states, crash_states
from tests.storage.files.test_broker_lock import seen_by_a_child

if TYPE_CHECKING:
    from collections.abc import Callable

Contents = dict[str, bytes]


def contents(state: CrashState) -> Contents:
    return {path: inode.data for path, (_, inode) in state.tree.items() if path != "."}


def states_of(
    root: Path, change: Callable[[RecordingFileSystem], None], **options: int
) -> list[Contents]:
    """The distinct contents of all states, marks apart."""
    recording = RecordingFileSystem(root)
    change(recording)
    found: list[Contents] = []
    for state in crash_states(recording, **options):
        if contents(state) not in found:
            found.append(contents(state))
    return found


@pytest.fixture
def root(tmp_path: Path) -> Path:
    path = tmp_path / "root"
    path.mkdir()
    return path


def test_unsynced_writes_are_lost_torn_kept_or_zeros(root: Path) -> None:
    (root / "f").write_bytes(b"old")

    def change(fs: RecordingFileSystem) -> None:
        with fs.open_existing(root / "f") as file:
            fs.write(file, b"1234")
            fs.write(file, b"ab")

    found = [each["f"] for each in states_of(root, change)]
    assert set(found) == {
        b"old",
        b"old12",  # the first one torn
        b"old1234",
        b"old1234a",  # the second one torn
        b"old1234ab",
        b"old\0\0\0\0ab",  # the second one alone
        b"old\0\0\0\0",  # the sizes alone
        b"old\0\0\0\0\0\0",
    }
    assert len(found) == 8


def test_an_fsync_confirms_what_was_written_before_it(root: Path) -> None:
    (root / "f").write_bytes(b"old")
    recording = RecordingFileSystem(root)
    with recording.open_existing(root / "f") as file:
        recording.write(file, b"12")
        recording.fsync(file)
        recording.mark("synced")
        recording.truncate(file, 1)
    after = [state.read("f") for state in crash_states(recording) if state.marks]
    assert after == [b"old12", b"o"]


def test_a_write_in_the_middle_keeps_what_is_around_it(root: Path) -> None:
    (root / "f").write_bytes(b"abcdef")

    def change(fs: RecordingFileSystem) -> None:
        with fs.open_existing(root / "f") as file:
            file.pos = 2
            fs.write(file, b"XY")

    assert [each["f"] for each in states_of(root, change)] == [b"abcdef", b"abXdef", b"abXYef"]
    assert (root / "f").read_bytes() == b"abXYef"


def test_names_and_contents_reach_the_disk_in_any_order(root: Path) -> None:
    (root / "f").write_bytes(b"old")

    def change(fs: RecordingFileSystem) -> None:
        with fs.open_new(root / "t") as file:
            fs.write(file, b"new!")
        fs.rename(root / "t", root / "f")

    found = states_of(root, change)
    assert {"f": b"old"} in found
    assert {"f": b"old", "t": b""} in found
    assert {"f": b"old", "t": b"ne"} in found
    assert {"f": b"new!"} in found
    assert {"f": b""} in found  # the classic: the rename survived, the data did not
    assert {"f": b"ne"} in found
    assert {"f": bytes(4)} in found
    assert {"t": b"new!"} not in found  # a rename is whole
    assert all("f" in each for each in found)


def test_an_fsync_of_the_directory_confirms_names_and_no_data(root: Path) -> None:
    recording = RecordingFileSystem(root)
    with recording.open_new(root / "f") as file:
        recording.write(file, b"new!")
        recording.fsync_dir(root)
    recording.mark("named")
    after = [contents(state) for state in crash_states(recording) if state.marks]
    assert after == [{"f": b""}, {"f": bytes(4)}, {"f": b"ne"}, {"f": b"new!"}]


def test_an_fsync_of_the_file_does_not_confirm_its_name(root: Path) -> None:
    recording = RecordingFileSystem(root)
    with recording.open_new(root / "f") as file:
        recording.write(file, b"new!")
        recording.fsync(file)
    recording.mark("synced")
    assert [contents(s) for s in crash_states(recording) if s.marks] == [{}, {"f": b"new!"}]


def test_renames_are_reordered_until_the_directory_is_synced(root: Path) -> None:
    for name in "ab":
        (root / name).write_bytes(name.encode())

    def change(fs: RecordingFileSystem) -> None:
        fs.rename(root / "a", root / "A")
        fs.unlink(root / "b")

    def synced_between(fs: RecordingFileSystem) -> None:
        fs.rename(root / "A", root / "a")
        fs.fsync_dir(root)
        fs.unlink(root / "a")

    names = [sorted(each) for each in states_of(root, change)]
    assert sorted(names) == [["A"], ["A", "b"], ["a"], ["a", "b"]]
    names = [sorted(each) for each in states_of(root, synced_between)]
    assert names == [["A"], ["a"], []]


def test_a_name_that_changes_to_and_fro(root: Path) -> None:
    (root / "a").write_bytes(b"1")

    def change(fs: RecordingFileSystem) -> None:
        fs.rename(root / "a", root / "b")
        fs.rename(root / "b", root / "a")
        fs.rename(root / "a", root / "b")
        fs.fsync_dir(root)

    assert states_of(root, change) == [{"a": b"1"}, {"b": b"1"}]


def test_a_rename_between_directories_needs_both_synced(root: Path) -> None:
    for name in ("one", "two"):
        (root / name).mkdir()
    (root / "one" / "f").write_bytes(b"1")
    recording = RecordingFileSystem(root)
    recording.rename(root / "one" / "f", root / "two" / "f")
    for directory in ("one", "two"):
        recording.fsync_dir(root / directory)
        recording.mark(directory)
    states = list(crash_states(recording))
    assert all(("one/f" in state.tree) != ("two/f" in state.tree) for state in states)
    after_one = [state for state in states if state.marks == ("one",)]
    assert {"one/f" in state.tree for state in after_one} == {True, False}
    assert ["two/f" in state.tree for state in states if len(state.marks) == 2] == [True]


def test_new_and_removed_directories(root: Path) -> None:
    (root / "old").mkdir()

    def change(fs: RecordingFileSystem) -> None:
        fs.make_dir(root / "new")
        with fs.open_new(root / "new" / "f") as file:
            fs.fsync(file)
        fs.fsync_dir(root / "new")
        fs.remove_dir(root / "old")

    names = [sorted(each) for each in states_of(root, change)]
    before = [["new", "new/f", "old"], ["new", "old"], ["old"]]
    after = [[], ["new", "new/f"]]  # what is in `new` was certain by then, its own name never is
    assert sorted(names) == sorted([*before, *after])


def test_attributes_wait_for_the_fsync_of_the_file(root: Path) -> None:
    (root / "f").write_bytes(b"1")
    (root / "f").chmod(0o600)
    recording = RecordingFileSystem(root)
    with recording.open_existing(root / "f") as file:
        recording.set_mode(file, 0o640)
        recording.set_times(file, atime_ns=1, mtime_ns=2)
        recording.mark("set")
        recording.fsync(file)
        recording.mark("synced")
    found = [(state.marks, state.tree["f"][1]) for state in crash_states(recording)]
    assert {inode.mode for marks, inode in found if marks == ("set",)} == {0o600, 0o640}
    synced = [inode for marks, inode in found if len(marks) == 2]
    assert [(inode.mode, inode.mtime_ns) for inode in synced] == [(0o640, 2)]


def test_attributes_of_a_directory_wait_for_its_fsync(root: Path) -> None:
    (root / "sub").mkdir(mode=0o700)
    recording = RecordingFileSystem(root)
    with recording.open_dir(root / "sub") as directory, recording.open_new(root / "sub" / "f"):
        recording.set_mode(directory, 0o750)
        recording.mark("set")
        recording.fsync(directory)
        recording.mark("synced")
    found = [(s.marks, s.tree["sub"][1].mode, "sub/f" in s.tree) for s in crash_states(recording)]
    assert {each[1:] for each in found if each[0] == ("set",)} == {
        (mode, is_there) for mode in (0o700, 0o750) for is_there in (False, True)
    }
    assert [each[1:] for each in found if len(each[0]) == 2] == [(0o750, True)]


def test_a_state_is_made_real_with_everything(root: Path, tmp_path: Path) -> None:
    (root / "sub").mkdir(mode=0o750)
    (root / "sub" / "f").write_bytes(b"data")
    (root / "sub" / "f").chmod(0o440)
    os.utime(root / "sub" / "f", ns=(5, 1_234_567_891))
    (root / "hard").hardlink_to(root / "sub" / "f")
    (root / "link").symlink_to("sub/f")
    (state,) = crash_states(RecordingFileSystem(root))
    made = tmp_path / "made"
    state.write_to(made)
    found = (made / "sub" / "f").stat()
    assert (made / "sub" / "f").read_bytes() == b"data"
    assert (stat.S_IMODE(found.st_mode), found.st_mtime_ns) == (0o440, 1_234_567_891)
    assert stat.S_IMODE((made / "sub").stat().st_mode) == 0o750
    assert (made / "hard").samefile(made / "sub" / "f")
    assert (made / "link").readlink() == Path("sub/f")
    again = RecordingFileSystem(made)
    assert again.inodes == RecordingFileSystem(root).inodes


def test_links_share_what_is_written_through_one(root: Path) -> None:
    (root / "f").write_bytes(b"1")

    def change(fs: RecordingFileSystem) -> None:
        fs.link(root / "f", root / "g")
        fs.fsync_dir(root)
        with fs.open_existing(root / "g") as file:
            fs.write(file, b"2")
            fs.fsync(file)

    found = states_of(root, change)
    assert {"f": b"12", "g": b"12"} in found
    assert all(each.get("g", each["f"]) == each["f"] for each in found)


def test_each_state_once_and_after_other_marks_again(root: Path) -> None:
    recording = RecordingFileSystem(root)
    recording.mark("first")
    with recording.open_new(root / "f"):
        pass
    recording.fsync_dir(root)
    recording.fsync_dir(root)
    found = [(state.marks, sorted(contents(state))) for state in crash_states(recording)]
    assert found == [((), []), (("first",), []), (("first",), ["f"])]


def test_too_many_combinations_are_thinned_out(root: Path) -> None:
    def change(fs: RecordingFileSystem) -> None:
        for number in range(9):
            with fs.open_new(root / str(number)) as file:
                fs.write(file, b"12")

    found = states_of(root, change, combinations_max=100)
    assert len(found) < 600
    everything = {str(number): b"12" for number in range(9)}
    assert {} in found
    assert everything in found
    for number in everything:  # each one alone is lost, torn, or the only one
        others = {name: data for name, data in everything.items() if name != number}
        assert others in found
        assert {**everything, number: b"1"} in found
        assert {number: b""} in found


def test_a_long_row_of_writes_is_thinned_out(root: Path) -> None:
    def change(fs: RecordingFileSystem) -> None:
        with fs.open_new(root / "f") as file:
            for _ in range(60):
                fs.write(file, b"ab")

    found = [each["f"] for each in states_of(root, change) if each]
    assert {b"ab" * count for count in range(61)} <= set(found)
    assert b"ab" * 59 + b"a" in found
    assert len(found) < 600


def test_failures_of_the_checker_are_collected_and_described(root: Path, tmp_path: Path) -> None:
    recording = RecordingFileSystem(root)
    with recording.open_new(root / "f") as file:
        recording.write(file, b"12")
    recording.fsync_dir(root)

    def check(made: Path, state: CrashState) -> None:
        assert not (made / "f").exists() or (made / "f").read_bytes() != b"1"

    report = check_states(recording, check, tmp_path)
    assert (report.operations_count, len(report.failures)) == (3, 1)
    assert report.states_count == 5
    assert "after 2 operations (write f [0, 2)), lost: half of write f" in str(report)
    assert not (tmp_path / "run").exists()

    def broken(made: Path, state: CrashState) -> None:
        raise KeyError

    with pytest.raises(KeyError):
        check_states(recording, broken, tmp_path)


def test_a_change_outside_of_the_root_is_an_error(root: Path, tmp_path: Path) -> None:
    recording = RecordingFileSystem(root)
    (tmp_path / "outside").touch()
    with pytest.raises(AssertionError, match="outside"):
        recording.unlink(tmp_path / "outside")


def test_recording_does_not_drop_a_lock(root: Path) -> None:
    with take([root]):
        recording = RecordingFileSystem(root)
        assert seen_by_a_child(root / ".lock") == str(os.getpid())
        assert [contents(state) for state in crash_states(recording)] == [{".lock": b""}]


def test_a_failed_call_is_not_recorded(root: Path) -> None:
    recording = RecordingFileSystem(root)
    for call in (recording.unlink, recording.open_existing, recording.remove_dir):
        with pytest.raises(FileNotFoundError):
            call(root / "missing")
    assert recording.operations == []


def test_the_forgetful_one_leaves_out_one_fsync_of_either_kind(root: Path) -> None:
    for forgotten, kept in [(0, ["fsync ./"]), (1, ["fsync f"]), (2, ["fsync f", "fsync ./"])]:
        fs = ForgetfulFileSystem(root, forgotten)
        with fs.open_new(root / "f") as file:
            fs.fsync(file)
        fs.fsync_dir(root)
        assert [each.text for each in fs.operations[1:]] == kept
        (root / "f").unlink()


# --- calls that fail ------------------------------------------------------------------------------


def test_every_call_is_recorded_and_can_fail() -> None:
    """Whoever adds a call to FileSystem adds it to the recorder."""
    for name in CALLS:
        assert getattr(FailingFileSystem, name) is not getattr(FileSystem, name)
        assert getattr(RecordingFileSystem, name) is not getattr(FileSystem, name)


def test_the_nth_call_fails_once_or_from_then_on(root: Path) -> None:
    def run(fs: FailingFileSystem) -> list[int]:
        errors = []
        for name in "abc":
            try:
                fs.make_dir(root / name)
                fs.remove_dir(root / name)
            except OSError as error:
                errors.append(error.errno or 0)
        return errors

    assert run(FailingFileSystem(6, 28)) == []
    assert run(FailingFileSystem(2, 28)) == [28]
    assert run(FailingFileSystem(2, 28, for_ever=True)) == [28, 28]


def test_a_failing_write_is_half_done_and_a_failing_close_closes(root: Path) -> None:
    fs = FailingFileSystem(1, 28)
    file = fs.open_new(root / "f")
    with pytest.raises(OSError, match="No space"):
        fs.write(file, b"1234")
    assert (root / "f").read_bytes() == b"12"
    fs.close(file)

    fs = FailingFileSystem(1, 5)
    file = fs.open_new(root / "g")
    fd = file.fd
    with pytest.raises(OSError, match="Input/output"):
        fs.close(file)
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(fd)
    fs.close(file)  # harmless
