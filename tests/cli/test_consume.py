"""`eoctl consume` against what a real client was given, at all bounds, in all formats."""

from __future__ import annotations

import base64
import errno
import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgpack
import pytest

from storage.formats.record_batch import CRC, CRC_POS, compute_crc
from storage.log.segment import open_segment
from tests.read_back import PARTITIONS
from tests.transaction_logs import damaged, example, write

if TYPE_CHECKING:
    from collections.abc import Callable

    from storage.kernels.protocol import ScannedBatch
    from tests.running import Outcome

    Eoctl = Callable[..., Outcome]

ROOT = Path(__file__).parents[2]
SEGMENT = f"{0:020d}.log"
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
        "179 records, offsets 0 to 178; next offset 179; verified: checksums and contents of all data"
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
    assert "high watermark is unknown" in unknown.errors


@pytest.mark.parametrize("by", [65536, -64])
def test_a_marker_whose_offset_cannot_be_right_is_held_against_the_high_watermark_where_it_lies(
    eoctl: Eoctl, kafka: Path, tmp_path: Path, by: int
) -> None:
    """It was above it, so all behind the begin of its transaction was kept back, and verified."""
    log = kafka / "txn-0" / f"{0:020d}.log"
    data = bytearray(log.read_bytes())
    pos = 7973  # COMMIT at offset 93; no checksum covers it
    assert int.from_bytes(data[pos : pos + 8]) == 93
    data[pos : pos + 8] = (93 + by).to_bytes(8)
    log.write_bytes(data)
    call = ("consume", kafka / "txn-0", "--isolation", "read_committed", "--output", "jsonl")
    to_end = eoctl(*call, "--skip-corrupt")
    assert len(offsets_of(to_end)) == 188
    to_watermark = eoctl(*call, "--skip-corrupt", "--until", "hw")
    assert to_watermark.status == to_end.status == 5
    assert offsets_of(to_watermark) == offsets_of(to_end)
    described = rows_of(eoctl("describe", kafka / "txn-0", "--output", "jsonl"))[0]
    assert described["last_stable_offset"] == 311
    target = tmp_path / "out"
    options = ("--isolation", "read_committed", "--until", "hw", "--format", "jsonl")
    assert eoctl("export", kafka / "txn-0", "--to", target, *options).status == 1
    exported = "".join(each.read_text() for each in target.rglob("*.jsonl"))
    assert exported.count('"outcome":"committed"') == 188


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
    (tmp_path / "empty-0").mkdir()  # nothing of Kafka's is in it, nor around it
    outcome = eoctl("consume", tmp_path / "empty-0", "--isolation", "read_committed")
    assert (outcome.status, outcome.stdout) == (3, b"")
    assert "neither a log dir nor a partition" in outcome.errors


# --- damage ---------------------------------------------------------------------------------------


def batches_of(path: Path) -> list[ScannedBatch]:
    with open_segment(path) as segment:
        return list(segment.scan())


def test_damage_ends_the_output(eoctl: Eoctl, kafka: Path) -> None:
    """As a fetch would fail there: all before it is printed, and words say where and what next."""
    log = kafka / "txn-0" / SEGMENT
    bad = batches_of(log)[20]
    call = ("consume", kafka / "txn-0", "--output", "jsonl")
    everything = offsets_of(eoctl(*call))
    data = bytearray(log.read_bytes())
    data[bad.pos + 80] ^= 1
    log.write_bytes(data)
    first, last = bad.header.base_offset, bad.header.last_offset
    outcome = eoctl(*call)
    assert outcome.status == 1
    assert offsets_of(outcome) == [each for each in everything if each < first]
    (error,) = notes_of(outcome)
    assert error["path"] == str(log)
    assert (error["pos"], error["check_id"]) == (bad.pos, "BAT-1")
    assert f"offsets {first} to {last}" in error["message"]
    assert "--skip-corrupt" in error["next_step"]
    below = eoctl(*call, "--until", first)
    assert (below.status, below.stdout) == (0, outcome.stdout)
    behind = eoctl(*call, "--from", last + 1)
    assert (behind.status, offsets_of(behind)) == (0, [each for each in everything if each > last])
    skipped = eoctl(*call, "--skip-corrupt")
    assert skipped.status == 5
    assert offsets_of(skipped) == [each for each in everything if not first <= each <= last]
    warning = next(each for each in notes_of(skipped) if each["level"] == "warning")
    assert (warning["base_offset"], warning["last_offset"]) == (first, last)
    assert (warning["start_pos"], warning["end_pos"]) == (bad.pos, bad.pos + bad.header.batch_bytes)
    committed = eoctl(*call, "--isolation", "read_committed")
    assert committed.status == 1


@pytest.mark.parametrize("isolation", ISOLATIONS)
def test_damage_at_the_end_is_met(isolation: str, eoctl: Eoctl, kafka: Path) -> None:
    """Also by a consumer that the last stable offset stops before it; a torn tail costs offsets."""
    log = kafka / "idem-none-0" / SEGMENT
    last = batches_of(log)[-1]
    data = bytearray(log.read_bytes())
    call = ("consume", kafka / "idem-none-0", "--isolation", isolation, "--output", "jsonl")
    log.write_bytes(data[:-1])
    torn = eoctl(*call)
    assert torn.status == 5
    assert f"offsets {last.header.base_offset} to {last.header.last_offset} " in torn.errors
    data[-1] ^= 1
    log.write_bytes(data)
    outcome = eoctl(*call)
    assert outcome.status == 1
    assert outcome.stdout == torn.stdout
    assert offsets_of(outcome)[-1] == last.header.base_offset - 1


def test_what_does_not_decode(eoctl: Eoctl, kafka: Path) -> None:
    """The checksum is right, and the content is nonsense."""
    log = kafka / "idem-zstd-0" / SEGMENT
    data = bytearray(log.read_bytes())
    bad = batches_of(log)[1]
    end = bad.pos + bad.header.batch_bytes
    data[bad.pos + 70] ^= 0xFF
    CRC.pack_into(data, bad.pos + CRC_POS, compute_crc(bytes(data[bad.pos : end])))
    log.write_bytes(data)
    outcome = eoctl("consume", kafka / "idem-zstd-0", "--output", "jsonl")
    assert outcome.status == 1
    assert offsets_of(outcome)[-1] == bad.header.base_offset - 1
    skipped = eoctl("consume", kafka / "idem-zstd-0", "--output", "jsonl", "--skip-corrupt")
    assert skipped.status == 5
    assert bad.header.last_offset + 1 in offsets_of(skipped)
    assert bad.header.last_offset not in offsets_of(skipped)


def test_a_bad_sector(eoctl: Eoctl, clean: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = clean / "rolled-0" / SEGMENT
    bad = batches_of(log)[3]
    real = os.preadv

    def failing(fd: int, views: list[memoryview], pos: int) -> int:
        is_log = Path(f"/proc/self/fd/{fd}").readlink() == log
        if is_log and pos <= bad.pos + 50_000 < pos + len(views[0]):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return real(fd, views, pos)

    monkeypatch.setattr(os, "preadv", failing)
    call = ("consume", clean / "rolled-0", "--output", "jsonl")
    outcome = eoctl(*call)
    assert outcome.status == 5
    assert offsets_of(outcome)[-1] == bad.header.base_offset - 1
    skipped = eoctl(*call, "--skip-corrupt")
    assert skipped.status == 5
    assert offsets_of(skipped)[-1] == 59
    assert bad.header.base_offset not in offsets_of(skipped)
    assert "Input/output error" in skipped.errors


def test_an_index_that_lacks_aborted_transactions(eoctl: Eoctl, kafka: Path) -> None:
    call = ("consume", kafka / "txn-0", "--isolation", "read_committed", "--output", "jsonl")
    right = offsets_of(eoctl(*call))
    index = (kafka / "txn-0" / SEGMENT).with_suffix(".txnindex")
    index.write_bytes(index.read_bytes()[34:])
    outcome = eoctl(*call)
    assert offsets_of(outcome) == right
    assert "the .txnindex files lack 1 aborted transaction" in outcome.errors
    assert f"eoctl rebuild {kafka / 'txn-0'}" in outcome.errors
    shown = offsets_of(eoctl(*call, "--aborted-from", "txnindex"))
    assert set(shown) > set(right)
    index.unlink()
    assert len(offsets_of(eoctl(*call, "--aborted-from", "txnindex"))) == 188 + 85
    assert offsets_of(eoctl(*call)) == right


# --- old formats ----------------------------------------------------------------------------------

LEGACY_LINE = re.compile(
    r"\| offset: (\d+) (\w+): (-?\d+) keySize: (-?\d+) valueSize: (-?\d+) isValid: true crc: \d+"
    r"(?: key: (.*?))?(?: payload: (.*))?"
)


def legacy_records(text: str) -> list[tuple[Any, ...]]:
    """Of kafka-dump-log's lines: offset, type, time, sizes, key and payload."""
    found = []
    for line in text.split("\n"):
        match = LEGACY_LINE.fullmatch(line)
        if match is not None:
            offset, kind, *numbers = match.group(1, 2, 3, 4, 5)
            times = None if kind == "NoTimestampType" else kind
            found.append((int(offset), times, *map(int, numbers), match[6], match[7]))
    return found


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4"])
@pytest.mark.parametrize("version", ["v0", "v1"])
def test_message_formats_0_and_1(
    version: str, codec: str, eoctl: Eoctl, golden: Callable[[str], Path]
) -> None:
    name = f"{version}-{codec}-0"
    said = (golden("kafka-0.10.2-legacy.dump") / name / f"{SEGMENT}.txt").read_text()
    expected = legacy_records(said)
    path = golden("kafka-0.10.2-legacy") / name
    rows = rows_of(eoctl("consume", path, "--output", "jsonl"))
    assert len(rows) == len(expected) == 60
    for row, (offset, kind, time_ms, key_bytes, value_bytes, key, payload) in zip(
        rows, expected, strict=True
    ):
        assert (row["offset"], row["timestamp_type"], row["timestamp_ms"]) == (
            offset,
            kind,
            time_ms,
        )
        for found, size, text in (
            (row["key"], key_bytes, key),
            (row["value"], value_bytes, payload),
        ):
            if size < 0:
                assert found is None
            elif isinstance(found, str):
                assert (len(found.encode()), found) == (size, text or "")
            else:
                assert len(base64.b64decode(found["base64"])) == size
    for start in range(0, 62, 7):
        outcome = eoctl(
            "consume", path, "--output", "jsonl", "--from", min(start, 60), "--until", 44
        )
        assert offsets_of(outcome) == list(range(start, 44))
    line = eoctl("consume", path, "--print-timestamp", "--max-messages", 1).text
    assert line.startswith("NO_TIMESTAMP\t" if version == "v0" else "CreateTime:")


# --- where it runs --------------------------------------------------------------------------------


def test_beside_a_running_broker(eoctl: Eoctl, kafka: Path) -> None:
    """Reading works, and says who has the log dir."""
    code = (
        "import fcntl, sys; f = open(sys.argv[1], 'w'); fcntl.lockf(f, fcntl.LOCK_EX); "
        "print('held', flush=True); sys.stdin.read()"
    )
    lock = kafka / ".lock"
    with subprocess.Popen(
        [sys.executable, "-c", code, str(lock)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        outcome = eoctl("consume", kafka / "txn-0", "--max-messages", 1)
        holder.communicate()
    assert outcome.status == 0
    assert outcome.errors.startswith(f"{kafka}: in use by process {holder.pid};")


def test_a_small_partition_needs_neither_numpy_nor_arrow(clean: Path) -> None:
    code = (
        "import sys; from eoctl.main import run\n"
        "try: run()\n"
        "finally: print(sorted({'numpy', 'pyarrow', 'rich'} & set(sys.modules)), file=sys.stderr)\n"
    )
    for options, loaded in (((), "[]"), (("--isolation", "read_committed"), "['numpy']")):
        done = subprocess.run(
            [sys.executable, "-c", code, "consume", str(clean / "plain-0"), *options],
            cwd=ROOT, capture_output=True, text=True, check=True,
        )  # fmt: skip
        assert done.stderr.splitlines()[-1] == loaded


@pytest.mark.parametrize("name", ["plain-0", "rolled-0"])
def test_a_reader_that_goes_away(name: str, clean: Path) -> None:
    """As `head` does: nothing is wrong; 141, unless all had been written by then."""
    done = subprocess.run(
        f"{sys.executable} -m eoctl consume {clean / name} | head -c 10 >/dev/null; "
        "echo ${PIPESTATUS[0]}",
        shell=True, executable="/bin/bash", cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout in ("0\n", "141\n")
    assert "Traceback" not in done.stderr
    assert "eoctl:" not in done.stderr


def test_a_full_disk(clean: Path) -> None:
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "eoctl", "consume", str(clean / "rolled-0")],
            stdout=full, stderr=subprocess.PIPE, cwd=ROOT, check=False, text=True,
        )  # fmt: skip
    assert done.returncode == 3
    assert "No space left on device" in done.stderr


@pytest.mark.parametrize("how", ["flip", "cut"])
@pytest.mark.parametrize("first", ["commit", "abort"])
def test_an_unknown_outcome_is_told_and_withheld(
    eoctl: Eoctl, tmp_path: Path, how: str, first: str
) -> None:
    """The first marker of producer 21 is gone, and so is what the .txnindex says of it."""
    log = example(0, first, "commit")
    path = write(tmp_path / "made", log, damaged(log, 3, how)[0], [])
    words = "producer id 21, epoch 0, offsets 10 to 14, 5 records"
    run = eoctl("consume", path, "--isolation", "read_committed", "--skip-corrupt")
    assert run.status == 5
    assert f"unknown outcome of a transaction: {words}" in run.errors
    committed = [*range(10), 15, 16, 18, 19, 20, *range(23, 28)]
    assert run.text.split() == [f"v{each}" for each in committed]

    run = eoctl("loss", path, "--output", "jsonl")
    rows = [json.loads(line) for line in run.text.splitlines()]
    (unknown,) = (each for each in rows if each.get("kind") == "unknown")
    assert (unknown["base_offset"], unknown["last_offset"], unknown["records_count"]) == (10, 14, 5)
    assert (unknown["producer_id"], unknown["producer_epoch"], run.status) == (21, 0, 1)

    run = eoctl("txn", "list", "--all", path, "--output", "jsonl")
    rows = [json.loads(line) for line in run.text.splitlines()]
    assert [each["state"] for each in rows] == ["unknown", "committed", "committed"]
    assert (run.status, words in run.errors) == (1, True)

    for command in ("check", "describe", "spark-audit"):
        run = eoctl(command, path, *["--engine", "local"] * (command == "spark-audit"))
        if how == "flip":
            assert (run.status, words in run.errors) == (1, True)
        elif command == "spark-audit":
            assert (run.status, words in run.errors) == (5, True)

    run = eoctl("export", path, "--to", tmp_path / "out", "--output", "jsonl")
    assert json.loads(run.text)["unknown"] == 5
    assert (run.status, words in run.errors) == (5 if how == "cut" else 1, True)
