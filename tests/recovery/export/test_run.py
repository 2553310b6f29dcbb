"""Exports: what comes out, read back; losses; and that an interrupted one can be completed."""

from __future__ import annotations

import base64
import errno
import json
import os
import pickle
import shutil
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyarrow")

import pyarrow.dataset as ds
import pyarrow.parquet as pq

from recovery.export.files import ExportDir, make_dirs, require_target
from recovery.export.lost import LostRange
from recovery.export.piece import export_piece, result_of_entry
from recovery.export.plan import (
    ExportCodec,
    ExportFormat,
    ExportOptions,
    ExportPiece,
    ExportPlan,
    Until,
    plan_export,
    run_stability,
)
from recovery.export.run import run_export
from recovery.pool import map_unordered
from recovery.records.read_options import RECORD_COLUMNS
from recovery.transactions.isolation import Isolation
from storage.errors import AccessError, RefusedError, UsageError
from storage.files.fsio import FileSystem, OpenFile
from storage.log.segment import open_segment
from storage.places.splits import Split
from tests.audit_logs import Batch, encoded, write_segments
from tests.read_back import PARTITIONS, consumed, cut, places_in

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from recovery.export.piece import PieceResult
    from recovery.export.plan import StabilityJob
    from recovery.export.run import ExportResult
    from recovery.transactions.outcomes import Stability
    from storage.log.segment import Segment
    from storage.places.listing import SegmentPlace

CONTENT = ("offset", "timestamp_ms", "timestamp_type", "key", "value", "headers")


def execute_here(
    pieces: Sequence[ExportPiece], options: ExportOptions, *, jobs: int = 1
) -> Iterator[PieceResult]:
    """What the local engine of the command does."""
    for _, result in map_unordered(partial(export_piece, options=options), pieces, jobs):
        yield result


def find_stabilities(jobs: int) -> Callable[[list[StabilityJob]], list[Stability]]:
    def stabilities(work: list[StabilityJob]) -> list[Stability]:
        found = dict(map_unordered(run_stability, work, jobs))
        return [found[number] for number in range(len(work))]

    return stabilities


def options_for(to: Path, **more: Any) -> ExportOptions:
    return ExportOptions(str(to), **more)


def export(paths: Iterable[Path], options: ExportOptions, **more: Any) -> ExportResult:
    plan = plan_export([str(path) for path in paths], options)
    return run_export(plan, options, execute_here, **more)


def content_of(root: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.is_file()
    }


def read_parquet(root: Path) -> list[dict[str, Any]]:
    paths = sorted(root.rglob("*.parquet"), key=lambda path: path.name)
    return [row for path in paths for row in pq.ParquetFile(path).read().to_pylist()]


def read_json(root: Path) -> list[dict[str, Any]]:
    paths = sorted(root.rglob("topic=*/**/*.jsonl"), key=lambda path: path.name)
    rows = []
    for path in paths:
        for line in path.read_text().splitlines():
            row = json.loads(line)
            row["headers"] = [plain(each) for each in row["headers"]]
            rows.append(plain(row))
    return rows


def plain(row: dict[str, Any]) -> dict[str, Any]:
    """Give fields as bytes again, by what their names say."""
    out = {}
    for name, value in row.items():
        if name.endswith("_base64"):
            out[name.removesuffix("_base64")] = (
                None if value is None else base64.b64decode(value, validate=True)
            )
        elif name in {"key", "value"}:
            out[name] = None if value is None else value.encode()
        else:
            out[name] = value
    return out


# --- what comes out -------------------------------------------------------------------------------


@pytest.mark.share(3)
@pytest.mark.parametrize("isolation", Isolation)
@pytest.mark.parametrize("kind", ["parquet", "jsonl", "text"])
def test_what_a_client_consumed_comes_back(
    golden: Callable[[str], Path], tmp_path: Path, kind: str, isolation: Isolation
) -> None:
    for name in PARTITIONS:
        _, expected = consumed(golden, name, isolation)
        options = options_for(
            tmp_path / name,
            format=ExportFormat.PARQUET if kind == "parquet" else ExportFormat.JSONL,
            text=kind == "text",
            columns=CONTENT,
            isolation=isolation,
            split_bytes=4096,
        )
        result = export([golden("kafka-4.3.1") / "clean" / name], options)
        assert not result.is_corrupt
        assert not result.is_unreadable
        rows = (read_parquet if kind == "parquet" else read_json)(tmp_path / name)
        assert rows == expected, name
        (summary,) = result.summaries
        assert summary.records == len(expected)
        assert summary.files == len(list((tmp_path / name).rglob("topic=*/*/*.*")))


def test_pieces_of_one_batch_each(golden: Callable[[str], Path], tmp_path: Path) -> None:
    options = options_for(tmp_path / "out", isolation=Isolation.READ_COMMITTED, columns=CONTENT)
    plan = plan_export([str(golden("kafka-4.3.1") / "clean" / "txn-1")], options)
    (piece,) = plan.pieces
    pieces = tuple(
        piece._replace(split=split, name=f"topic=txn/partition=1/{split.start_pos:010d}.parquet")
        for split in cut([piece.split.place], every=1)
    )
    assert len(pieces) > 100
    result = run_export(plan._replace(pieces=pieces), options, execute_here)
    _, expected = consumed(golden, "txn-1", "read_committed")
    assert read_parquet(tmp_path / "out") == expected
    assert result.summaries[0].skipped > 0


def test_all_columns_and_where_files_lie(golden: Callable[[str], Path], tmp_path: Path) -> None:
    source = golden("kafka-4.3.1") / "clean" / "txn-0"
    result = export([source], options_for(tmp_path / "out"))
    (path,) = (tmp_path / "out").rglob("*.parquet")
    assert path.relative_to(tmp_path / "out").parts[:2] == ("topic=txn", "partition=0")
    assert path.name.startswith("1-")
    assert path.name.endswith(f"-{0:020d}-{0:010d}.parquet")
    file = pq.ParquetFile(path)
    assert file.schema_arrow.names == [
        name for name in RECORD_COLUMNS if name not in {"topic", "partition"}
    ]
    assert file.schema_arrow.metadata[b"eoctl.topic"] == b"txn"
    assert file.metadata.row_group(0).column(0).compression == "ZSTD"
    table = ds.dataset(tmp_path / "out", partitioning="hive").to_table()
    assert set(table["topic"].to_pylist()) == {"txn"}
    assert set(table["partition"].to_pylist()) == {0}
    outcomes = table["outcome"].to_pylist()
    (summary,) = result.summaries
    assert (summary.committed, summary.aborted, summary.open) == tuple(
        outcomes.count(each) for each in ("committed", "aborted", "open")
    )
    assert (summary.first_offset, summary.last_offset) == (0, 328)
    assert summary.bytes == path.stat().st_size
    export([source], options_for(tmp_path / "json", format=ExportFormat.JSONL))
    (path,) = (tmp_path / "json").rglob("topic=*/*/*.jsonl")
    first = json.loads(path.read_text().splitlines()[0])
    assert [name.removesuffix("_base64") for name in first] == list(RECORD_COLUMNS)
    assert (first["broker"], first["topic"], first["outcome"]) == ("1", "txn", "committed")


@pytest.mark.parametrize("codec", ExportCodec)
def test_codecs(golden: Callable[[str], Path], tmp_path: Path, codec: ExportCodec) -> None:
    export([golden("kafka-4.3.1") / "clean" / "plain-0"], options_for(tmp_path, codec=codec))
    (path,) = tmp_path.rglob("*.parquet")
    found = pq.ParquetFile(path).metadata.row_group(0).column(0).compression
    assert found == {"none": "UNCOMPRESSED"}.get(codec, codec.upper())


def test_copies_of_several_brokers_do_not_mix(
    golden: Callable[[str], Path], tmp_path: Path
) -> None:
    root = golden("kafka-4.3.1-three-brokers") / "diverged"
    options = options_for(tmp_path / "out")
    plan = plan_export([f"{root}/broker-*"], options)
    assert any("several copies" in note for note in plan.notes)
    result = run_export(plan, options, execute_here)
    names = [path.name for path in (tmp_path / "out" / "topic=div" / "partition=0").iterdir()]
    assert sorted(name.split("-")[0] for name in names) == ["1", "2", "3"]
    table = ds.dataset(tmp_path / "out" / "topic=div").to_table()
    for summary in (each for each in result.summaries if each.topic == "div"):
        assert table["broker"].to_pylist().count(summary.broker) == summary.records


def test_bounds_and_the_high_watermark(golden: Callable[[str], Path], tmp_path: Path) -> None:
    source = golden("kafka-4.3.1") / "crash" / "rolled-0"
    whole = export([source], options_for(tmp_path / "whole")).summaries[0]
    assert (whole.records, whole.files) == (60, 3)
    part = export([source], options_for(tmp_path / "part", from_offset=30, to_offset=50))
    assert part.summaries[0][3:8] == (20, part.summaries[0].bytes, 1, 30, 49)
    rows = read_parquet(tmp_path / "whole")
    middle = rows[30]["timestamp_ms"]
    export([source], options_for(tmp_path / "late", from_time_ms=middle))
    assert read_parquet(tmp_path / "late") == [row for row in rows if row["timestamp_ms"] >= middle]
    options = options_for(tmp_path / "hw", until=Until.HW)
    plan = plan_export([str(source)], options)
    (bound,) = {piece.to_offset for piece in plan.pieces}
    run_export(plan, options, execute_here)
    offsets = [row["offset"] for row in read_parquet(tmp_path / "hw")]
    assert offsets == [row["offset"] for row in rows if bound is None or row["offset"] < bound]


def test_what_is_below_the_log_start_is_left_out_unless_asked_for(
    golden: Callable[[str], Path], tmp_path: Path
) -> None:
    root = tmp_path / "kafka"
    shutil.copytree(golden("kafka-4.3.1") / "clean", root)
    checkpoint = root / "log-start-offset-checkpoint"
    checkpoint.chmod(0o644)
    checkpoint.write_text("0\n1\ntrimmed 0 120\n")
    root.joinpath("meta.properties").chmod(0o644)
    result = export([root / "trimmed-0"], options_for(tmp_path / "a"))
    assert (result.summaries[0].first_offset, result.summaries[0].records) == (120, 180)
    result = export([root / "trimmed-0"], options_for(tmp_path / "b", from_offset=0))
    assert (result.summaries[0].first_offset, result.summaries[0].records) == (0, 300)


def test_directories_that_are_set_aside(tmp_path: Path) -> None:
    log_dir = tmp_path / "kafka"
    log_dir.mkdir()
    write_segments(log_dir / "t-0", [Batch()])
    aside = write_segments(log_dir / f"t-0.{'0' * 32}-delete", [Batch(), Batch(sequence=1)])
    plan = plan_export([str(log_dir)], options_for(tmp_path / "out"))
    assert [piece.split.place.topic for piece in plan.pieces] == ["t"]
    assert any("left out" in note for note in plan.notes)
    plan = plan_export([str(aside)], options_for(tmp_path / "out"))
    assert len(plan.pieces) == 1


def test_wrong_columns(tmp_path: Path) -> None:
    for columns in (("nothing",), ("key", "key"), ("topic", "partition"), ()):
        with pytest.raises(UsageError):
            plan_export([str(tmp_path)], options_for(tmp_path / "out", columns=columns))


def test_plan_and_results_travel(golden: Callable[[str], Path], tmp_path: Path) -> None:
    options = options_for(tmp_path, isolation=Isolation.READ_COMMITTED)
    plan = plan_export([str(golden("kafka-4.3.1") / "clean" / "txn-0")], options)
    assert pickle.loads(pickle.dumps((plan, options))) == (plan, options)
    result = export_piece(plan.pieces[0], options)
    assert pickle.loads(pickle.dumps(result)) == result
    entry = json.loads(json.dumps(result.to_entry()))
    assert result_of_entry(plan.pieces[0], entry) == result
    assert result_of_entry(plan.pieces[0]._replace(stable_offset=1), entry) is None
    assert result_of_entry(plan.pieces[0], {**entry, "counts": {"wrong": 1}}) is None


# --- losses ---------------------------------------------------------------------------------------


@pytest.fixture
def damaged(tmp_path: Path) -> Path:
    """Two segments of four batches; the second one's first batch has a wrong checksum."""
    batches = [Batch(count=2, sequence=2 * n) for n in range(8)]
    directory = write_segments(tmp_path / "t-0", batches[:4], batches[4:])
    second = sorted(directory.iterdir())[1]
    data = bytearray(second.read_bytes())
    data[65] ^= 1
    second.write_bytes(data)
    return directory


def test_losses_are_listed(damaged: Path, tmp_path: Path) -> None:
    result = export([damaged], options_for(tmp_path / "out"))
    assert (result.is_corrupt, result.is_unreadable) == (True, False)
    (summary,) = result.summaries
    assert (summary.records, summary.lost_ranges, summary.lost_offsets) == (14, 1, 2)
    (line,) = (tmp_path / "out" / "_lost.jsonl").read_text().splitlines()
    lost = json.loads(line)
    assert LostRange(**lost) == result.lost[0]
    assert (lost["base_offset"], lost["last_offset"], lost["missing_offsets"]) == (8, 9, 2)
    assert (lost["kind"], lost["check_id"], lost["start_pos"]) == ("corrupt", "BAT-1", 0)


def test_neighbouring_pieces_tell_what_lies_between(damaged: Path, tmp_path: Path) -> None:
    options = options_for(tmp_path / "out")
    plan = plan_export([str(damaged)], options)
    pieces = tuple(
        piece._replace(split=split, name=f"{piece.name}-{split.start_pos}")
        for piece in plan.pieces
        for split in splits_of_one_batch(piece.split)
    )
    result = run_export(plan._replace(pieces=pieces), options, execute_here)
    (lost,) = result.lost
    assert (lost.base_offset, lost.last_offset, lost.missing_offsets) == (8, 9, 2)


def splits_of_one_batch(split: Split) -> list[Split]:
    with open_segment(split.place.path) as segment:
        edges = [each.pos for each in segment.scan()] + [split.place.file_bytes]
    return [
        Split(split.place, start, end, is_last=end == edges[-1]) for start, end in pairwise(edges)
    ]


def test_a_disk_that_fails(tmp_path: Path) -> None:
    directory = write_segments(tmp_path / "t-0", [Batch()], [Batch(sequence=1)], [Batch()])
    places = places_in(directory)

    def opener(place: SegmentPlace) -> Segment:
        if place.base_offset == 1:
            return open_segment(place.path, pread=failing)
        return open_segment(place.path)

    def failing(fd: int, view: memoryview, pos: int) -> int:
        raise OSError(errno.EIO, "Input/output error")

    def execute(pieces: Sequence[ExportPiece], options: ExportOptions) -> Iterable[PieceResult]:
        return [export_piece(piece, options, opener=opener) for piece in pieces]

    options = options_for(tmp_path / "out")
    result = run_export(plan_export([str(directory)], options), options, execute)
    assert (result.is_corrupt, result.is_unreadable) == (False, True)
    (lost,) = result.lost
    assert (lost.path, lost.start_pos, lost.end_pos) == (
        places[1].path, 0, places[1].file_bytes,
    )  # fmt: skip
    assert (lost.kind, lost.errno, lost.missing_offsets) == ("unreadable", errno.EIO, 1)
    assert result.summaries[0].files == 2


@pytest.mark.parametrize("isolation", Isolation)
@pytest.mark.parametrize(("removed", "lost"), [([0], 0), ([0, 1], 0), ([1], 1)])
def test_what_retention_deletes_meanwhile_is_not_lost(
    tmp_path: Path, isolation: Isolation, removed: list[int], lost: int
) -> None:
    """Only a log's start is deleted: a segment in the middle that is not there is a loss."""
    directory = write_segments(tmp_path / "t-0", [Batch()], [Batch(sequence=1)], [Batch()])
    options = options_for(tmp_path / "out", isolation=isolation)

    def stabilities(jobs: list[StabilityJob]) -> list[Stability]:
        for base_offset in removed:
            (directory / f"{base_offset:020d}.log").unlink()
        return [run_stability(each) for each in jobs]

    plan = plan_export([str(directory)], options, stabilities=stabilities)
    if isolation is Isolation.READ_UNCOMMITTED:
        stabilities([])
    result = run_export(plan, options, execute_here)
    assert len([each for each in result.lost if each.start_pos is not None]) == lost
    assert result.is_unreadable is bool(lost)
    gone = [each for each in result.remarks if "removed since the directory was listed" in each]
    assert len(gone) == (0 if lost else len(removed))
    assert result.summaries[0].records == 3 - len(removed)


def test_an_unknown_loss_is_not_0(tmp_path: Path) -> None:
    directory = write_segments(tmp_path / "t-0", [Batch(), Batch(sequence=1)])
    (log,) = directory.iterdir()
    data = bytearray(log.read_bytes())
    data[-1] ^= 1
    log.write_bytes(data)
    result = export([directory], options_for(tmp_path / "out"))
    assert result.lost[0][-3:] == (1, None, None)
    assert result.summaries[0].lost_offsets is None


# --- the target directory -------------------------------------------------------------------------


def test_targets_that_are_refused(golden: Callable[[str], Path], tmp_path: Path) -> None:
    source = write_segments(tmp_path / "t-0", [Batch()])
    for to in (source, source / "below", golden("kafka-4.3.1") / "clean" / "out"):
        with pytest.raises(RefusedError):
            export([source], options_for(to))
        with pytest.raises(RefusedError):
            require_target(str(to), [str(source)])
    other = tmp_path / "other"
    other.mkdir()
    (other / "file").touch()
    for resume in (False, True):
        with pytest.raises(RefusedError):
            export([source], options_for(other), resume=resume)
    with pytest.raises(AccessError):
        export([source], options_for(other / "file" / "below"))
    export([source], options_for(tmp_path / "new" / "deep"))
    with pytest.raises(RefusedError):
        export([source], options_for(tmp_path / "new" / "deep"))
    options = options_for(tmp_path / "new" / "deep", codec=ExportCodec.NONE)
    with pytest.raises(RefusedError, match="codec zstd, not none"):
        export([source], options, resume=True)
    assert sorted(path.name for path in source.iterdir()) == [f"{0:020d}.log"]


def test_two_exports_at_once(tmp_path: Path) -> None:
    source = write_segments(tmp_path / "t-0", [Batch()])
    held = ExportDir.take(FileSystem(), str(tmp_path / "out"), {}, resume=False)
    with pytest.raises(RefusedError, match="another export"):
        export([source], options_for(tmp_path / "out"))
    held.close()
    (tmp_path / "link").symlink_to(tmp_path / "out")
    export([source], options_for(tmp_path / "link"))
    assert list((tmp_path / "out").rglob("*.parquet"))


# --- going on -------------------------------------------------------------------------------------


class Killed(BaseException):
    """The process is no more."""


class DyingSystem(FileSystem):
    """Does so many calls; the next one and all that follow never happen."""

    def __init__(self, calls_left: int, *, torn: bool = False) -> None:
        self.calls_left = calls_left
        self.torn = torn
        self.opened: list[OpenFile] = []

    def __getattribute__(self, name: str) -> Any:
        value = super().__getattribute__(name)
        if not callable(value) or name.startswith("_") or name in {"tick", "buried"}:
            return value

        def call(*args: Any, **kwargs: Any) -> Any:
            self.tick(name, args)
            result = value(*args, **kwargs)
            if isinstance(result, OpenFile):
                self.opened.append(result)
            return result

        return call

    def tick(self, name: str, args: tuple[Any, ...]) -> None:
        if self.calls_left <= 0:
            if self.calls_left == 0 and name == "write" and self.torn:
                self.calls_left = -1
                os.pwrite(args[0].fd, bytes(args[1])[: len(args[1]) // 2], args[0].pos)
            self.calls_left = -1
            raise Killed
        self.calls_left -= 1

    def buried(self) -> None:
        """What the kernel does with the descriptors of a dead process."""
        for file in self.opened:
            if file.fd >= 0:
                os.close(file.fd)
                file.fd = -1


def test_killed_at_any_moment(damaged: Path, tmp_path: Path) -> None:
    options = options_for(tmp_path / "whole", columns=("offset", "value"))
    export([damaged], options)
    expected = content_of(tmp_path / "whole")
    assert len(expected) == 4
    calls = 0
    deaths = 0
    while True:
        done = False
        for torn in (False, True):
            to = tmp_path / f"{calls}-{torn}"
            own = options._replace(to=str(to))
            plan = plan_export([str(damaged)], own)
            system = DyingSystem(calls, torn=torn)

            def execute(
                pieces: Sequence[ExportPiece], wanted: ExportOptions, fs: FileSystem = system
            ) -> Iterable[PieceResult]:
                return (export_piece(piece, wanted, fs=fs) for piece in pieces)

            try:
                run_export(plan, own, execute, fs=system)
                done = True
            except Killed:
                deaths += 1
                system.buried()
            for path in to.rglob("*.parquet"):
                if not path.name.startswith("."):
                    assert path.read_bytes() == expected[str(path.relative_to(to))]
            run_export(plan, own, execute_here, resume=True)
            assert content_of(to) == expected, calls
        if done:
            break
        calls += 1
    assert deaths > 50


def test_finished_pieces_are_not_done_again(damaged: Path, tmp_path: Path) -> None:
    options = options_for(tmp_path / "out")
    plan = plan_export([str(damaged)], options)
    done: list[str] = []

    def execute(pieces: Sequence[ExportPiece], wanted: ExportOptions) -> Iterable[PieceResult]:
        for piece in pieces:
            done.append(piece.name)
            yield export_piece(piece, wanted)

    first = run_export(plan, options, execute)
    again = run_export(plan, options, execute, resume=True)
    assert done == [piece.name for piece in plan.pieces]
    assert again.summaries == first.summaries
    assert again.lost == first.lost
    assert again.resumed_count == 2
    # A source that has changed, and a file that is not what it was, are done again.
    done.clear()
    (tmp_path / "out" / plan.pieces[0].name).write_bytes(b"short")
    os.utime(plan.pieces[1].split.place.path, ns=(1, 1))
    plan = plan_export([str(damaged)], options)
    run_export(plan, options, execute, resume=True)
    assert done == [piece.name for piece in plan.pieces]
    # What is gone at the source stays in the export.
    done.clear()
    before = content_of(tmp_path / "out")
    Path(plan.pieces[0].split.place.path).unlink()
    plan = plan_export([str(damaged)], options)
    result = run_export(plan, options, execute, resume=True)
    assert (done, result.kept_count) == ([], 1)
    assert plan.pieces[0].name in before
    after = content_of(tmp_path / "out")
    assert {name: after[name] for name in before if name.startswith("topic")} == {
        name: before[name] for name in before if name.startswith("topic")
    }


def test_pieces_that_are_cut_elsewhere_leave_no_old_files(damaged: Path, tmp_path: Path) -> None:
    """The split of a segment that has grown may end elsewhere: nothing may be there twice."""
    options = options_for(tmp_path / "out", columns=("offset",))
    plan = plan_export([str(damaged)], options)

    def cut_plan(plan: ExportPlan, every: int) -> ExportPlan:
        pieces = []
        for piece in plan.pieces:
            for split in cut([piece.split.place], every=every):
                name = f"{piece.name.rpartition('-')[0]}-{split.start_pos:010d}.parquet"
                pieces.append(piece._replace(split=split, name=name))
        return plan._replace(pieces=tuple(pieces))

    run_export(cut_plan(plan, 1), options, execute_here)
    rows = read_parquet(tmp_path / "out")
    run_export(cut_plan(plan, 2), options, execute_here, resume=True)
    assert read_parquet(tmp_path / "out") == rows
    assert len(list((tmp_path / "out").rglob("*.parquet"))) == 4


class Recorded:
    """Exports pieces and notes their names."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def __call__(
        self, pieces: Sequence[ExportPiece], wanted: ExportOptions
    ) -> Iterator[PieceResult]:
        for piece in pieces:
            self.names.append(piece.name)
            yield export_piece(piece, wanted)


def check_resumed(source: Path, options: ExportOptions, redone: set[int]) -> None:
    """Go on with an export: what is done again, by base offset, and that all is as if made anew."""
    record = Recorded()
    plan = plan_export([str(source)], options)
    resumed = run_export(plan, options, record, resume=True)
    assert {int(name.split("-")[-2]) for name in record.names} == redone
    anew = options._replace(to=f"{options.to}-{len(list(Path(options.to).parent.iterdir()))}")
    whole = run_export(plan_export([str(source)], anew), anew, execute_here)
    assert resumed.summaries == whole.summaries
    for folder in Path(anew.to).glob("topic=*"):
        assert content_of(Path(options.to, folder.name)) == content_of(folder)


@pytest.mark.parametrize("isolation", Isolation)
def test_a_transaction_that_has_ended_since(tmp_path: Path, isolation: Isolation) -> None:
    """The file of the marker is a new one: nothing in the first two segments has changed."""
    segments = [
        [Batch(pid=7, kind="txn"), Batch(sequence=0, count=3)],
        [Batch(sequence=3, count=3)],
        [Batch(sequence=6), Batch(pid=8, kind="txn"), Batch(pid=8, kind="commit")],
    ]
    source = write_segments(tmp_path / "t-0", *segments)
    options = options_for(tmp_path / "out", isolation=isolation, columns=("offset", "outcome"))
    first = export([source], options)
    assert first.summaries[0].open == 1
    is_committed = isolation is Isolation.READ_COMMITTED
    assert first.summaries[0].records == (0 if is_committed else 9)
    # Nothing has changed: only what is open is looked at again.
    check_resumed(source, options, {0})
    write_more(source, [Batch(pid=7, kind="commit"), Batch(sequence=7)], offset=10)
    # Committed now, and stable: everything, if that counts.
    check_resumed(source, options, {0, 4, 7, 10} if is_committed else {0, 10})
    assert [row["outcome"] for row in read_parquet(tmp_path / "out")] == ["committed"] * 10
    write_more(source, [Batch(pid=8, kind="txn")], offset=12)
    # The last stable offset moves on behind what is stable already.
    check_resumed(source, options, {12})
    write_more(source, [Batch(pid=8, kind="abort")], offset=13)
    check_resumed(source, options, {12, 13})


def write_more(directory: Path, batches: Sequence[Batch], *, offset: int) -> None:
    path = directory / f"{offset:020d}.log"
    data = b""
    for each in batches:
        data += encoded(each, offset)
        offset += each.count
    path.write_bytes(data)


@pytest.mark.parametrize("isolation", Isolation)
def test_a_log_start_that_moves(tmp_path: Path, isolation: Isolation) -> None:
    root = tmp_path / "kafka"
    root.mkdir()
    segments = [[Batch(sequence=n * 10 + m, count=2) for m in (0, 2, 4, 6, 8)] for n in range(4)]
    source = write_segments(root / "t-0", *segments)
    (root / "meta.properties").write_text("version=1\nnode.id=1\ncluster.id=A\ndirectory.id=x\n")
    options = options_for(tmp_path / "out", isolation=isolation, columns=("offset",))
    export([source], options)
    for start, redone in ((0, set()), (5, {0}), (9, {0}), (20, {0, 10}), (24, {20})):
        (root / "log-start-offset-checkpoint").write_text(f"0\n1\nt 0 {start}\n")
        check_resumed(source, options, redone)
        assert [row["offset"] for row in read_parquet(tmp_path / "out")] == [*range(start, 40)]


def test_bounds_count_as_they_are_where_offsets_are_not_sure(damaged: Path, tmp_path: Path) -> None:
    options = options_for(tmp_path / "out")
    plan = plan_export([str(damaged)], options)
    for piece, is_same in zip(plan.pieces, (True, False), strict=True):
        entry = json.loads(json.dumps(export_piece(piece, options).to_entry()))
        found = result_of_entry(piece._replace(to_offset=100), entry)
        assert (found is not None) == is_same


class FullSystem(FileSystem):
    """Nothing can be written once so many bytes are."""

    def __init__(self, free_bytes: int, code: int = errno.ENOSPC) -> None:
        self.free_bytes = free_bytes
        self.code = code

    def write(self, file: OpenFile, data: Any) -> None:
        if len(data) > self.free_bytes:
            raise OSError(self.code, os.strerror(self.code))
        self.free_bytes -= len(data)
        super().write(file, data)


@pytest.mark.parametrize("kind", ExportFormat)
def test_a_full_disk(damaged: Path, tmp_path: Path, kind: ExportFormat) -> None:
    options = options_for(tmp_path / "whole", format=kind)
    whole = export([damaged], options)
    expected = content_of(tmp_path / "whole")
    size = whole.summaries[0].bytes
    for free_bytes in (0, 500, size // 2, size, size + 1000):
        to = tmp_path / str(free_bytes)
        own = options._replace(to=str(to))
        plan = plan_export([str(damaged)], own)
        system = FullSystem(free_bytes)

        def execute(
            pieces: Sequence[ExportPiece], wanted: ExportOptions, fs: FileSystem = system
        ) -> Iterable[PieceResult]:
            return (export_piece(piece, wanted, fs=fs) for piece in pieces)

        with pytest.raises(AccessError) as raised:
            run_export(plan, own, execute, fs=system)
        assert raised.value.errno == errno.ENOSPC
        assert "--resume" in raised.value.next_step
        assert not [path for path in to.rglob(".*.parquet*") if path.is_file()]
        run_export(plan, own, execute_here, resume=True)
        assert content_of(to) == expected


# --- processes ------------------------------------------------------------------------------------


@pytest.mark.exhaustive
def test_several_processes_give_the_same(golden: Callable[[str], Path], tmp_path: Path) -> None:
    source = str(golden("kafka-4.3.1") / "clean")
    found = []
    for jobs in (1, 2):
        options = options_for(tmp_path / str(jobs), isolation=Isolation.READ_COMMITTED)
        plan = plan_export([source], options, stabilities=find_stabilities(jobs))
        result = run_export(
            plan, options, lambda pieces, own, jobs=jobs: execute_here(pieces, own, jobs=jobs)
        )
        found.append((result, content_of(tmp_path / str(jobs))))
    assert found[0] == found[1]


def test_two_processes_make_one_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other one makes it just after this one has seen that it is missing."""
    wanted = tmp_path / "topic=t" / "partition=8"
    real = Path.is_dir
    seen: list[Path] = []

    def late(path: Path) -> bool:
        is_dir = real(path)
        if path == wanted and not seen:
            seen.append(path)
            wanted.mkdir(parents=True)
        return is_dir

    monkeypatch.setattr(Path, "is_dir", late)
    make_dirs(FileSystem(), wanted)
    assert seen
    assert real(wanted)
    wanted.rmdir()
    wanted.touch()
    with pytest.raises(NotADirectoryError):
        make_dirs(FileSystem(), wanted)
