"""Progress on a terminal: drawn, cleared before anything else is written, off when asked for."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from eoctl import output, progress
from recovery.pool import map_unordered
from storage.files import positioned_file
from storage.files.positioned_file import PositionedFile
from tests.kafka.broker import copy_log_dir
from tests.terminal import COLORS, Shown, on_terminal

if TYPE_CHECKING:
    from collections.abc import Callable

LOG = "00000000000000000000.log"
# Without the time in which nothing is drawn, so that golden directories are large enough.
AT_ONCE = """
import sys
from eoctl import progress
progress.QUIET_SECONDS = progress.EVERY_SECONDS = 0
from eoctl.start import run
run()
"""
DRAWN = re.compile(r"\r([^\r\n]*)\x1b\[K")


def at_once(*arguments: object, **options: Any) -> Shown:
    return on_terminal(*arguments, program=(sys.executable, "-c", AT_ONCE), **options)


def lines_drawn(shown: Shown) -> list[str]:
    return [each for each in DRAWN.findall(shown.raw) if each]


@pytest.fixture
def kafka(golden: Callable[[str], Path], tmp_path: Path) -> Path:
    return copy_log_dir(golden("kafka-4.3.1") / "clean", tmp_path / "kafka")


# A program that agrees to all it is given.
ECHO = """sed -u -n '/"kind":"commit"/p'"""
CALLS = {
    "checking": ("check", "kafka", "--now", "0"),
    "reading": ("describe", "kafka/rolled-0"),
    "rebuilding": ("rebuild", "kafka/rolled-0"),
    "replaying": ("recover-state", "kafka/rolled-0", "--from-scratch"),
    "planning": ("truncate", "kafka/rolled-0", "--to-offset", "31", "--single-copy"),
    "copying": ("truncate", "kafka/rolled-0", "--to-offset", "31", "--single-copy", "--apply"),
    "dumping": ("dump-segment", "kafka/rolled-0"),
    "handing over": ("consume", "kafka/rolled-0", "--exec", ECHO, "--checkpoint", "position"),
}


BOTH = ("stdout", "stderr")


@pytest.mark.share(1)
@pytest.mark.parametrize(
    ("what", "streams"), [*((each, BOTH) for each in CALLS), ("checking", ("stderr",))]
)
def test_it_is_drawn_and_cleared(
    what: str, streams: tuple[str, ...], kafka: Path, tmp_path: Path
) -> None:
    """Whether stdout is the terminal, too, or not; what is read is named, with bytes."""
    shown = at_once(*CALLS[what], cwd=tmp_path, streams=streams, width=120)
    mine = [each for each in lines_drawn(shown) if each.startswith(what)]
    assert mine, shown.raw
    assert any(f"rolled-0/{LOG[:4]}" in each for each in lines_drawn(shown))
    assert any(re.search(r"[\d.]+ [KMG]?i?B", each) for each in mine)
    # Nothing else is ever written behind the line that stands there.
    for part in shown.raw.split("\n"):
        visible = COLORS.sub("", part).rpartition("\x1b[K")[2]
        assert not visible.startswith("\r"), part
    left = COLORS.sub("", re.sub(r"\r[^\r\n]*\x1b\[K", "", shown.raw))
    if what in ("checking", "dumping"):
        quiet = at_once(*CALLS[what], "-q", cwd=tmp_path, streams=streams, width=120)
        assert left == quiet.text
        assert lines_drawn(quiet) == []


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("call", "count", "unit"),
    [
        (("explore", "--min-insync-replicas", 2, "--faults", "kill", "--seeds", 9), 9, "seeds"),
        (("run", "play", "--records", 3000), 3000, "records"),
    ],
)
def test_what_is_played_is_counted_and_is_no_bytes(
    tmp_path: Path, call: tuple[object, ...], count: int, unit: str
) -> None:
    """What brokers that are played read counted as if it were seeds: 100% from the first on."""
    assert on_terminal("sim", "init", "play", cwd=tmp_path).status == 0
    shown = at_once("sim", *call, cwd=tmp_path, width=100)
    assert shown.status == 0, shown.raw
    drawn = [each for each in lines_drawn(shown) if each.startswith("playing")]
    done = [re.search(rf" ([\d,]+) of {count:,} {unit}", each) for each in drawn]
    counts = [int(each[1].replace(",", "")) for each in done if each is not None]
    assert counts == sorted(counts)
    assert counts[0] < count
    assert counts[-1] > 0
    assert not any(" B" in each or "iB" in each for each in drawn)


@pytest.mark.exhaustive
def test_a_wide_line_is_cut_where_it_says_least(kafka: Path, tmp_path: Path) -> None:
    for width in (100, 40, 20):
        drawn = lines_drawn(at_once("describe", "kafka/rolled-0", cwd=tmp_path, width=width))
        assert drawn
        assert all(len(each) < width for each in drawn)
        assert any("MiB of 2.29 MiB" in each for each in drawn) or width == 20


@pytest.mark.exhaustive
def test_never_in_a_pipe_or_on_a_dumb_terminal(kafka: Path, tmp_path: Path) -> None:
    call = ("describe", "kafka/rolled-0")
    assert "\r" not in at_once(*call, cwd=tmp_path, streams=("stdout",)).raw
    dumb = at_once(*call, cwd=tmp_path, environment={"TERM": "dumb"})
    assert lines_drawn(dumb) == []
    assert lines_drawn(at_once(*call, "--no-progress", cwd=tmp_path)) == []


def test_nothing_is_drawn_for_half_a_second(kafka: Path, tmp_path: Path) -> None:
    assert (progress.QUIET_SECONDS, kafka.exists()) == (0.5, True)
    assert lines_drawn(on_terminal("describe", "kafka/plain-0", cwd=tmp_path)) == []


# A large read is one of 100 kB, and there is no native kernel.
WITHOUT_KERNEL = """
from eoctl import progress
from storage.kernels import kernel_choice
progress.QUIET_SECONDS = progress.EVERY_SECONDS = 0
progress.LONG_READ_BYTES = 100_000
kernel_choice.native_module = lambda: None
from eoctl.start import run
run()
"""


@pytest.mark.parametrize(
    ("call", "is_reported"),
    [
        (("check", "kafka", "--now", "0"), True),
        (("describe", "kafka/plain-0"), False),  # small
        (("describe", "kafka/rolled-0", "-q"), False),
    ],
)
@pytest.mark.parametrize("demanded", ["", "numpy"])
def test_a_large_read_says_once_that_the_native_kernel_is_missing(
    call: tuple[str, ...], *, is_reported: bool, demanded: str, kafka: Path, tmp_path: Path
) -> None:
    program = (sys.executable, "-c", WITHOUT_KERNEL)
    environment = {"EOCTL_KERNEL": demanded}
    shown = on_terminal(*call, cwd=tmp_path, width=200, environment=environment, program=program)
    reported = COLORS.sub("", shown.raw).count("the native kernel is not installed")
    assert reported == (is_reported and not demanded), shown.raw
    assert shown.raw.count("--force-reinstall") == reported


class Reported:
    """Keeps what a watcher is told."""

    def __init__(self) -> None:
        self.count = positioned_file.LogCount()
        self.elsewhere: list[tuple[str, int]] = []

    def read(self, path: str, pos: int, count: int) -> None:
        self.count.read(path, pos, count)

    def read_elsewhere(self, path: str, count: int) -> None:
        self.elsewhere.append((path, count))


@pytest.fixture
def reported() -> Any:
    watcher = Reported()
    positioned_file.watch(watcher)
    yield watcher
    positioned_file.watch(None)


def test_what_is_read_again_at_once_counts_once(reported: Reported, kafka: Path) -> None:
    size = (kafka / "txn-0" / LOG).stat().st_size
    with PositionedFile(kafka / "txn-0" / LOG) as file:
        for _ in range(2):
            file.read_at(0, size)
    with PositionedFile(kafka / "txn-0" / "00000000000000000000.index") as file:
        file.read_at(0, 100)
    assert reported.count.count_bytes == size


def read_log(path: str) -> int:
    with PositionedFile(path) as file:
        return sum(len(file.read_at(0, file.file_bytes).data) for _ in range(2))


def test_what_other_processes_read_is_told(reported: Reported, kafka: Path) -> None:
    paths = [str(kafka / name / LOG) for name in ("txn-0", "txn-1", "plain-0", "plain-1")]
    sizes = {path: Path(path).stat().st_size for path in paths}
    results = dict(map_unordered(read_log, paths, 2))
    assert [results[number] for number in range(4)] == [2 * sizes[path] for path in paths]
    assert sum(count for _, count in reported.elsewhere) == sum(sizes.values())
    assert {path for path, _ in reported.elsewhere} == {*paths}
    assert reported.count.count_bytes == 0


def test_the_next_row_makes_room(capfd: pytest.CaptureFixture[str]) -> None:
    cleared = []
    output.clear_before_writing(lambda: cleared.append(True))
    try:
        output.line("a row")
        output.write_stderr("words")
    finally:
        output.clear_before_writing(None)
    assert len(cleared) == 2
    output.flush()
    assert capfd.readouterr() == ("a row\n", "words\n")


def test_what_was_interrupted_while_it_was_drawn_is_cleared(
    capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Most of the time of a line is that of writing it, so an interrupt comes there."""
    monkeypatch.setattr(progress, "QUIET_SECONDS", 0)
    monkeypatch.setattr(progress, "_is_terminal", lambda: True)
    written = progress._Line._write

    def interrupt(data: bytes) -> None:
        written(data)
        monkeypatch.undo()
        raise KeyboardInterrupt

    progress.start(is_wanted=True)
    try:
        monkeypatch.setattr(progress._Line, "_write", staticmethod(interrupt))
        with pytest.raises(KeyboardInterrupt), progress.Progress("checking") as part:
            part.advance(1)
        output.message("interrupted")
    finally:
        progress.stop()
    assert capfdbinary.readouterr().err.endswith(b"\x1b[K\r\x1b[Kinterrupted\n")
