"""Changing files: what comes out, what is refused, and what each failing call leaves."""

from __future__ import annotations

import array
import errno
import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from storage.errors import AccessError, RefusedError
from storage.files import fsio
from storage.files.fsio import FileSystem
from tests.crash.faults import FailingFileSystem

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

OLD = b"the content before"
NEW = b"the content after, which is longer"
ERRORS = [errno.ENOSPC, errno.EIO, errno.EACCES, errno.EROFS, errno.EDQUOT]


@pytest.fixture
def fs() -> FileSystem:
    return FileSystem()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file in a directory of its own, with other attributes than its directory."""
    directory = tmp_path / "topic-0"
    directory.mkdir()
    file = directory / "00000000000000000000.index"
    file.write_bytes(OLD)
    file.chmod(0o600)
    return file


def temp_of(path: Path) -> Path:
    return Path(fsio.temp_path(path))


def names_in(directory: Path) -> list[str]:
    return sorted(each.name for each in directory.iterdir())


def open_descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def in_pieces(data: bytes, error: BaseException | None = None) -> Iterator[bytes]:
    for pos in range(0, len(data), 5):
        yield data[pos : pos + 5]
    if error is not None:
        raise error


# --- replacing ------------------------------------------------------------------------------------


@pytest.mark.parametrize("data", [NEW, bytearray(NEW), memoryview(NEW), [NEW[:7], NEW[7:]], b""])
def test_the_content_is_replaced(fs: FileSystem, path: Path, data: bytes) -> None:
    before = open_descriptors()
    fsio.replace_file(fs, path, data)
    assert path.read_bytes() == (b"" if data == b"" else NEW)
    assert names_in(path.parent) == [path.name]
    assert open_descriptors() == before


def test_a_new_file(fs: FileSystem, path: Path) -> None:
    path.unlink()
    fsio.replace_file(fs, str(path), in_pieces(NEW))
    assert path.read_bytes() == NEW


def test_a_relative_path(fs: FileSystem, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(path.parent)
    fsio.replace_file(fs, path.name, NEW)
    assert path.read_bytes() == NEW
    assert fsio.remove_file(fs, path.name)


def test_an_empty_stream_makes_an_empty_file(fs: FileSystem, path: Path) -> None:
    fsio.replace_file(fs, path, iter(()))
    assert path.read_bytes() == b""


@pytest.mark.parametrize(("directory_mode", "mode"), [(0o755, 0o644), (0o700, 0o600), (0o2770, 0o660)])  # fmt: skip
def test_mode_and_owner_are_those_of_the_directory(
    fs: FileSystem, path: Path, directory_mode: int, mode: int
) -> None:
    path.parent.chmod(directory_mode)
    if os.geteuid() == 0:
        os.chown(path.parent, 4321, 8765)
        path.parent.chmod(directory_mode)
    umask = os.umask(0o077)
    try:
        fsio.replace_file(fs, path, NEW)
    finally:
        os.umask(umask)
    found, directory = path.stat(), path.parent.stat()
    assert stat.S_IMODE(found.st_mode) == mode
    assert (found.st_uid, found.st_gid) == (directory.st_uid, directory.st_gid)


def test_attributes_that_are_given(fs: FileSystem, path: Path) -> None:
    wanted = fsio.attributes_for(path.parent)._replace(mode=0o604, mtime_ns=1_000_000_002)
    fsio.replace_file(fs, path, NEW, attributes=wanted)
    found = path.stat()
    assert (stat.S_IMODE(found.st_mode), found.st_mtime_ns) == (0o604, 1_000_000_002)


def test_nobody_else_can_read_it_before_it_has_its_attributes(path: Path) -> None:
    modes = []

    class Looking(FileSystem):
        def write(self, file: fsio.OpenFile, data: fsio.Bytes) -> None:
            modes.append(stat.S_IMODE(os.fstat(file.fd).st_mode))
            super().write(file, data)

    fsio.replace_file(Looking(), path, NEW)
    assert modes == [0o600]


def test_another_name_of_the_old_file_keeps_its_content(fs: FileSystem, path: Path) -> None:
    backup = path.with_suffix(".backup")
    backup.hardlink_to(path)
    fsio.replace_file(fs, path, NEW)
    assert (path.read_bytes(), backup.read_bytes()) == (NEW, OLD)


def test_small_chunks_are_gathered_and_large_ones_pass(path: Path) -> None:
    sizes = []

    class Counting(FileSystem):
        def write(self, file: fsio.OpenFile, data: fsio.Bytes) -> None:
            sizes.append(len(data))
            super().write(file, data)

    chunk = bytes(range(256)) * 4
    chunks = [chunk] * 1500 + [chunk * 2000] + [b"end"]
    fsio.replace_file(Counting(), path, iter(chunks))
    assert path.read_bytes() == b"".join(chunks)
    assert len(sizes) <= 4
    assert min(sizes[:-1]) >= fsio.WRITE_BYTES


# --- what an earlier crash left -------------------------------------------------------------------


def test_a_leftover_is_replaced(fs: FileSystem, path: Path) -> None:
    temp_of(path).write_bytes(b"leftover, and longer than what comes after it" * 9)
    fsio.replace_file(fs, path, NEW)
    assert path.read_bytes() == NEW
    assert names_in(path.parent) == [path.name]


def test_nothing_is_written_through_a_link_in_the_place_of_the_leftover(
    fs: FileSystem, path: Path, tmp_path: Path
) -> None:
    victim = tmp_path / "victim"
    victim.write_bytes(b"untouched")
    temp_of(path).symlink_to(victim)
    fsio.replace_file(fs, path, NEW)
    assert victim.read_bytes() == b"untouched"
    assert (path.read_bytes(), path.is_symlink()) == (NEW, False)


def test_what_is_no_leftover_of_ours_is_left_alone(fs: FileSystem, path: Path) -> None:
    temp_of(path).mkdir()
    with pytest.raises(AccessError):
        fsio.replace_file(fs, path, NEW)
    assert path.read_bytes() == OLD
    assert temp_of(path).is_dir()


def test_all_leftovers_are_removed(fs: FileSystem, path: Path) -> None:
    for name in ("a", "b"):
        temp_of(path.parent / name).touch()
    assert fsio.remove_leftovers(fs, path.parent) == [
        str(path.parent / f"{name}.eoctl-tmp") for name in "ab"
    ]
    assert names_in(path.parent) == [path.name]
    assert fsio.remove_leftovers(fs, path.parent) == []
    with pytest.raises(AccessError):
        fsio.remove_leftovers(fs, path.parent / "missing")


# --- refused --------------------------------------------------------------------------------------


def test_a_symbolic_link_is_not_replaced(fs: FileSystem, path: Path) -> None:
    link = path.parent / "link"
    link.symlink_to(path)
    with pytest.raises(RefusedError, match="symbolic link"):
        fsio.replace_file(fs, link, NEW)
    assert link.is_symlink()
    assert path.read_bytes() == OLD
    with pytest.raises(RefusedError, match="no regular file"):
        fsio.replace_file(fs, path.parent, NEW)


def test_a_missing_directory(fs: FileSystem, tmp_path: Path) -> None:
    with pytest.raises(AccessError) as failed:
        fsio.replace_file(fs, tmp_path / "missing" / "file", NEW)
    assert failed.value.exit_status == 3


@pytest.mark.parametrize(
    ("uid", "gids", "can"),
    [(0, [], True), (1000, [50], True), (1000, [49], False), (1001, [50], False)],
)
def test_who_can_keep_the_owner(
    path: Path, monkeypatch: pytest.MonkeyPatch, uid: int, gids: list[int], can: bool
) -> None:
    monkeypatch.setattr(fsio, "attributes_for", lambda _: fsio.FileAttributes(1000, 50, 0o644))
    monkeypatch.setattr(os, "geteuid", lambda: uid)
    monkeypatch.setattr(os, "getegid", lambda: 7)
    monkeypatch.setattr(os, "getgroups", lambda: gids)
    assert fsio.can_keep_owner(path.parent) is can
    assert fsio.can_keep_owner(path) is can
    if not can:
        with pytest.raises(RefusedError, match="owner") as refused:
            fsio.require_owner(path.parent)
        assert refused.value.exit_status == 4


def test_an_owner_that_cannot_be_kept_is_refused_beforehand(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: path.parent.stat().st_uid + 1)
    fs = FailingFileSystem(99, 0)
    with pytest.raises(RefusedError, match="owner"):
        fsio.replace_file(fs, path, NEW)
    assert fs.calls == []


def test_an_owner_that_turns_out_not_to_be_kept_is_refused_too(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Root without its capabilities, or on a server that maps it to nobody."""
    real = fsio.attributes_for(path.parent)
    monkeypatch.setattr(fsio, "attributes_for", lambda _: real._replace(uid=real.uid + 1))
    monkeypatch.setattr(fsio, "can_give", lambda _: True)

    class Powerless(FileSystem):
        def set_owner(self, file: fsio.OpenFile, uid: int, gid: int) -> None:
            raise PermissionError(errno.EPERM, "Operation not permitted")

    with pytest.raises(RefusedError, match="owner"):
        fsio.replace_file(Powerless(), path, NEW)
    assert path.read_bytes() == OLD
    assert names_in(path.parent) == [path.name]


# --- calls that fail ------------------------------------------------------------------------------


def give_the_directory_away(path: Path) -> None:
    """So that owner and mode must be changed, too."""
    path.parent.chmod(0o750)
    if os.geteuid() == 0:
        os.chown(path.parent, 4321, 8765)


def calls_of(change: Callable[[FileSystem], object]) -> list[str]:
    fs = FailingFileSystem(10**9, 0)
    change(fs)
    return fs.calls


def test_the_calls_of_replacing(path: Path) -> None:
    """If this changes, so does what the tests below fail."""
    give_the_directory_away(path)
    owner = ["set_owner"] if os.geteuid() == 0 else []
    written = ["unlink", "open_new", "write", *owner, "set_mode", "fsync", "close"]
    calls = calls_of(lambda fs: fsio.replace_file(fs, path, NEW))
    assert calls == [*written, "rename", "fsync_dir"]


@pytest.mark.parametrize("error_number", ERRORS)
@pytest.mark.parametrize("is_there", [True, False])
def test_any_failing_call_leaves_the_old_content(
    path: Path, error_number: int, is_there: bool
) -> None:
    give_the_directory_away(path)
    calls = calls_of(lambda fs: fsio.replace_file(fs, path, OLD))
    before = open_descriptors()
    for fails_at, call in enumerate(calls):
        path.unlink(missing_ok=True)
        temp_of(path).write_bytes(b"leftover")
        if is_there:
            path.write_bytes(OLD)
        fs = FailingFileSystem(fails_at, error_number)
        with pytest.raises((AccessError, RefusedError)) as failed:
            fsio.replace_file(fs, path, NEW)
        if isinstance(failed.value, AccessError):
            assert failed.value.errno == error_number
            assert path.parent.name in failed.value.path
        else:  # forbidden to give the file its owner
            assert (call, error_number) == ("set_owner", errno.EACCES)
        assert failed.value.next_step
        if call == "fsync_dir":  # too late to go back, and the error says so
            assert path.read_bytes() == NEW
            assert "new content" in failed.value.next_step
        else:
            assert not path.exists() or path.read_bytes() == OLD
            assert path.exists() is is_there
            assert "the file is as it was" in failed.value.next_step or call == "set_owner"
        # The leftover of an earlier run, when it is the one that could not be removed.
        assert temp_of(path).exists() is (call in {"unlink", "open_new"} and fails_at == 0)
    assert open_descriptors() == before


def test_a_disk_that_is_gone_leaves_the_old_content(path: Path) -> None:
    give_the_directory_away(path)
    calls = calls_of(lambda fs: fsio.replace_file(fs, path, OLD))
    before = open_descriptors()
    for fails_at, call in enumerate(calls):
        path.write_bytes(OLD)
        with pytest.raises(AccessError):
            fsio.replace_file(FailingFileSystem(fails_at, errno.EIO, for_ever=True), path, NEW)
        assert path.read_bytes() == (NEW if call == "fsync_dir" else OLD)
        fsio.replace_file(FileSystem(), path, NEW)  # later, on a good one
        assert names_in(path.parent) == [path.name]
    assert open_descriptors() == before


@pytest.mark.parametrize("error", [ValueError("bad"), OSError(5, "source"), KeyboardInterrupt()])
def test_an_error_of_the_stream_goes_out_as_it_is(
    fs: FileSystem, path: Path, error: BaseException
) -> None:
    before = open_descriptors()
    with pytest.raises(type(error)) as failed:
        fsio.replace_file(fs, path, in_pieces(NEW, error))
    assert failed.value is error
    assert path.read_bytes() == OLD
    assert names_in(path.parent) == [path.name]
    assert open_descriptors() == before


def test_interrupted_at_the_rename(path: Path) -> None:
    class Interrupted(FileSystem):
        def rename(self, old: fsio.StrPath, new: fsio.StrPath) -> None:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fsio.replace_file(Interrupted(), path, NEW)
    assert path.read_bytes() == OLD
    assert names_in(path.parent) == [path.name]


# --- adding and removing --------------------------------------------------------------------------


def test_adding_never_replaces(fs: FileSystem, path: Path) -> None:
    with pytest.raises(AccessError) as failed:
        fsio.add_file(fs, path, NEW)
    assert failed.value.errno == errno.EEXIST
    assert path.read_bytes() == OLD
    assert names_in(path.parent) == [path.name]
    path.unlink()
    fsio.add_file(fs, path, in_pieces(NEW))
    assert path.read_bytes() == NEW
    assert path.stat().st_nlink == 1


def test_any_failing_call_of_adding(path: Path) -> None:
    path.unlink()
    temp = temp_of(Path(f"{path}.{os.getpid()}"))  # each process has its own
    calls = calls_of(lambda fs: fsio.add_file(fs, path, NEW))
    assert calls[-3:] == ["link", "unlink", "fsync_dir"]
    for fails_at, call in enumerate(calls):
        path.unlink(missing_ok=True)
        temp.unlink(missing_ok=True)
        fs = FailingFileSystem(fails_at, errno.ENOSPC)
        if fails_at == len(calls) - 2:  # a second name stays, for the next run to remove
            fsio.add_file(fs, path, NEW)
            assert fsio.remove_leftovers(FileSystem(), path.parent) == [str(temp)]
        else:
            with pytest.raises(AccessError):
                fsio.add_file(fs, path, NEW)
            assert path.exists() is (call == "fsync_dir")
            assert not temp.exists()


def test_removing_syncs_the_directory_also_when_nothing_is_there(path: Path) -> None:
    fs = FailingFileSystem(10**9, 0)
    assert fsio.remove_file(fs, path) is True
    assert fsio.remove_file(fs, path) is False
    assert fs.calls == ["unlink", "fsync_dir"] * 2
    assert not path.exists()


def test_removing_that_fails(path: Path) -> None:
    with pytest.raises(AccessError) as failed:
        fsio.remove_file(FailingFileSystem(0, errno.EACCES), path)
    assert failed.value.next_step.startswith("the file is as it was; run it as the user")
    assert path.exists()
    with pytest.raises(AccessError) as failed:
        fsio.remove_file(FailingFileSystem(1, errno.EIO), path)
    assert "may be back after a crash" in failed.value.next_step


def test_the_clean_marker(fs: FileSystem, tmp_path: Path) -> None:
    (tmp_path / ".kafka_cleanshutdown").touch()
    (tmp_path / "meta.properties").touch()
    assert fsio.remove_clean_marker(fs, tmp_path) is True
    assert names_in(tmp_path) == ["meta.properties"]
    assert fsio.remove_clean_marker(fs, tmp_path) is False


def test_a_directory_like_another(fs: FileSystem, tmp_path: Path) -> None:
    like = tmp_path / "like"
    like.mkdir()
    if os.geteuid() == 0:
        os.chown(like, 4321, 8765)
    like.chmod(0o2751)
    for _ in range(2):
        fsio.make_dir_like(fs, tmp_path / "new", like)
    found, wanted = (tmp_path / "new").stat(), like.stat()
    assert (found.st_mode, found.st_uid, found.st_gid) == (
        wanted.st_mode, wanted.st_uid, wanted.st_gid
    )  # fmt: skip
    with pytest.raises(AccessError):
        fsio.make_dir_like(fs, tmp_path / "missing" / "new", like)


# --- single calls ---------------------------------------------------------------------------------


def test_a_new_file_must_be_new(fs: FileSystem, path: Path) -> None:
    dangling = path.parent / "dangling"
    dangling.symlink_to(path.parent / "elsewhere")
    for there in (path, dangling):
        with pytest.raises(FileExistsError):
            fs.open_new(there)
    assert names_in(path.parent) == [path.name, "dangling"]


def test_only_regular_files_are_opened(fs: FileSystem, path: Path) -> None:
    (path.parent / "link").symlink_to(path)
    os.mkfifo(path.parent / "pipe")
    before = open_descriptors()
    for name in ("link", "pipe", "."):
        with pytest.raises(OSError, match=r"."):
            fs.open_existing(path.parent / name)
    assert open_descriptors() == before


def test_appending_cutting_and_writing_in_the_middle(fs: FileSystem, path: Path) -> None:
    with fs.open_existing(path) as file:
        assert file.pos == len(OLD)
        fs.write(file, b"!!")
        fs.truncate(file, 5)
        fs.write(file, b"-end")
        file.pos = 1
        fs.write(file, array.array("H", [0x4141, 0x4141]))  # type: ignore[arg-type]
        assert file.pos == 5
        fs.set_times(file, atime_ns=10**18, mtime_ns=10**18 + 1)
        fs.set_mode(file, 0o444)
        fs.fsync(file)
    assert path.read_bytes() == b"tAAAA-end"
    assert path.stat().st_mtime_ns == 10**18 + 1
    assert stat.S_IMODE(path.stat().st_mode) == 0o444


def test_short_writes_go_on(fs: FileSystem, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pwrite = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda fd, data, pos: pwrite(fd, data[:3], pos))
    fsio.replace_file(fs, path, NEW)
    assert path.read_bytes() == NEW


def test_a_file_system_that_cannot_sync_directories(
    fs: FileSystem, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fsync = os.fsync
    raised = errno.EINVAL

    def refuse_directories(fd: int) -> None:
        if stat.S_ISDIR(os.fstat(fd).st_mode):
            raise OSError(raised, os.strerror(raised))
        fsync(fd)

    monkeypatch.setattr(os, "fsync", refuse_directories)
    fsio.replace_file(fs, path, NEW)
    assert path.read_bytes() == NEW
    raised = errno.EIO
    with pytest.raises(AccessError):
        fsio.replace_file(fs, path, OLD)


def test_names(fs: FileSystem, tmp_path: Path) -> None:
    fs.make_dir(tmp_path / "dir")
    assert stat.S_IMODE((tmp_path / "dir").stat().st_mode) == 0o700
    fs.remove_dir(tmp_path / "dir")
    fs.close(fs.open_new(tmp_path / "a"))
    fs.link(tmp_path / "a", tmp_path / "b")
    fs.rename(tmp_path / "a", tmp_path / "c")
    fs.unlink(tmp_path / "b")
    fs.fsync_dir(tmp_path)
    assert names_in(tmp_path) == ["c"]


def test_the_first_error_counts_when_closing_fails_too(path: Path) -> None:
    fs = FailingFileSystem(1, errno.EIO)
    with pytest.raises(ValueError, match="first"), fs.open_existing(path):
        raise ValueError("first")
    assert fs.calls == ["open_existing", "close"]
    fs = FailingFileSystem(1, errno.EIO)
    with pytest.raises(OSError, match="Input/output"), fs.open_existing(path):
        pass


class RacedFileSystem(FileSystem):
    """Lets another process add the same file just before this one does."""

    def link(self, old: fsio.StrPath, new: fsio.StrPath) -> None:
        child = os.fork()
        if not child:
            try:
                fsio.add_file(FileSystem(), new, NEW)
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        super().link(old, new)


def test_two_processes_that_add_one_file(tmp_path: Path) -> None:
    """The first one has added it, the other one is told so, and nothing else is left."""
    with pytest.raises(AccessError) as caught:
        fsio.add_file(RacedFileSystem(), tmp_path / "file", b"other")
    assert caught.value.errno == errno.EEXIST
    assert {each.name: each.read_bytes() for each in tmp_path.iterdir()} == {"file": NEW}
