"""Files behind URIs: what is read of them, and what becomes of errors."""

from __future__ import annotations

import errno
import os
import pickle
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyarrow")

import pyarrow as pa
from pyarrow.fs import LocalFileSystem, SubTreeFileSystem, _MockFileSystem

from eoctl.arrow_files import ArrowTree, open_tree
from eoctl.libraries import install_call
from storage.errors import AccessError, UsageError
from storage.files import file_systems
from storage.files.file_systems import (
    MAX_MEDIA_ERRORS,
    RemoteFile,
    locate,
    register_default,
    register_file_system,
)
from storage.files.positioned_file import FileRange, Unreadable
from storage.formats.offset_index import encode_entries
from storage.places.list_places import list_places, open_place
from storage.places.splits import Split, split_places
from tests.remote_trees import Range, WatchedHandler, watched
from tests.storage.places.test_splits import batch, true_entries

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from storage.places.listing import SegmentPlace

CONTENT = bytes(range(1, 251)) * 4_000  # 1,000,000 bytes


@pytest.fixture
def tree(tmp_path: Path) -> Iterator[WatchedHandler]:
    """What `sim://host/...` leads to: a watched directory with a file in it."""
    handler, file_system = watched(tmp_path)
    register_file_system("sim", lambda uri: (ArrowTree(file_system), ""))
    (tmp_path / "file").write_bytes(CONTENT)
    yield handler
    file_systems._factories.pop("sim")
    register_default(open_tree)


def open_file() -> RemoteFile:
    return RemoteFile("sim://host/file")


def test_reads_what_is_there(tree: WatchedHandler) -> None:
    with open_file() as file:
        assert file.path == "sim://host/file"
        assert file.file_bytes == len(CONTENT)
        assert file.read_at(0, 20) == (CONTENT[:20], ())
        assert file.read_at(999_990, 100) == (CONTENT[999_990:], ())
        assert file.read_at(1_000_000, 1) == (b"", ())
        assert file.read_at(2**40, 1) == (b"", ())
        view = memoryview(bytearray(5))
        assert file.read_into(view, 7).filled_bytes == 5
        assert view == CONTENT[7:12]
    file.close()
    assert tree.ranges == [
        Range("file", 0, 20), Range("file", 999_990, 10), Range("file", 7, 5),
    ]  # fmt: skip


def test_a_closed_file_cannot_be_read(tree: WatchedHandler) -> None:
    file = open_file()
    file.close()
    assert file.read_at(0, 5) == (bytes(5), (Unreadable(0, 5, errno.EBADF),))


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (OSError(errno.ESTALE, "stale"), errno.ESTALE),
        (OSError("AWS Error SLOW_DOWN"), errno.ECOMM),
        (OSError("AWS Error ACCESS_DENIED during GetObject"), errno.EACCES),
        (FileNotFoundError("gone"), errno.ENOENT),
        (pa.ArrowInvalid("what is this"), errno.ECOMM),
        (pa.ArrowNotImplementedError("no"), errno.ECOMM),
        (RuntimeError("of some library"), errno.ECOMM),
    ],
)
def test_an_error_makes_the_request_unreadable(
    tree: WatchedHandler, error: Exception, code: int
) -> None:
    tree.errors["file", 5_000] = error
    with open_file() as file:
        assert file.read_at(4_000, 9_000) == (bytes(9_000), (Unreadable(4_000, 13_000, code),))
        assert len(tree.ranges) == 1
        assert str(error).splitlines()[0] in file.last_error
        assert file.read_at(6_000, 10) == (CONTENT[6_000:6_010], ())


def test_a_bad_place_is_found_exactly(tree: WatchedHandler) -> None:
    tree.errors["file", 5_000] = OSError(errno.EIO, "dying")
    with open_file() as file:
        reading = file.read_at(0, 20_000)
        hole = Unreadable(9 * 512, 10 * 512, errno.EIO)
        assert reading.unreadable == (hole,)
        assert reading.data[: hole.start_pos] == CONTENT[: hole.start_pos]
        assert reading.data[hole.end_pos :] == CONTENT[hole.end_pos : 20_000]
    assert len(tree.ranges) < 20


def test_many_bad_places_do_not_cost_a_request_each(tree: WatchedHandler) -> None:
    for pos in range(0, 1_000_000, 512):
        tree.errors["file", pos] = OSError(errno.EIO, "dying")
    with open_file() as file:
        reading = file.read_at(0, 1_000_000)
        assert reading.unreadable[0].start_pos == 0
        assert reading.unreadable[-1].end_pos == 1_000_000
        assert len(tree.ranges) < 3 * MAX_MEDIA_ERRORS


def test_a_file_that_became_shorter(tree: WatchedHandler) -> None:
    with open_file() as file:
        os.truncate(tree.root / "file", 5_000)
        assert file.file_bytes == 1_000_000
        source = FileRange(file)
        assert source.read(4_000, 9_000) == CONTENT[4_000:5_000]
        assert source.shrank
        assert source.end_pos == 5_000


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (FileNotFoundError(errno.ENOENT, "not there"), errno.ENOENT),
        (PermissionError("no"), errno.EACCES),
        (OSError("AWS Error UNKNOWN"), errno.ECOMM),
        (pa.ArrowInvalid("no"), errno.ECOMM),
        (ZeroDivisionError("no"), errno.ECOMM),
    ],
)
def test_a_file_that_cannot_be_opened(tree: WatchedHandler, error: Exception, code: int) -> None:
    tree.errors["file"] = error
    with pytest.raises(AccessError) as caught:
        open_file()
    assert (caught.value.path, caught.value.errno) == ("sim://host/file", code)
    assert str(error).split("] ")[-1] in str(caught.value)


def test_what_is_not_there_or_no_file(tree: WatchedHandler) -> None:
    with pytest.raises(AccessError) as caught:
        RemoteFile("sim://host/none")
    assert caught.value.errno == errno.ENOENT
    (tree.root / "dir").mkdir()
    with pytest.raises(AccessError):
        RemoteFile("sim://host/dir")


# --- file systems


def test_a_scheme_that_nothing_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match=r"nope:"):
        RemoteFile("nope://host/x")
    monkeypatch.setattr(file_systems, "_defaults", [])
    with pytest.raises(UsageError) as caught:
        RemoteFile("nope2://host/x")
    assert "arrow_files" in caught.value.next_step


def test_without_pyarrow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("eoctl.arrow_files.find_spec", lambda name: None)
    with pytest.raises(UsageError) as caught:
        open_place("s3://bucket-without-arrow/00000000000000000000.log")
    assert caught.value.next_step == install_call("pyarrow>=15")
    with pytest.raises(UsageError, match="pyarrow"):
        list_places(["s3://bucket-without-arrow/logs"])


def test_file_systems_are_kept(tree: WatchedHandler) -> None:
    opened = []

    def factory(uri: str) -> tuple[Any, str]:
        opened.append(uri)
        return ArrowTree(SubTreeFileSystem(str(tree.root), LocalFileSystem())), "x"

    register_file_system("sim", factory)
    for name in ("a", "b%20c", "d"):
        assert locate(f"sim://one/{name}").path == f"x/{name.replace('%20', ' ')}"
    locate("sim://two/a")
    locate("sim://one/a?region=r")
    assert opened == ["sim://one/", "sim://two/", "sim://one/?region=r"]
    register_file_system("sim", factory)
    locate("sim://one/a")
    assert len(opened) == 4
    for number in range(file_systems.KEPT_COUNT):
        locate(f"sim://{number}/")
    locate("sim://one/a")
    assert len(opened) == 4 + file_systems.KEPT_COUNT + 1


def test_a_forked_process_opens_its_own(tree: WatchedHandler, monkeypatch: Any) -> None:
    before = locate("sim://host/file").tree
    assert locate("sim://host/file").tree is before
    parent = os.getpid()
    register_file_system("sim", lambda uri: (ArrowTree(object()), ""))
    first = locate("sim://host/file").tree
    monkeypatch.setattr(os, "getpid", lambda: parent + 1)
    assert locate("sim://host/file").tree is not first


def test_a_file_system_that_cannot_be_opened() -> None:
    def factory(uri: str) -> tuple[Any, str]:
        raise OSError(errno.EHOSTUNREACH, "no route")

    register_file_system("sim", factory)
    with pytest.raises(AccessError) as caught:
        locate("sim://host/x")
    assert caught.value.errno == errno.EHOSTUNREACH
    file_systems._factories.pop("sim")


def test_pyarrow_knows_the_common_schemes() -> None:
    """S3 is opened without a request when the region is given."""
    found = locate("s3://bucket/a%20b/c?region=eu-west-1")
    assert found.path == "bucket/a b/c"
    assert found.uri_of("bucket/a b/c/d*") == "s3://bucket/a%20b/c/d%2A?region=eu-west-1"
    assert locate(found.uri_of("bucket/a b/c/d*")).path == "bucket/a b/c/d*"


# --- segments


def make_segment(root: Path) -> tuple[SegmentPlace, list[Split]]:
    data = b"".join(batch(offset, os.urandom(9_000)) for offset in range(400))
    partition = root / "t-0"
    partition.mkdir()
    (partition / "00000000000000000000.log").write_bytes(data)
    (place,) = list_places([str(partition)]).places
    (partition / "00000000000000000000.index").write_bytes(encode_entries(true_entries(place)))
    (remote,) = list_places(["sim://host/t-0"]).places
    return remote, split_places([remote], len(data) // 4)


def test_a_scan_of_a_split_reads_its_range(tree: WatchedHandler) -> None:
    _place, splits = make_segment(tree.root)
    assert len(splits) == 4
    for split in splits:
        tree.ranges.clear()
        with open_place(split.place) as segment:
            end_pos = None if split.is_last else split.end_pos
            tables = list(segment.scan_tables(start_pos=split.start_pos, end_pos=end_pos))
        assert sum(each.row_count for each in tables) > 90
        assert min(each.pos for each in tree.ranges) == split.start_pos
        assert max(each.pos + each.count for each in tree.ranges) == split.end_pos
        assert sum(each.count for each in tree.ranges) <= split.end_pos - split.start_pos + 20_000
        assert len(tree.ranges) <= 3


def test_cutting_reads_a_small_part(tree: WatchedHandler, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("storage.places.splits.CHAIN_BYTES", 40_000)
    monkeypatch.setattr("storage.kernels.scan.WINDOW_BYTES", 40_000)
    place, splits = make_segment(tree.root)
    assert len(splits) == 4
    log_ranges = [each for each in tree.ranges if each.path.endswith(".log")]
    assert sum(each.count for each in log_ranges) < 3 * 100_000 < place.file_bytes / 10
    opened = [path for what, path in tree.calls if what == "open"]
    assert opened.count("t-0/00000000000000000000.index") == 1
    assert opened.count("t-0/00000000000000000000.log") == 1


def test_the_zeros_of_a_live_index_are_not_fetched(tree: WatchedHandler) -> None:
    place, splits = make_segment(tree.root)
    index = tree.root / "t-0" / "00000000000000000000.index"
    index.write_bytes(index.read_bytes() + bytes(10 << 20))
    tree.ranges.clear()
    assert split_places([place], place.file_bytes // 4) == splits
    assert sum(each.count for each in tree.ranges if each.path.endswith(".index")) <= 512 << 10


def test_an_unreadable_range_is_a_verdict(tree: WatchedHandler) -> None:
    place, splits = make_segment(tree.root)
    tree.errors["t-0/00000000000000000000.log", splits[1].start_pos + 100] = OSError("AWS Error X")
    with open_place(place) as segment:
        scan = segment.scan()
        assert not [each for each in scan if each.pos == splits[1].start_pos]
        assert {each.kind.value for each in scan.verdicts} == {"unreadable"}
        assert scan.verdicts[0].errno == errno.ECOMM
    starts = [each.start_pos for each in split_places([place], place.file_bytes // 4)]
    assert starts[0] == 0
    assert splits[1].start_pos not in starts


def test_places_travel(tree: WatchedHandler) -> None:
    place, splits = make_segment(tree.root)
    assert pickle.loads(pickle.dumps(splits)) == splits
    assert place.path == "sim://host/t-0/00000000000000000000.log"
    with open_place(place.path) as segment:
        assert segment.base_offset == 0
        assert segment.known_base_offset == 0
    with open_place(f"{place.path}?a=b") as segment:
        assert segment.known_base_offset == 0


def test_file_uris_are_local_paths(tmp_path: Path) -> None:
    path = tmp_path / "a b" / "t-0"
    path.mkdir(parents=True)
    (path / "00000000000000000007.log").write_bytes(batch(7, b"v"))
    uri = f"file://{tmp_path}/a%20b"
    with open_place(f"{uri}/t-0/00000000000000000007.log") as segment:
        assert segment.path == str(path / "00000000000000000007.log")
        assert segment.base_offset == 7
    expected = list_places([str(tmp_path / "a b")])
    assert len(expected.places) == 1
    assert list_places([uri]) == expected
    assert list_places([uri.replace("file://", "file:")]) == expected
    assert list_places([f"file://localhost{tmp_path}/a%20b/t-*"]).places == expected.places
    with pytest.raises(UsageError):
        list_places(["file://elsewhere/data"])


def test_a_file_system_in_memory() -> None:
    file_system = _MockFileSystem()
    file_system.create_dir("logs/t-0")
    with file_system.open_output_stream("logs/t-0/00000000000000000000.log") as out:
        out.write(batch(0, b"v") + batch(1, b"w"))
    register_file_system("mock", lambda uri: (ArrowTree(file_system), ""))
    try:
        (place,) = list_places(["mock:///logs"]).places
        assert place.directory == "mock:///logs/t-0"
        assert place.modified_ns > 0
        with open_place(place) as segment:
            assert [each.header.base_offset for each in segment.scan()] == [0, 1]
    finally:
        file_systems._factories.pop("mock")
