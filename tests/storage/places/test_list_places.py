"""From PATHs to segments: local paths and URIs, wildcards, brokers."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from eoctl.arrow_files import ArrowTree, open_tree
from storage.dirs.discovery import NotKafkaError
from storage.errors import AccessError, CorruptError, UsageError
from storage.files import file_systems
from storage.files.file_systems import register_default, register_file_system
from storage.places.list_places import list_places, map_places, open_place
from storage.places.listing import Listing, SegmentPlace
from tests.remote_trees import WatchedHandler, watched

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

SEGMENTS = ("00000000000000000000.log", "00000000000000000007.log")


def make_partition(path: Path, *, segments: tuple[str, ...] = SEGMENTS) -> Path:
    path.mkdir(parents=True)
    for number, name in enumerate(segments):
        (path / name).write_bytes(b"x" * number)
        os.utime(path / name, ns=(1, 1_000_000_000 + number))
    return path


def make_broker(path: Path, node_id: int | None, *partitions: str) -> Path:
    for each in partitions:
        make_partition(path / each)
    path.mkdir(exist_ok=True, parents=True)
    if node_id is None:
        (path / "recovery-point-offset-checkpoint").write_text("0\n0\n")
    else:
        (path / "meta.properties").write_text(f"version=1\ncluster.id=x\nnode.id={node_id}\n")
    return path


def brokers_of(listing: Listing) -> list[tuple[str, str]]:
    return [(each.broker, f"{each.topic}-{each.partition}") for each in listing.directories]


def test_a_log_dir(tmp_path: Path) -> None:
    log_dir = make_broker(tmp_path / "logs", 4, "t-0", "__consumer_offsets-1")
    (log_dir / "u-0").mkdir()
    found = list_places([str(log_dir)])
    assert found.places == (
        *(
            SegmentPlace(
                "4", "__consumer_offsets", 1,
                f"{log_dir}/__consumer_offsets-1", f"{log_dir}/__consumer_offsets-1/{name}",
                base_offset, bool(base_offset), number, 1_000_000_000 + number,
                end_offset=None if base_offset else 7,
            )
            for number, (name, base_offset) in enumerate(zip(SEGMENTS, (0, 7), strict=True))
        ),
        *(
            SegmentPlace(
                "4", "t", 0, f"{log_dir}/t-0", f"{log_dir}/t-0/{name}",
                base_offset, bool(base_offset), number, 1_000_000_000 + number,
                end_offset=None if base_offset else 7,
            )
            for number, (name, base_offset) in enumerate(zip(SEGMENTS, (0, 7), strict=True))
        ),
    )  # fmt: skip
    assert [each.has_sequences for each in found.places] == [False, False, True, True]
    assert brokers_of(found) == [("4", "__consumer_offsets-1"), ("4", "t-0"), ("4", "u-0")]
    assert (found.problems, found.notes) == ((), ())


def test_open_place(tmp_path: Path) -> None:
    partition = make_partition(tmp_path / "t-0")
    place = list_places([str(partition)]).places[1]
    with open_place(place) as segment:
        assert (segment.path, segment.base_offset, segment.file_bytes) == (place.path, 7, 1)
    with open_place(place.path) as segment:
        assert segment.base_offset == 7
    with open_place(place, 3) as segment:
        assert segment.base_offset == 3
    with pytest.raises(AccessError) as caught:
        open_place(f"{partition}/none.log")
    assert caught.value.errno == errno.ENOENT


# --- wildcards and brokers


def test_wildcards_in_any_component(tmp_path: Path) -> None:
    for number in (1, 2, 10):
        make_broker(tmp_path / f"broker-{number}" / "logs", None, "t-0", "t-1", "u-0")
    pattern = f"{tmp_path}/broker-?/l*s/[t]-*"
    assert brokers_of(list_places([pattern])) == [
        ("broker-1", "t-0"), ("broker-1", "t-1"), ("broker-2", "t-0"), ("broker-2", "t-1"),
    ]  # fmt: skip
    assert brokers_of(list_places([f"{tmp_path}/*/logs"]))[::3] == [
        ("broker-1", "t-0"), ("broker-10", "t-0"), ("broker-2", "t-0"),
    ]  # fmt: skip
    for none in ("[!b]*-1", "**/u-7", "broker-1/logs/t-0/x*", "*/logs/t-0/*.log/*", "none/*"):
        with pytest.raises(AccessError) as caught:
            list_places([f"{tmp_path}/{none}"])
        assert caught.value.path == f"{tmp_path}/{none}"
        assert caught.value.errno == errno.ENOENT


def test_the_broker_of_a_directory(tmp_path: Path) -> None:
    """The node id, else what the first wildcard stands for, else the log dir."""
    make_broker(tmp_path / "east" / "logs", 7, "t-0")
    make_broker(tmp_path / "west" / "logs", None, "t-0")
    (tmp_path / "bad" / "logs" / "t-0").mkdir(parents=True)
    (tmp_path / "bad" / "logs" / "meta.properties").write_text("version=9\n")
    west = str(tmp_path / "west" / "logs")
    for pattern in ("*/logs", "*/*/t-0", "*/logs/t-*"):
        found = list_places([f"{tmp_path}/{pattern}"])
        assert [each.broker for each in found.directories] == ["bad", "7", "west"]
        assert [each.check_id for each in found.problems] == ["DIR-3"]  # type: ignore[union-attr]
    for path in (west, f"{west}/t-0", f"{west}/t-*", f"{tmp_path}/west/logs/*/*.log"):
        assert brokers_of(list_places([path])) == [(west, "t-0")]
    assert brokers_of(list_places([f"{tmp_path}/west/*", f"{tmp_path}/*/logs"]))[2][0] == "logs"


def test_two_brokers_may_have_the_same_partition(tmp_path: Path) -> None:
    for name in ("a", "b"):
        make_broker(tmp_path / name, None, "t-0")
    assert list_places([f"{tmp_path}/*"]).problems == ()
    assert list_places([f"{tmp_path}/a", f"{tmp_path}/b"]).problems == ()
    for name in ("c", "d"):
        make_broker(tmp_path / name, 5, "t-0")
    problems = list_places([f"{tmp_path}/*"]).problems
    assert [(each.check_id, each.path) for each in problems] == [  # type: ignore[union-attr]
        ("DIR-2", f"{tmp_path}/d/t-0")
    ]


def test_what_wildcards_pass_over(tmp_path: Path) -> None:
    """Checkpoints would stand for the whole log dir; other directories are told of."""
    log_dir = make_broker(tmp_path / "logs", 1, "mine-0", "other-0")
    (tmp_path / "music").mkdir()
    (tmp_path / "music" / "song.ogg").touch()
    make_broker(tmp_path / ".hidden", 2, "t-0")
    assert brokers_of(list_places([f"{log_dir}/m*"])) == [("1", "mine-0")]
    found = list_places([f"{tmp_path}/*"])
    assert len(found.directories) == 2
    assert found.notes == (f"{tmp_path}/music: skipped, neither a log dir nor a partition",)
    with pytest.raises(AccessError, match="matches"):
        list_places([f"{tmp_path}/mus*"])
    with pytest.raises(UsageError):
        list_places([f"{tmp_path}/music"])


def test_what_is_there_as_written_counts_as_written(tmp_path: Path) -> None:
    make_partition(tmp_path / "[x]*" / "t-0")
    make_partition(tmp_path / "x1" / "t-0")
    (place, *_) = list_places([f"{tmp_path}/[x]*"]).directories
    assert place.directory == f"{tmp_path}/[x]*/t-0"
    assert len(list_places([f"{tmp_path}/[[]x]*/t-0"]).directories) == 1


def test_each_directory_once_and_in_order(tmp_path: Path) -> None:
    log_dir = make_broker(tmp_path / "logs", 1, "t-0", "t-1")
    (tmp_path / "link").symlink_to(log_dir)
    paths = [f"{log_dir}/t-1", f"{log_dir}/*", str(tmp_path / "link"), str(log_dir)]
    found = list_places(paths)
    assert [each.directory for each in found.directories] == [f"{log_dir}/t-0", f"{log_dir}/t-1"]
    order = [(each.directory, each.base_offset) for each in found.places]
    assert order == sorted(order)
    assert len(order) == 4


def test_links_keep_their_names(tmp_path: Path) -> None:
    make_partition(tmp_path / "disk" / "p7")
    log_dir = make_broker(tmp_path / "logs", 1)
    (log_dir / "u-5").symlink_to(tmp_path / "disk" / "p7")
    for path in (log_dir, log_dir / "u-5", f"{log_dir}/u-*"):
        (directory,) = list_places([str(path)]).directories
        assert (directory.broker, directory.topic, directory.partition) == ("1", "u", 5)
        assert directory.directory == f"{log_dir}/u-5"


def test_relative_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log_dir = make_broker(tmp_path / "logs", 1, "t-0", "t-1")
    expected = list_places([str(log_dir)])
    assert list_places(["logs"], base=str(tmp_path)) == expected
    monkeypatch.chdir(log_dir / "t-0")
    for path in ("..", "../../logs", "../../l*", "../t-*", "../../*/../logs/t-*"):
        # Who asks for partitions does not ask for the log dir as a whole.
        found = list_places([path])
        assert found._replace(log_dirs=()) == expected._replace(log_dirs=())
    assert [each.directory for each in list_places(["."]).directories] == [f"{log_dir}/t-0"]
    with pytest.raises(AccessError) as caught:
        list_places(["no*"])
    assert caught.value.path == "no*"


def test_one_path_raises_and_several_are_problems(tmp_path: Path) -> None:
    log_dir = str(make_broker(tmp_path / "logs", 1, "t-0"))
    bad = [f"{tmp_path}/none", f"{tmp_path}/none*"]
    for path in bad:
        with pytest.raises(AccessError):
            list_places([path])
    found = list_places([*bad, log_dir])
    assert len(found.places) == 2
    assert sorted(each.path for each in found.problems) == sorted(bad)
    assert sorted(each.path for each in list_places(bad).problems) == sorted(bad)
    found = list_places([bad[0], bad[0] + "2"])
    assert (found.places, len(found.problems)) == ((), 2)
    with pytest.raises(UsageError):
        list_places([])


def test_a_directory_that_cannot_be_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log_dir = make_broker(tmp_path / "logs", 1, "t-0", "t-1")
    real = os.scandir

    def scandir(path: str = ".") -> object:
        if str(path).endswith("t-0"):
            raise PermissionError(errno.EACCES, "Permission denied", path)
        return real(path)

    monkeypatch.setattr(os, "scandir", scandir)
    found = list_places([str(log_dir)])
    assert brokers_of(found) == [("1", "t-0"), ("1", "t-1")]
    assert {each.partition for each in found.places} == {1}
    assert [each.path for each in found.problems] == [f"{log_dir}/t-0"]


def test_names_that_are_not_utf8(tmp_path: Path) -> None:
    log_dir = make_broker(tmp_path / "logs", 1, "t-0")
    (log_dir / os.fsdecode(b"\xff-0")).mkdir()
    found = list_places([str(log_dir)])
    assert brokers_of(found) == [("1", "t-0")]
    (problem,) = found.problems
    assert isinstance(problem, AccessError)
    assert (problem.errno, problem.path) == (errno.EILSEQ, f"{log_dir}/\\xff-0")
    str(problem).encode()


def test_broken_names_of_files(tmp_path: Path) -> None:
    partition = make_partition(tmp_path / "t-0")
    (partition / "7.log").touch()
    (partition / "00000000000000000009.log.deleted").touch()
    (partition / "00000000000000000011.log").mkdir()
    found = list_places([str(partition)])
    assert [each.base_offset for each in found.places] == [0, 7]
    assert sorted(getattr(each, "check_id", "") for each in found.problems) == ["", "DIR-9"]


def test_a_log_dir_in_use_is_noted(tmp_path: Path) -> None:
    log_dir = make_broker(tmp_path / "logs", 1, "t-0")
    (log_dir / ".lock").touch()
    assert list_places([str(log_dir)]).notes == ()
    code = "import fcntl, sys; f = open(sys.argv[1], 'r+'); fcntl.lockf(f, fcntl.LOCK_EX); print('held', flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", code, str(log_dir / ".lock")],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as holder:  # fmt: skip
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        (note,) = list_places([str(log_dir)]).notes
        assert str(log_dir) in note
        assert f"process {holder.pid}" in note
        holder.communicate("")


# --- URIs


@pytest.fixture
def tree(tmp_path: Path) -> Iterator[WatchedHandler]:
    """What `sim://host/...` leads to: a watched directory."""
    handler, file_system = watched(tmp_path)
    register_file_system("sim", lambda uri: (ArrowTree(file_system), ""))
    yield handler
    file_systems._factories.pop("sim")
    register_default(open_tree)


def as_remote(listing: Listing, root: Path) -> Listing:
    """What a listing of the same directories behind URIs must be."""

    def uri(path: str) -> str:
        return path.replace(str(root), "sim://host", 1)

    return Listing(
        tuple(
            each._replace(
                broker=uri(each.broker), directory=uri(each.directory), path=uri(each.path)
            )
            for each in listing.places
        ),
        tuple(
            each._replace(broker=uri(each.broker), directory=uri(each.directory))
            for each in listing.directories
        ),
        listing.problems,
        tuple(map(uri, listing.notes)),
    )


@pytest.mark.parametrize(
    "paths",
    [
        ["east/logs"], ["east/logs/"], ["west/logs"], ["west/logs/t-0"], ["east/logs/t-0"],
        ["*/logs"], ["*/logs/t-*"], ["?est/l*/[tu]-*"], ["e*/logs/t-0/*.log"], ["copy"], ["empty"],
        ["east/logs/t-0/00000000000000000000.log"], ["east/logs/meta.properties"],
        ["east/logs/m*", "west/logs"], ["*/logs/*", "empty"], ["east/*", "west/l*"], ["bad/logs"],
        ["east/logs/u-0"], ["*"], ["east/logs", "no", "no*"], ["copy", "east/logs/t-0"],
    ],
)  # fmt: skip
def test_uris_are_listed_as_paths_are(
    tree: WatchedHandler, tmp_path: Path, paths: list[str]
) -> None:
    root = tmp_path / "root"
    east = make_broker(root / "east" / "logs", 7, "t-0", "t-01", "mine-0")
    (east / "u-0").mkdir()
    (east / "t-0" / "7.log").touch()
    (east / "t-0" / "00000000000000000009.log.deleted").touch()
    (east / "lost+found").mkdir()
    (east / "remote-log-index-cache").mkdir()
    make_broker(root / "west" / "logs", None, "t-0", "mine-0")
    make_broker(root / "bad" / "logs", None, "t-0")
    (root / "bad" / "logs" / "meta.properties").write_text("version=9\n")
    make_partition(root / "copy")
    (root / "empty").mkdir()
    (root / "music").mkdir()
    (root / "music" / "song.ogg").touch()
    if "empty" in paths:
        for given in (root, "sim://host/root"):
            with pytest.raises(NotKafkaError):
                list_places([f"{given}/{each}" for each in paths])
        return
    local = as_remote(list_places([f"{root}/{each}" for each in paths]), tmp_path)
    remote = list_places([f"sim://host/root/{each}" for each in paths])
    assert remote.places == local.places
    assert remote.directories == local.directories
    assert sorted(remote.notes) == sorted(local.notes)

    def key(problem: AccessError | CorruptError) -> tuple[str, str, str]:
        path = problem.path.replace(str(tmp_path), "sim://host", 1)
        return type(problem).__name__, getattr(problem, "check_id", ""), path

    assert sorted(map(key, remote.problems)) == sorted(map(key, local.problems))  # type: ignore[arg-type]


def test_uris_that_lead_nowhere(tree: WatchedHandler, tmp_path: Path) -> None:
    (tmp_path / "music").mkdir()
    (tmp_path / "music" / "song.ogg").touch()
    for path in ("none", "none*", "music/*", "*", "music/song.ogg/x", "none/x*/y"):
        with pytest.raises(AccessError) as caught:
            list_places([f"sim://host/{path}"])
        assert (caught.value.errno, caught.value.path) == (errno.ENOENT, f"sim://host/{path}")
    with pytest.raises(UsageError):
        list_places(["sim://host/music"])
    found = list_places(["sim://host/none", "sim://host/none*", str(tmp_path / "x")])
    assert len(found.problems) == 3


def test_names_in_uris_are_encoded(tree: WatchedHandler, tmp_path: Path) -> None:
    make_partition(tmp_path / "a b%" / "été*" / "t-0")
    uri = "sim://host/a%20b%25/%C3%A9t%C3%A9%2A/t-0"
    for given in (
        "sim://host/*/*/*", "sim://host/*/*", "sim://host/a b%25/été*", uri, f"{uri}?x=y",
    ):  # fmt: skip
        (directory,) = list_places([given]).directories
        assert directory.directory == (f"{uri}?x=y" if given.endswith("y") else uri)
    for place in list_places([f"{uri}?x=y"]).places:
        assert place.path.endswith(".log?x=y")
        with open_place(place) as segment:
            assert segment.file_bytes == place.file_bytes


def test_a_log_dir_costs_few_requests(tree: WatchedHandler, tmp_path: Path) -> None:
    make_broker(tmp_path / "logs", 1, *(f"t-{number}" for number in range(50)))
    assert len(list_places(["sim://host/logs"]).places) == 100
    assert len(tree.calls) <= 5
    assert tree.calls.count(("list all", "logs")) == 1


def test_a_remote_directory_that_cannot_be_listed(tree: WatchedHandler, tmp_path: Path) -> None:
    make_broker(tmp_path / "logs", 1, "t-0", "t-1")
    tree.errors["logs/t-0"] = PermissionError(errno.EACCES, "no")
    found = list_places(["sim://host/logs"])
    assert brokers_of(found) == [("1", "t-0"), ("1", "t-1")]
    assert {each.partition for each in found.places} == {1}
    (problem,) = found.problems
    assert isinstance(problem, AccessError)
    assert (problem.path, problem.errno) == ("sim://host/logs/t-0", errno.EACCES)
    tree.errors["logs"] = OSError("AWS Error")
    with pytest.raises(AccessError) as caught:
        list_places(["sim://host/logs"])
    assert caught.value.path == "sim://host/logs"
    with pytest.raises(AccessError):
        list_places(["sim://host/logs/*"])


def test_a_meta_properties_that_cannot_be_read(tree: WatchedHandler, tmp_path: Path) -> None:
    make_broker(tmp_path / "logs", 1, "t-0", "t-1")
    tree.errors["logs/meta.properties"] = OSError("AWS Error")
    found = list_places(["sim://host/logs/t-0", "sim://host/logs/t-1"])
    assert {each.broker for each in found.directories} == {"sim://host/logs"}
    assert [each.path for each in found.problems] == ["sim://host/logs/meta.properties"]


def test_remote_names_that_are_not_utf8(tree: WatchedHandler, tmp_path: Path) -> None:
    """As pyarrow gives them: an entry whose path cannot be had."""
    from pyarrow.fs import LocalFileSystem, SubTreeFileSystem

    log_dir = make_broker(tmp_path / "logs", 1, "t-0")
    (log_dir / os.fsdecode(b"\xff-0")).mkdir()
    file_system = SubTreeFileSystem(str(tmp_path), LocalFileSystem())
    register_file_system("sim", lambda uri: (ArrowTree(file_system), ""))
    found = list_places(["sim://host/logs"])
    assert brokers_of(found) == [("1", "t-0")]
    assert [getattr(each, "errno", 0) for each in found.problems] == [errno.EILSEQ]
    with pytest.raises(AccessError) as caught:
        list_places(["sim://host/logs/x*"])
    assert caught.value.errno == errno.EILSEQ


def test_local_paths_and_uris_together(tree: WatchedHandler, tmp_path: Path) -> None:
    log_dir = make_broker(tmp_path / "logs", 1, "t-0")
    found = list_places(["sim://host/logs", str(log_dir), f"file://{log_dir}"])
    assert [each.directory for each in found.directories] == [
        f"{log_dir}/t-0",
        "sim://host/logs/t-0",
    ]


def test_mapping_keeps_the_order(tree: WatchedHandler, tmp_path: Path) -> None:
    make_broker(tmp_path / "logs", 1, *(f"t-{number}" for number in range(30)))
    for path in ("sim://host/logs", str(tmp_path / "logs")):
        places = list_places([path]).places
        assert map_places(lambda place: place.path, places) == [each.path for each in places]


def test_golden_brokers(golden: Callable[[str], Path]) -> None:
    root = golden("kafka-4.3.1-three-brokers")
    found = list_places([f"{root}/diverged/*"])
    assert {each.broker for each in found.places} == {"1", "2", "3"}
    assert len(found.directories) == 15
    assert found.problems == ()


def test_a_directory_in_the_place_of_a_segment_is_told(tmp_path: Path) -> None:
    (tmp_path / "t-0" / f"{0:020d}.log").mkdir(parents=True)
    listing = list_places([str(tmp_path / "t-0")])
    (problem,) = listing.problems
    assert isinstance(problem, AccessError)
    assert str(problem) == f"{tmp_path / 't-0' / f'{0:020d}.log'}: Is a directory"
    assert listing.places == ()


def test_what_is_set_aside_is_known_behind_a_uri_with_a_query(
    tree: WatchedHandler, tmp_path: Path
) -> None:
    """No broker serves it: the checkpoints do not speak of it."""
    log_dir = make_broker(tmp_path / "logs", 1, "t-0", f"u-0.{'0' * 32}-delete")
    (log_dir / "replication-offset-checkpoint").write_text("0\n2\nt 0 99\nu 0 99\n")
    found = list_places(["sim://host/logs?region=here"])
    assert [(each.topic, each.is_live) for each in found.directories] == [("t", True), ("u", False)]
    known = [found.acknowledged_of(each.directory).high_watermark for each in found.directories]
    assert known == [99, None]
