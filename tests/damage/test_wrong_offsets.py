"""A flipped bit where no checksum looks: it is the damage, and what follows it is none."""

from __future__ import annotations

import json
import shutil
import struct
from typing import TYPE_CHECKING

import pytest

from recovery.repair.salvage_scan import salvage_segment
from tests.damage.faults import Batch, read_batches
from tests.damage.planted import layout
from tests.running import runner

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.running import Outcome

    Cli = Callable[..., Outcome]

NAME = "00000000000000000000.log"
RAISED_BIT = 1 << 21  # of the base offset


@pytest.fixture
def eoctl(capfdbinary: pytest.CaptureFixture[bytes]) -> Cli:
    return runner(capfdbinary)


def damaged(
    source: Path, target: Path, number: int, *, length_too: bool = False, magic: int | None = None
) -> tuple[Path, list[Batch]]:
    """Copy a partition; one bit of a base offset flips, and one of the next batch's length."""
    directory = target / source.name
    directory.mkdir()
    shutil.copy(source / NAME, directory / NAME)
    path = directory / NAME
    data = bytearray(path.read_bytes())
    batches = read_batches(bytes(data))
    pos = batches[number].pos
    if magic is None:
        struct.pack_into(">q", data, pos, batches[number].base_offset ^ RAISED_BIT)
    else:
        data[pos + 16] = magic
    if length_too:
        data[batches[number + 1].pos + 8] ^= 0x10
    path.write_bytes(data)
    return directory, batches


def offsets_of(outcome: Outcome) -> list[int]:
    return [json.loads(line)["offset"] for line in outcome.text.splitlines()]


@pytest.mark.parametrize("length_too", [False, True])
@pytest.mark.parametrize("topic", ["kafka-4.3.1/clean/plain-0", "kafka-0.10.2-legacy/v1-none-0"])
def test_it_costs_its_batch_alone(
    golden: Callable[[str], Path], tmp_path: Path, eoctl: Cli, topic: str, length_too: bool
) -> None:
    """And the one whose length is damaged; all commands say so, with the offsets that are gone."""
    archive, _, inside = topic.partition("/")
    directory, batches = damaged(golden(archive) / inside, tmp_path, 3, length_too=length_too)
    gone = batches[3:5] if length_too else batches[3:4]
    before = offsets_of(eoctl("consume", golden(archive) / inside, "--output", "jsonl"))
    wrong = eoctl("consume", directory, "--output", "jsonl", "--skip-corrupt")
    assert wrong.status == 5
    lost = range(gone[0].base_offset, gone[-1].last_offset + 1)
    assert offsets_of(wrong) == [each for each in before if each not in lost]
    assert f"offsets {lost[0]} to {gone[0].last_offset if not length_too else lost[-1]}" in (
        wrong.errors
    )
    assert f"offset {batches[3].base_offset ^ RAISED_BIT} contradicts" in wrong.errors
    stopped = eoctl("consume", directory, "--output", "jsonl")
    assert stopped.status == 1
    assert offsets_of(stopped) == [each for each in before if each < lost[0]]

    for mode in ([], ["--output", "jsonl"]):
        dumped = eoctl("dump-segment", directory / NAME, *mode)
        assert dumped.status == 1
        word = "position: " if not mode else '"pos":'
        lines = [line for line in dumped.text.splitlines() if word in line]
        assert len(lines) == len(batches) - length_too

    call = ("export", directory, "--to", tmp_path / "out", "--format", "jsonl")
    exported = eoctl(*call, "--output", "jsonl")
    assert exported.status == 1
    files = sorted((tmp_path / "out").glob("topic=*/*/*.jsonl"))
    rows = [json.loads(line) for each in files for line in each.read_text().splitlines()]
    assert [row["offset"] for row in rows] == offsets_of(wrong)
    losses = [json.loads(line) for line in (tmp_path / "out/_lost.jsonl").read_text().splitlines()]
    reported = [
        each for row in losses for each in range(row["base_offset"], row["last_offset"] + 1)
    ]
    assert sorted(set(reported)) == [*lost]
    (summary,) = map(json.loads, exported.text.splitlines())
    assert (summary["lost_offsets"], summary["lost_ranges"]) == (len(lost), len(losses))
    assert losses[0]["start_pos"] == batches[3].pos
    known = eoctl("loss", directory, "--output", "jsonl")
    assert known.status == 1
    found = [each for each in map(json.loads, known.text.splitlines()) if each["kind"] == "lost"]
    assert [(each["base_offset"], each["last_offset"]) for each in found] == [
        (row["base_offset"], row["last_offset"]) for row in losses
    ]
    audited = eoctl("spark-audit", directory, "--engine", "local", "--output", "jsonl")
    assert audited.status == 1


@pytest.mark.parametrize("magic", [0, 5])
def test_a_magic_that_the_checksum_disproves(
    golden: Callable[[str], Path], tmp_path: Path, eoctl: Cli, magic: int
) -> None:
    """The records are proven: they are given, and the byte is told of."""
    source = golden("kafka-4.3.1") / "clean/plain-0"
    directory, _ = damaged(source, tmp_path, 3, magic=magic)
    before = offsets_of(eoctl("consume", source, "--output", "jsonl"))
    found = eoctl("consume", directory, "--output", "jsonl")
    assert found.status == 1
    assert offsets_of(found) == before
    assert f"damaged, and given: {directory / NAME}" in found.errors
    assert f"magic {magic}, where the checksum holds for magic 2" in found.errors
    exported = eoctl("export", directory, "--to", tmp_path / "out")
    assert exported.status == 1
    assert "its records are exported" in exported.errors
    assert (tmp_path / "out/_lost.jsonl").read_bytes() == b""


def test_the_last_batch_with_a_wrong_magic_is_where_the_log_ends(
    golden: Callable[[str], Path], tmp_path: Path, eoctl: Cli
) -> None:
    """Its records are given: they are not missing below the high watermark, too."""
    source = golden("kafka-4.3.1") / "clean"
    log_dir = tmp_path / "log-dir"
    log_dir.mkdir()
    for each in source.iterdir():
        if each.is_file():
            shutil.copy(each, log_dir)
    directory, _ = damaged(source / "plain-0", log_dir, -1, magic=1)
    for command in (("export", directory, "--to", tmp_path / "out"), ("loss", directory)):
        found = eoctl(*command)
        assert found.status == 1
        assert "[BAT-1]; its records are" in found.errors
        assert "missing" not in found.errors + found.text
    assert (tmp_path / "out/_lost.jsonl").read_bytes() == b""


@pytest.mark.parametrize("magic", [0, 1, 5])
@pytest.mark.parametrize("number", [0, 3, -1])
def test_salvage_puts_a_magic_right(
    golden: Callable[[str], Path], tmp_path: Path, eoctl: Cli, magic: int, number: int
) -> None:
    """Nothing is lost: the log is what it was."""
    source = golden("kafka-4.3.1") / "clean/plain-0"
    directory, _ = damaged(source, tmp_path, number, magic=magic)
    call = ("repair", directory, "--strategy", "salvage", "--output", "jsonl")
    found = eoctl(*call, "--apply", "--single-copy")
    assert found.status == 0
    rows = [json.loads(line) for line in found.text.splitlines()]
    assert {row["lost_offsets_count"] for row in rows if "lost_offsets_count" in row} == {0}
    assert (
        f"magic {magic}, where the checksum holds for magic 2: that byte is put right"
        in found.errors
    )
    assert (directory / NAME).read_bytes() == (source / NAME).read_bytes()


def test_the_last_batch_of_a_segment(
    golden: Callable[[str], Path], tmp_path: Path, eoctl: Cli
) -> None:
    """Only the name of the next segment contradicts it; nothing of that is hidden."""
    source = golden("kafka-4.3.1") / "hard-clean/idem-none-0"
    directory = tmp_path / source.name
    shutil.copytree(source, directory)
    path = directory / NAME
    path.chmod(0o644)
    data = bytearray(path.read_bytes())
    last = read_batches(bytes(data))[-1]
    struct.pack_into(">q", data, last.pos, last.base_offset ^ RAISED_BIT)
    path.write_bytes(data)
    before = offsets_of(eoctl("consume", source, "--output", "jsonl"))
    found = eoctl("consume", directory, "--output", "jsonl", "--skip-corrupt")
    assert found.status == 5
    lost = range(last.base_offset, last.last_offset + 1)
    assert offsets_of(found) == [each for each in before if each not in lost]
    assert f"offsets {lost[0]} to 180" in found.errors  # the next segment begins at 181
    assert "[SEG-1]" in found.errors


@pytest.mark.parametrize("bit", [0x10, 0x80])
def test_the_last_good_batch_before_a_damaged_one(
    golden: Callable[[str], Path], tmp_path: Path, eoctl: Cli, bit: int
) -> None:
    """No good batch behind it contradicts its offset; what is left of a damaged one does."""
    source = golden("kafka-4.3.1") / "clean"
    log_dir = tmp_path / "clean"
    shutil.copytree(source, log_dir)
    path = log_dir / "plain-0" / NAME
    path.chmod(0o644)
    data = bytearray(path.read_bytes())
    *_, raised, torn = read_batches(bytes(data))
    struct.pack_into(">q", data, raised.pos, raised.base_offset ^ 1 << 30)
    data[torn.pos + 8] ^= bit  # of the length: too long, or below 0
    path.write_bytes(data)
    for command, status in (
        ("check", 1), ("describe", 1), ("consume", 5), ("duplicates", 5), ("producers", 5),
        ("dump-segment", 1), ("spark-audit", 1),
    ):  # fmt: skip
        more = ["--engine", "local"] if command == "spark-audit" else []
        more = ["--skip-corrupt"] if command == "consume" else more
        found = eoctl(command, path.parent, *more)
        assert found.status == status, (command, found.errors)
        assert "BAT-3" in found.text + found.errors, command
    count = torn.last_offset + 1 - raised.base_offset
    missing = f"offsets {raised.base_offset} to {torn.last_offset} ({count}) are missing"
    assert missing in eoctl("consume", path.parent, "--skip-corrupt").errors


def test_a_whole_batch_within_a_header_is_no_torn_one(
    golden: Callable[[str], Path], tmp_path: Path, eoctl: Cli
) -> None:
    """A byte between two batches: the length that is read there leads beyond the end of the log."""
    source = golden("kafka-4.3.1") / "clean/ctp-out-0"
    directory = tmp_path / source.name
    directory.mkdir()
    data = bytearray((source / NAME).read_bytes())
    last = read_batches(bytes(data))[-1]
    data[last.pos + 3] ^= 1 << 3  # of the base offset
    data.insert(last.pos, 0)
    (directory / NAME).write_bytes(data)
    for command in ("check", "dump-segment", "consume"):
        more = ["--skip-corrupt", "--output", "jsonl"] if command == "consume" else []
        said = eoctl(command, directory, *more)
        assert said.status in (1, 5), command
        assert "SEG-3" in said.text + said.errors, command


def test_a_lowered_wrapper_that_begins_below_its_segment(
    golden: Callable[[str], Path], tmp_path: Path
) -> None:
    """Its header says the last offset, which the segment may hold; the first one it may not."""
    data = (golden("kafka-0.10.2-legacy") / "v1-snappy-0" / NAME).read_bytes()
    second, third = read_batches(data)[1:3]
    path = tmp_path / "00000000000000000012.log"
    wrong = struct.pack(">q", second.last_offset - 3)
    path.write_bytes(wrong + data[second.pos + 8 : third.end])
    found = salvage_segment(str(path), 12, end_offset=third.last_offset + 1)
    assert found.kept_ranges == ((second.size, second.size + third.size),)
    (loss,) = found.losses
    assert (loss.check_id, loss.base_offset, loss.last_offset) == ("SEG-2", 12, 23)


def test_the_name_of_a_segment_that_is_contradicted_bounds_no_loss(
    golden: Callable[[str], Path], tmp_path: Path, eoctl: Cli
) -> None:
    """What goes beyond it costs its last offset, too."""
    source = golden("kafka-4.3.1") / "clean/rolled-0"
    directory = tmp_path / source.name
    shutil.copytree(source, directory)
    layout.rename_segment(directory, 25, 24)
    assert read_batches((directory / NAME).read_bytes())[-1].last_offset == 24
    before = offsets_of(eoctl("consume", source, "--output", "jsonl"))
    exported = eoctl(
        *("export", directory, "--to", tmp_path / "out", "--format", "jsonl"),
        *("--output", "jsonl"),
    )
    (summary,) = map(json.loads, exported.text.splitlines())
    assert summary["records"] + summary["lost_offsets"] == len(before)
    (loss,) = map(json.loads, (tmp_path / "out/_lost.jsonl").read_text().splitlines())
    assert (loss["base_offset"], loss["last_offset"]) == (20, 24)
    known = map(json.loads, eoctl("loss", directory, "--output", "jsonl").text.splitlines())
    assert {row["lost_offsets"] for row in known if row["kind"] == "partition"} == {5}
