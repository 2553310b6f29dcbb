"""`eoctl metadata` over metadata that are damaged, short, strange or in use."""

from __future__ import annotations

import os
import random
from typing import TYPE_CHECKING, Any

import pytest

from storage.formats.varint import encode_uvarint
from tests.changes import held, notes_of, rows_of
from tests.metadata_logs import batch, change, level, node, partition, snapshot, topic, write_log

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

JSONL = ("--output", "jsonl")
WAYS = [(), ("--history",)]
T = bytes(range(16))
LOG = f"{0:020d}.log"
SHRINKS = [change(T, isr=[1]), change(T, isr=[1, 2])]
BATCHES = [
    (1, [topic("t", T), partition(T, [1, 2])]),
    *((2 + number, [SHRINKS[number % 2]]) for number in range(20)),
]
END_OFFSET = 22


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    path = tmp_path / "__cluster_metadata-0"
    write_log(path, BATCHES)
    return path


def reported(done: Any) -> str:
    return "\n".join(notes_of(done))


@pytest.mark.parametrize("options", WAYS)
def test_the_last_batch_is_cut_short(
    directory: Path, eoctl: Callable[..., Any], options: tuple[str, ...]
) -> None:
    """What a crash leaves is no loss, and is said."""
    (directory / LOG).write_bytes((directory / LOG).read_bytes()[:-30])
    done = eoctl("metadata", directory, *options, *JSONL)
    assert done.status == 0
    assert "ends in a truncated batch" in reported(done)
    (directory / LOG).write_bytes((directory / LOG).read_bytes() + bytes(4096))
    done = eoctl("metadata", directory, *options, *JSONL)
    assert done.status in (0, 5)
    assert "truncated" in reported(done) or done.status == 5


@pytest.mark.parametrize("options", WAYS)
def test_the_first_segment_is_missing(
    tmp_path: Path, eoctl: Callable[..., Any], options: tuple[str, ...]
) -> None:
    path = tmp_path / "__cluster_metadata-0"
    write_log(path, BATCHES[1:], base_offset=2)
    done = eoctl("metadata", path, *options, *JSONL)
    assert done.status == 5
    assert "offsets from 0 are missing in the log" in reported(done)


@pytest.mark.parametrize("options", WAYS)
@pytest.mark.parametrize("data", [b"", snapshot(level("f", 1))[:-9]])
def test_a_snapshot_that_is_not_whole_alone(
    tmp_path: Path, eoctl: Callable[..., Any], options: tuple[str, ...], data: bytes
) -> None:
    path = tmp_path / "__cluster_metadata-0"
    path.mkdir()
    (path / f"{10:020d}-{1:010d}.checkpoint").write_bytes(data)
    done = eoctl("metadata", path, *options, *JSONL)
    assert done.status == 5
    assert "not a whole snapshot" in reported(done)
    assert "no record is in it" in reported(done)


def test_a_snapshot_ahead_of_the_log(directory: Path, eoctl: Callable[..., Any]) -> None:
    """The state is known; what happened in between is not."""
    (directory / f"{100:020d}-{1:010d}.checkpoint").write_bytes(snapshot(topic("u", T)))
    done = eoctl("metadata", directory, *JSONL)
    assert (done.status, rows_of(done, "cluster")[0]["end_offset"]) == (0, 100)
    done = eoctl("metadata", directory, "--history", *JSONL)
    assert done.status == 5
    (unread,) = rows_of(done, "unread")
    assert (unread["offset"], unread["end_offset"]) == (END_OFFSET, 100)


@pytest.mark.parametrize("options", WAYS)
def test_records_of_a_newer_release(
    directory: Path, eoctl: Callable[..., Any], options: tuple[str, ...]
) -> None:
    """They are passed over and counted; what follows is read."""
    values = [_frame(99, 0), _frame(5, 9), change(T, isr=[1])]
    data = b"".join(
        batch(END_OFFSET + number, [value], time_ms=50) for number, value in enumerate(values)
    )
    with (directory / LOG).open("ab") as file:
        file.write(data)
    done = eoctl("metadata", directory, *options, *JSONL)
    assert done.status == 5
    assert "2 records were not understood" in reported(done)
    if options:
        assert [each["offset"] for each in rows_of(done, "unread")] == [END_OFFSET, END_OFFSET + 1]
        assert rows_of(done, "partition_change")[-1]["offset"] == END_OFFSET + 2
    else:
        (row,) = rows_of(done, "cluster_partition")
        assert row["isr"] == [1]


def _frame(api_key: int, version: int) -> bytes:
    return b"".join(map(encode_uvarint, (1, api_key, version))) + bytes(40)


@pytest.mark.parametrize("options", WAYS)
def test_a_time_beyond_the_end(
    directory: Path, eoctl: Callable[..., Any], options: tuple[str, ...]
) -> None:
    done = eoctl("metadata", directory, *options, "--at", "2999-01-01T00:00:00Z", *JSONL)
    assert done.status == 0
    assert "the last record before it is of 1970-01-01 00:00:00.021 UTC" in reported(done)


def test_hostile_names(tmp_path: Path, eoctl: Callable[..., Any]) -> None:
    path = tmp_path / "__cluster_metadata-0"
    names = ["\x1b[31mred", "a\tb", "../../etc", "two\nlines", "\u202eevil", "", "x" * 249]
    ids = [bytes([1 + number]) * 16 for number in range(len(names))]
    write_log(
        path,
        [
            (1, [topic(name, each) for name, each in zip(names, ids, strict=True)]),
            (2, [partition(each, [1]) for each in ids]),
        ],
    )
    for options in WAYS:
        done = eoctl("metadata", path, *options)
        assert done.status == 0
        text = done.stdout.decode()
        assert not {"\x1b", "\u202e"} & {*text}
        assert "two\\nlines" in text
        rows = rows_of(eoctl("metadata", path, *options, *JSONL))
        assert {*names} <= {each.get("topic") for each in rows}


@pytest.mark.parametrize("options", WAYS)
def test_a_controller_that_runs(
    tmp_path: Path, eoctl: Callable[..., Any], options: tuple[str, ...]
) -> None:
    log_dir = node(tmp_path, 1, [(1, 0)], 5)
    with held(log_dir):
        done = eoctl("metadata", log_dir, *options, *JSONL)
    assert done.status == 0
    assert "It may have gone on since" in reported(done)
    assert "gone on" not in reported(eoctl("metadata", log_dir, *options, *JSONL))


def test_a_segment_that_cannot_be_opened(
    directory: Path, tmp_path: Path, eoctl: Callable[..., Any]
) -> None:
    (directory / LOG).rename(tmp_path / "moved")
    (directory / LOG).symlink_to(tmp_path / "nowhere")
    for options in WAYS:
        done = eoctl("metadata", directory, *options, *JSONL)
        assert done.status in (3, 5), options
        assert LOG in done.errors


def test_any_bits_are_flipped(directory: Path, eoctl: Callable[..., Any]) -> None:
    """Status 0 comes with the answer of the whole log only: a leader epoch has no checksum."""
    whole = (directory / LOG).read_bytes()
    answers = {options: eoctl("metadata", directory, *options, *JSONL) for options in WAYS}
    rng = random.Random(os.environ["EOCTL_SEED"])
    for _ in range(12):
        data = bytearray(whole)
        for _ in range(rng.randint(1, 5)):
            data[rng.randrange(len(data) // 2)] ^= 1 << rng.randrange(8)
        (directory / LOG).write_bytes(data)
        for options in WAYS:
            done = eoctl("metadata", directory, *options, *JSONL)
            assert done.status in (0, 5), done.errors
            assert done.status == 5 or done.stdout == answers[options].stdout
