"""`eoctl consume` against what a real client was given, at all bounds, in all formats."""

from __future__ import annotations

import base64
import io
import json
from typing import TYPE_CHECKING, Any

import msgpack
import pytest

from tests.read_back import PARTITIONS

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.running import Outcome

    Eoctl = Callable[..., Outcome]

ISOLATIONS = ("read_uncommitted", "read_committed")
FIELDS = ["offset", "timestamp_ms", "timestamp_type", "key", "value", "headers"]


def fixture(golden: Callable[[str], Path], name: str, isolation: str) -> list[dict[str, Any]]:
    """What a real client was given: a line about the reading, then a line for each record."""
    (path,) = golden("kafka-4.3.1-clean.consumed").rglob(f"{name}.{isolation}.jsonl")
    return [json.loads(line) for line in path.read_text().split("\n") if line]


def rows_of(outcome: Outcome) -> list[dict[str, Any]]:
    return [json.loads(line) for line in outcome.text.split("\n")[:-1]]


def offsets_of(outcome: Outcome) -> list[int]:
    return [row["offset"] for row in rows_of(outcome)]


def notes_of(outcome: Outcome) -> list[dict[str, Any]]:
    return [json.loads(line) for line in outcome.errors.splitlines()]


@pytest.fixture
def clean(golden: Callable[[str], Path]) -> Path:
    """A node that was stopped cleanly; to be read."""
    return golden("kafka-4.3.1") / "clean"


# --- what a real client was given -----------------------------------------------------------------


@pytest.mark.parametrize("isolation", ISOLATIONS)
@pytest.mark.parametrize("name", PARTITIONS)
def test_it_is_what_a_real_client_was_given(
    name: str, isolation: str, eoctl: Eoctl, clean: Path, golden: Callable[[str], Path]
) -> None:
    about, *records = fixture(golden, name, isolation)
    outcome = eoctl(
        "consume", clean / name, "--isolation", isolation, "--until", "hw", "--output", "jsonl",
        "--bytes", "base64",
    )  # fmt: skip
    assert outcome.status == 0, outcome.errors
    found = rows_of(outcome)
    assert found == records
    assert all(list(row) == FIELDS for row in found)
    assert f"next offset {about['stopped_at_offset']};" in notes_of(outcome)[-1]["message"]


@pytest.mark.parametrize("name", ["txn-0", "txn-1", "compacted-0", "ctp-out-0"])
def test_the_index_of_aborted_transactions_says_the_same(
    name: str, eoctl: Eoctl, clean: Path
) -> None:
    call = ("consume", clean / name, "--isolation", "read_committed", "--output", "jsonl")
    from_index = eoctl(*call, "--aborted-from", "txnindex")
    assert from_index.status == 0
    assert from_index.stdout == eoctl(*call).stdout


@pytest.mark.parametrize("name", ["plain-0", "txn-0", "idem-zstd-0", "append-time-0"])
def test_msgpack_has_the_same_records(name: str, eoctl: Eoctl, clean: Path) -> None:
    rows = rows_of(eoctl("consume", clean / name, "--output", "jsonl", "--bytes", "base64"))
    packed = eoctl("consume", clean / name, "--output", "msgpack")
    found = list(msgpack.Unpacker(io.BytesIO(packed.stdout)))
    assert [list(each) for each in found] == [FIELDS] * len(rows)
    for row in rows:
        for field in ("key", "value"):
            row[field] = None if row[field] is None else base64.b64decode(row[field])
        row["headers"] = [
            [name, None if value is None else base64.b64decode(value)]
            for name, value in row["headers"]
        ]
    assert found == rows


# --- text -----------------------------------------------------------------------------------------


def test_text_is_the_values(eoctl: Eoctl, clean: Path) -> None:
    rows = rows_of(eoctl("consume", clean / "plain-0", "--output", "jsonl", "--bytes", "base64"))
    values = [b"null" if r["value"] is None else base64.b64decode(r["value"]) for r in rows]
    assert b"null" in values
    outcome = eoctl("consume", clean / "plain-0")
    assert outcome.stdout == b"".join(value + b"\n" for value in values)
    assert outcome.errors == (
        "179 records, offsets 0 to 178; next offset 179; verified: checksums and contents of all"
        " batches read\n"
    )


def test_text_with_everything(eoctl: Eoctl, clean: Path) -> None:
    options = ("--print-timestamp", "--print-partition", "--print-offset", "--print-headers")
    call = ("consume", clean / "plain-1", *options, "--print-key", "--key-separator", "|")
    for line, row in zip(
        eoctl(*call).stdout.split(b"\n"),
        rows_of(eoctl("consume", clean / "plain-1", "--output", "jsonl", "--bytes", "base64")),
        strict=False,
    ):
        cells = line.split(b"|")
        assert cells[:3] == [
            b"CreateTime:%d" % row["timestamp_ms"], b"Partition:1", b"Offset:%d" % row["offset"]
        ]  # fmt: skip
        assert (cells[3] == b"NO_HEADERS") == (row["headers"] == [])
        key = b"null" if row["key"] is None else base64.b64decode(row["key"])
        assert cells[4] == key


# --- from where to where --------------------------------------------------------------------------


def test_every_offset_as_a_bound(eoctl: Eoctl, clean: Path) -> None:
    """Also inside of batches, in the gaps that markers are, and in those of a compacted log."""
    for name in ("txn-0", "compacted-0", "idem-gzip-0"):
        call = ("consume", clean / name, "--output", "jsonl")
        everything = eoctl(*call).stdout.splitlines(keepends=True)
        offsets = [json.loads(line)["offset"] for line in everything]
        for start in range(0, offsets[-1] + 2, 7):
            for end in (start, start + 1, start + 10, offsets[-1] + 1):
                outcome = eoctl(*call, "--from", start, "--until", end)
                assert outcome.status == 0
                wanted = [
                    line for line, offset in zip(everything, offsets, strict=True)
                    if start <= offset < end
                ]  # fmt: skip
                assert outcome.stdout == b"".join(wanted)
                if end <= offsets[-1] + 1:
                    assert f"next offset {end};" in outcome.errors


@pytest.mark.parametrize("isolation", ISOLATIONS)
def test_at_most_so_many(isolation: str, eoctl: Eoctl, clean: Path) -> None:
    """A consumer that goes on where another one ended gets the rest."""
    call = ("consume", clean / "txn-0", "--output", "jsonl", "--isolation", isolation)
    everything = offsets_of(eoctl(*call))
    for count in (0, 1, 2, 50, len(everything), 1000):
        first = eoctl(*call, "--max-messages", count)
        assert offsets_of(first) == everything[:count]
        next_offset = notes_of(first)[-1]["message"].partition("next offset ")[2].partition(";")[0]
        rest = eoctl(*call, "--from", next_offset)
        assert offsets_of(rest) == everything[count:]


def test_ends(eoctl: Eoctl, clean: Path) -> None:
    call = ("consume", clean / "txn-0", "--output", "jsonl", "--until")
    committed = (*call[:-1], "--isolation", "read_committed", "--until")
    assert offsets_of(eoctl(*call, "log-end"))[-1] == 328
    assert offsets_of(eoctl(*call, "hw"))[-1] == 328
    assert offsets_of(eoctl(*call, "lso"))[-1] == 309
    assert offsets_of(eoctl(*call, "99999"))[-1] == 328
    for end in ("log-end", "hw", "lso", "99999"):
        outcome = eoctl(*committed, end)
        assert offsets_of(outcome)[-1] == 309
        first, second, *_ = notes_of(outcome)
        assert (first["producer_id"], first["first_offset"]) == (40, 311)
        assert (second["last_stable_offset"], second["log_end_offset"]) == (311, 329)


def test_an_older_high_watermark(eoctl: Eoctl, kafka: Path) -> None:
    checkpoint = kafka / "replication-offset-checkpoint"
    text = checkpoint.read_text()
    checkpoint.write_text(text.replace("txn 0 329\n", "txn 0 250\n"))
    call = ("consume", kafka / "txn-0", "--output", "jsonl")
    everything = eoctl(*call)
    assert "checkpointed as 250" in everything.errors
    below = eoctl(*call, "--until", "hw")
    assert offsets_of(below) == [each for each in offsets_of(everything) if each < 250]
    # A transaction whose marker is not below the high watermark is not stable either.
    committed = eoctl(*call, "--isolation", "read_committed", "--until", "hw")
    assert max(offsets_of(committed)) < 250
    stable = {
        row["last_stable_offset"] for row in notes_of(committed) if "last_stable_offset" in row
    }
    assert all(offset <= 250 for offset in stable)
    checkpoint.unlink()
    unknown = eoctl(*call, "--until", "hw")
    assert unknown.status == 2
    assert "high watermark is not known" in unknown.errors


def test_times(eoctl: Eoctl, clean: Path) -> None:
    call = ("consume", clean / "rolled-0", "--output", "jsonl")
    rows = rows_of(eoctl(*call))
    for row in rows[::9]:
        time_ms = row["timestamp_ms"]
        expected = next(each["offset"] for each in rows if each["timestamp_ms"] >= time_ms)
        assert offsets_of(eoctl(*call, "--from", f"time:{time_ms}"))[0] == expected
    assert len(offsets_of(eoctl(*call, "--from", "2026-11-01"))) == len(rows)
    late = eoctl(*call, "--from", "2036-11-01T00:00:00Z")
    assert (late.status, late.stdout) == (0, b"")
    assert "no record is that late" in late.errors


def test_starts(eoctl: Eoctl, kafka: Path) -> None:
    """Nothing below the log start, nothing to wait for at the end."""
    call = ("consume", kafka / "txn-0", "--output", "jsonl")
    (kafka / "log-start-offset-checkpoint").write_text("0\n1\ntxn 0 120\n")
    found = eoctl(*call)
    assert offsets_of(found)[0] == 120
    low = eoctl(*call, "--from", 5)
    assert low.stdout == found.stdout
    assert "the log starts at offset 120" in low.errors
    assert eoctl(*call, "--from", "latest").stdout == b""
    assert eoctl(*call, "--from", 329).stdout == b""
    assert eoctl(*call, "--from", "latest", "--isolation", "read_committed").stdout == b""


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--from", "330"), "the log ends at offset 329, below 330"),
        (("--from", "-5"), "no offset is below 0"),
        (("--from", "soon"), "neither an offset nor a time"),
        (("--from", "time:soon"), "not a time"),
        (("--from", "9" * 30), "63 bits"),
        (("--until", "soon"), "no such end"),
    ],
)
def test_wrong_bounds(arguments: tuple[str, ...], words: str, eoctl: Eoctl, clean: Path) -> None:
    outcome = eoctl("consume", clean / "txn-0", *arguments)
    assert (outcome.status, outcome.stdout) == (2, b"")
    assert words in outcome.errors


def test_wrong_places(eoctl: Eoctl, clean: Path, tmp_path: Path) -> None:
    assert eoctl("consume", clean).status == 2  # many partitions
    assert eoctl("consume", tmp_path / "t-0").status == 3
    (tmp_path / "empty-0").mkdir()
    outcome = eoctl("consume", tmp_path / "empty-0", "--isolation", "read_committed")
    assert (outcome.status, outcome.stdout) == (0, b"")
    assert outcome.errors.startswith("0 records; next offset 0;")
