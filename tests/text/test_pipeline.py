"""Two processes write what one would: same bytes, same result, whatever the log and the guesses."""

from __future__ import annotations

import os
import random
import signal
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eoctl.text import bulk, pipeline
from eoctl.text.bulk import LogDumpResult, render_log
from storage.errors import EoctlError, FormatError
from storage.formats.compression import compress
from storage.formats.record import Record, RecordHeader, encode_record
from storage.formats.record_batch import BatchHeader, encode_batch
from storage.log.segment import open_segment
from tests.made_logs import with_right_checksums

if TYPE_CHECKING:
    from collections.abc import Iterator

    from storage.log.segment import Segment

SEGMENT_NAME = f"{0:020}.log"
DEEP = {"deep": True, "print_data": True, "skip_record_metadata": False}
HEADERS = {"deep": False, "print_data": False, "skip_record_metadata": False}

# A test runner with threads of its own (xdist) makes Python 3.12 and later warn of every fork.
pytestmark = pytest.mark.filterwarnings("ignore:This process .* multi-threaded:DeprecationWarning")


def make_batch(offset: int, values: list[bytes | None], codec: int = 0, epoch: int = 0) -> bytes:
    body = b"".join(
        encode_record(Record(0, delta, delta, b"k%d" % delta, value, (RecordHeader(b"h", None),)))
        for delta, value in enumerate(values)
    )
    count = len(values)
    header = BatchHeader(offset, 0, epoch, 2, 0, codec, count - 1, 5, 9, 7, 0, offset, count)
    return encode_batch(header, compress(codec, body))


def make_log(batch_count: int, seed: int = 1) -> bytes:
    """Batches of all sizes; some values are whole batches, which a guess may fall into."""
    rng = random.Random(seed)
    parts: list[bytes] = []
    offset = 0
    for number in range(batch_count):
        values: list[bytes | None] = [
            b"v" * rng.randrange(120) for _ in range(rng.choice([1, 1, 2, 5]))
        ]
        if rng.random() < 0.3:
            inner = [make_batch(each, [b"inside"] * 2) for each in range(offset, offset + 6, 2)]
            values.append(b"".join(inner) * 2)
        codec = rng.choice([0, 0, 0, 4])
        parts.append(make_batch(offset, values, codec, epoch=number // 40))
        offset += len(values) + (rng.random() < 0.1)
    return b"".join(parts)


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk, "TWO_PROCESSES_MIN_BYTES", 1)
    monkeypatch.setattr(pipeline, "PIECE_BYTES", 1500)
    monkeypatch.setattr(pipeline, "COMPRESSED_PIECE_BYTES", 1100)
    monkeypatch.setattr(pipeline, "MORE_BYTES", 100)


def children() -> set[int]:
    """Of this process, those that have ended and that nobody waited for included."""
    found = set()
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            # The name before may hold anything, and ends with the last parenthesis.
            fields = path.read_text(errors="replace").rpartition(")")[2].split()
            if int(fields[1]) == os.getpid():
                found.add(int(path.parent.name))
    return found


@pytest.fixture
def nobody_left_behind() -> Iterator[None]:
    """Whoever was there before stays: other tests have a JVM running."""
    before = children()
    yield
    assert children() - before == set()


@pytest.fixture
def batons(monkeypatch: pytest.MonkeyPatch) -> list[pipeline.Baton]:
    """The last baton of each call."""
    seen: list[pipeline.Baton] = []
    render_with_two = pipeline.render_with_two

    def noting(*arguments: Any) -> pipeline.Baton:
        seen.append(render_with_two(*arguments))
        return seen[-1]

    monkeypatch.setattr(pipeline, "render_with_two", noting)
    return seen


def run(
    segment: Segment, directory: str, *, jobs: int, **mode: Any
) -> tuple[bytes, list[str], LogDumpResult]:
    faults: list[str] = []

    def note(error: FormatError) -> None:
        faults.append(str(error))

    with Path(directory, "out").open("w+b", buffering=0) as out:
        result = render_log(segment, out.write, on_error=note, jobs=jobs, fd=out.fileno(), **mode)
        out.seek(0)
        return out.read(), faults, result


def check_same(data: bytes, **mode: Any) -> None:
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, SEGMENT_NAME)
        path.write_bytes(data)
        with open_segment(path) as segment:
            alone = run(segment, directory, jobs=1, **mode)
            assert run(segment, directory, jobs=2, **mode) == alone


@pytest.mark.usefixtures("small_pieces")
@pytest.mark.parametrize("mode", [DEEP, HEADERS])
def test_a_healthy_log_is_wholly_rendered_by_two(
    batons: list[pipeline.Baton], mode: dict[str, bool]
) -> None:
    for seed in range(4):
        data = make_log(150, seed)
        check_same(data, **mode)
        assert batons[-1].pos == len(data)


@pytest.mark.usefixtures("small_pieces")
def test_guesses_are_used_and_wrong_ones_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """In this process, without a fork: how each piece came out."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, SEGMENT_NAME)
        path.write_bytes(make_log(150))
        kinds = []
        with open_segment(path) as segment, Path(directory, "out").open("wb") as out:
            from eoctl.text.renderers import HeaderRenderer

            worker = pipeline._Renderer(
                segment, HeaderRenderer(out.write), out.fileno(), segment.file_bytes
            )
            baton, index = pipeline.FIRST_BATON, 0
            while not baton.is_over:
                ready = worker.render_ahead(index)
                kinds.append(None if ready is None else ready.continues(baton))
                baton = worker.take_turn(index, ready, baton)
                index += 1
    assert kinds.count(True) > 10
    assert kinds.count(False) > 3


def test_damage_anywhere_is_rendered_the_same() -> None:
    data = make_log(60)

    @given(
        pos=st.integers(0, len(data) - 1),
        flip=st.integers(1, 255),
        end=st.one_of(st.just(len(data)), st.integers(0, len(data))),
        right=st.booleans(),
        deep=st.booleans(),
    )
    @settings(max_examples=60)
    def check(pos: int, flip: int, end: int, right: bool, deep: bool) -> None:
        damaged = bytearray(data)
        damaged[pos] ^= flip
        whole = with_right_checksums(bytes(damaged)) if right else bytes(damaged)
        check_same(whole[:end], **(DEEP if deep else HEADERS))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bulk, "TWO_PROCESSES_MIN_BYTES", 1)
        patch.setattr(pipeline, "PIECE_BYTES", 1500)
        patch.setattr(pipeline, "COMPRESSED_PIECE_BYTES", 1100)
        patch.setattr(pipeline, "MORE_BYTES", 100)
        check()


@pytest.mark.usefixtures("small_pieces")
def test_too_much_text_is_left_to_one_process(
    monkeypatch: pytest.MonkeyPatch, batons: list[pipeline.Baton]
) -> None:
    monkeypatch.setattr(pipeline, "MAX_TEXT_BYTES", 20_000)
    bomb = make_batch(10**6, [bytes(30_000)], codec=4)
    start = make_log(50)
    check_same(start + bomb + make_batch(10**6 + 1, [b"after"]), **DEEP)
    assert 0 < batons[-1].pos <= len(start)


@pytest.fixture
def large_log(tmp_path: Path) -> Iterator[Segment]:
    path = tmp_path / SEGMENT_NAME
    path.write_bytes(make_log(300))
    with open_segment(path) as segment:
        yield segment


def ignore(error: FormatError) -> None:
    raise AssertionError(error)


@pytest.mark.usefixtures("small_pieces", "nobody_left_behind")
@pytest.mark.parametrize("lines", [0, 10, 400])
def test_a_closed_pipe_ends_both(large_log: Segment, lines: int) -> None:
    """Whoever of the two meets it; nobody is left behind."""
    read_end, write_end = os.pipe()
    reader = os.fork()
    if reader == 0:
        os.close(write_end)
        for _ in range(lines):
            os.read(read_end, 100)
        os._exit(0)
    os.close(read_end)
    try:
        with pytest.raises(BrokenPipeError):
            render_log(large_log, print, on_error=ignore, fd=write_end, jobs=2, **DEEP)
    finally:
        os.close(write_end)
        os.waitpid(reader, 0)


@pytest.mark.usefixtures("small_pieces", "nobody_left_behind")
def test_a_second_process_that_is_killed_is_an_error(
    large_log: Segment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    take_turn = pipeline._Renderer.take_turn
    parent = os.getpid()

    def deadly(worker: Any, index: int, *rest: Any) -> Any:
        if index >= 5 and os.getpid() != parent:
            os.kill(os.getpid(), signal.SIGKILL)
        return take_turn(worker, index, *rest)

    monkeypatch.setattr(pipeline._Renderer, "take_turn", deadly)
    with (tmp_path / "out").open("wb") as out, pytest.raises(EoctlError, match="second process"):
        render_log(large_log, out.write, on_error=ignore, fd=out.fileno(), jobs=2, **DEEP)


@pytest.mark.usefixtures("small_pieces", "nobody_left_behind")
def test_what_the_first_process_raises_ends_the_second(
    large_log: Segment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(_child: pipeline.ChildProcess) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(pipeline.ChildProcess, "receive", interrupted)
    with (tmp_path / "out").open("wb") as out, pytest.raises(KeyboardInterrupt):
        render_log(large_log, out.write, on_error=ignore, fd=out.fileno(), jobs=2, **DEEP)
