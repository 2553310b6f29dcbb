"""dump-segment: rows, filters, exit status, damaged input, following; see test_dump_golden too."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from typing import IO, TYPE_CHECKING, Any

import msgpack
import pytest

from eoctl.dump.selection import log_context
from storage.formats.record import Record
from storage.kernels.kernel_choice import native_module
from storage.kernels.protocol import Verdict, VerdictKind
from tests.batches import encoded_batch

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SEGMENT = "00000000000000000000.log"


@pytest.fixture
def clean(golden: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory is the log dir of a cleanly stopped broker."""
    path = golden("kafka-4.3.1") / "clean"
    monkeypatch.chdir(path)
    return path


@pytest.fixture
def copy(clean: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A writable copy of it, and the working directory."""
    target = tmp_path / "logs"
    shutil.copytree(clean, target)
    for path in [target, *target.rglob("*")]:
        path.chmod(path.stat().st_mode | 0o200)
    monkeypatch.chdir(target)
    return target


def rows_of(outcome: Any, kind: str | None = None) -> list[dict[str, Any]]:
    rows = [json.loads(line) for line in outcome.stdout.splitlines()]
    return rows if kind is None else [row for row in rows if row["kind"] == kind]


# --- rows -----------------------------------------------------------------------------------------


def test_jsonl_holds_what_the_text_says(clean: Path, eoctl: Callable) -> None:
    """Each batch line of the text has one row with the same values."""
    text = eoctl("dump-segment", f"txn-0/{SEGMENT}").text.splitlines()[2:]
    batches = rows_of(eoctl("dump-segment", f"txn-0/{SEGMENT}", "--output", "jsonl"), "batch")
    assert len(text) == len(batches) > 10
    for line, row in zip(text, batches, strict=True):
        assert line.startswith(
            f"baseOffset: {row['base_offset']} lastOffset: {row['last_offset']} "
        )
        assert f" crc: {row['crc']} isvalid: true" in line
        assert f" position: {row['pos']} CreateTime: {row['max_timestamp_ms']} " in line


def test_msgpack_holds_the_same_rows(clean: Path, eoctl: Callable) -> None:
    """The objects are equal; keys and values are bytes in msgpack."""
    call = ("dump-segment", "plain-0", "--print-data-log", "--output")
    unpacker = msgpack.Unpacker(raw=False)
    unpacker.feed(eoctl(*call, "msgpack").stdout)
    packed = list(unpacker)
    rows = rows_of(eoctl(*call, "jsonl"))
    assert [row["kind"] for row in packed] == [row["kind"] for row in rows]
    records = [(p["value"], r) for p, r in zip(packed, rows, strict=True) if p["kind"] == "record"]
    assert len(records) > 100
    for value, row in records:
        assert value is None or isinstance(value, bytes)
        if "value" in row:
            assert value == (None if row["value"] is None else row["value"].encode())
        else:
            assert "value_base64" in row


def test_every_file_closes_with_a_verdict(clean: Path, eoctl: Callable) -> None:
    """Of a whole log dir each file has one verdict, ok, and says what was verified."""
    outcome = eoctl("dump-segment", ".", "--deep-iteration", "--output", "jsonl")
    assert outcome.status == 0
    assert not outcome.errors
    verdicts = {row["path"]: row for row in rows_of(outcome, "verdict")}
    assert {row["verdict"] for row in verdicts.values()} == {"ok"}
    assert verdicts[f"./txn-0/{SEGMENT}"]["verified"] == ["headers", "crc", "records"]
    assert verdicts["./meta.properties"]["verified"] == ["entries"]
    assert set(verdicts) == {
        f"./{path.relative_to(clean)}"
        for path in clean.rglob("*")
        if path.is_file() and path.name != ".lock"
    }


def test_internal_topics_are_decoded_by_their_directory(clean: Path, eoctl: Callable) -> None:
    """Rows of coordinator topics carry the decoded key and value; the text needs the option."""
    rows = rows_of(
        eoctl("dump-segment", "__transaction_state-0", "--print-data-log", "--output", "jsonl"),
        "record",
    )
    assert rows
    for row in rows:
        assert json.loads(row["key_text"])["data"]["transactionalId"]
    plain = eoctl("dump-segment", f"__transaction_state-0/{SEGMENT}", "--print-data-log").text
    assert '"transactionalId"' not in plain


# --- filters --------------------------------------------------------------------------------------


def test_offsets_keep_the_batches_and_records_inside(clean: Path, eoctl: Callable) -> None:
    """Both ends are included; a batch that only overlaps is shown, its other records are not."""
    rows = rows_of(
        eoctl(
            "dump-segment", "txn-0", "--deep-iteration", "--offsets", "9..12", "--output", "jsonl"
        )
    )
    records = [row["offset"] for row in rows if row["kind"] == "record"]
    assert records == [9, 10, 11, 12]
    assert [row["base_offset"] for row in rows if row["kind"] == "batch"] == [6, 11, 12]


def test_times_producers_and_epochs(clean: Path, eoctl: Callable) -> None:
    """Filters select what a look at all rows selects."""
    every = rows_of(eoctl("dump-segment", f"txn-0/{SEGMENT}", "--output", "jsonl"), "batch")
    middle = sorted(row["max_timestamp_ms"] for row in every)[len(every) // 2]

    def selected(*options: object) -> list[int]:
        outcome = eoctl("dump-segment", f"txn-0/{SEGMENT}", "--output", "jsonl", *options)
        return [row["pos"] for row in rows_of(outcome, "batch")]

    assert selected("--times", f"{middle}..") == [
        row["pos"] for row in every if row["max_timestamp_ms"] >= middle
    ]
    assert selected("--producer-id", 21) == [
        row["pos"] for row in every if row["producer_id"] == 21
    ]
    assert selected("--producer-id", 21, "--producer-epoch", 1) == [
        row["pos"] for row in every if row["producer_id"] == 21 and row["producer_epoch"] == 1
    ]
    assert selected("--only-control") == [row["pos"] for row in every if row["is_control"]]


def test_only_aborted_equals_the_txnindex(clean: Path, eoctl: Callable) -> None:
    """Per aborted transaction of the index: its producer's batches from first to marker."""
    index = rows_of(
        eoctl("dump-segment", "txn-0/00000000000000000000.txnindex", "--output", "jsonl"),
        "aborted_txn",
    )
    every = rows_of(eoctl("dump-segment", f"txn-0/{SEGMENT}", "--output", "jsonl"), "batch")
    aborted = rows_of(
        eoctl("dump-segment", f"txn-0/{SEGMENT}", "--output", "jsonl", "--only-aborted"), "batch"
    )
    expected = {
        row["pos"]
        for txn in index
        for row in every
        if row["producer_id"] == txn["producer_id"]
        and txn["first_offset"] <= row["base_offset"] <= txn["last_offset"]
        and row["is_transactional"]
    }
    assert index
    # An aborted transaction without data here has a marker and no entry (TXN-2).
    assert expected == {row["pos"] for row in aborted if not row["is_control"]} | {
        row["pos"] for row in aborted if row["is_control"] and row["pos"] in expected
    }


def test_key_shows_its_records_only(clean: Path, eoctl: Callable) -> None:
    """A key is compared whole, in the text too."""
    every = rows_of(
        eoctl("dump-segment", "compacted-0", "--print-data-log", "--output", "jsonl"), "record"
    )
    keys = [row["key"] for row in every if row.get("key")]
    wanted = keys[0]
    shown = eoctl("dump-segment", "compacted-0", "--print-data-log", "--key", wanted).text
    lines = [line for line in shown.splitlines() if line.startswith("| ")]
    assert len(lines) == keys.count(wanted)
    assert all(f" key: {wanted}" in line for line in lines)


@pytest.mark.parametrize(
    "options",
    [
        ("--offsets", "b..a"),
        ("--offsets", "9..3"),
        ("--offsets", ".."),
        ("--times", "yesterday.."),
        ("--max-bytes", "0"),
        ("--output", "xml"),
        ("--key-decoder-class", "com.example.MyDecoder"),
    ],
)
def test_wrong_calls_say_so_before_any_output(
    options: tuple[str, ...], clean: Path, eoctl: Callable
) -> None:
    """Status 2, a reason, no data."""
    outcome = eoctl("dump-segment", f"txn-0/{SEGMENT}", *options)
    assert outcome.status == 2
    assert not outcome.stdout
    assert outcome.errors


# --- options of the tool --------------------------------------------------------------------------


def test_files_and_arguments_are_one_list(clean: Path, eoctl: Callable) -> None:
    """--files takes names with commas between them."""
    one, two = f"txn-0/{SEGMENT}", f"txn-1/{SEGMENT}"
    assert (
        eoctl("dump-segment", "--files", f"{one},{two}").stdout
        == eoctl("dump-segment", one).stdout + eoctl("dump-segment", two).stdout
    )


def test_empty_names_in_a_list_are_left_out(clean: Path, eoctl: Callable) -> None:
    """A script's trailing comma is no file."""
    outcome = eoctl("dump-segment", "--files", f"txn-0/{SEGMENT},,")
    assert (outcome.status, outcome.errors) == (0, "")
    assert eoctl("dump-segment", "--files", ",").status == 2


def test_max_bytes_hides_the_tail(clean: Path, eoctl: Callable) -> None:
    """Whole batches below the limit are printed, and no trailing bytes are reported."""
    every = eoctl("dump-segment", f"txn-0/{SEGMENT}").text.splitlines()
    second_batch_end = int(every[4].split(" position: ")[1].split()[0])
    limited = eoctl("dump-segment", "--max-bytes", second_batch_end + 30, f"txn-0/{SEGMENT}")
    assert limited.text.splitlines() == every[:4]
    assert limited.status == 0


def test_decoder_classes_of_kafka(copy: Path, eoctl: Callable) -> None:
    """Numbers are read big-endian; a short one is reported, not fatal."""
    short = eoctl(
        "dump-segment",
        f"txn-0/{SEGMENT}",
        "--offsets",
        "12",
        "--value-decoder-class",
        "org.apache.kafka.tools.api.LongDecoder",
        "--key-decoder-class",
        "DefaultDecoder",
    )
    record = short.text.splitlines()[-1]
    raw = rows_of(
        eoctl(
            "dump-segment",
            f"txn-0/{SEGMENT}",
            "--offsets",
            "12",
            "--print-data-log",
            "--output",
            "jsonl",
        ),
        "record",
    )[0]
    number = int.from_bytes(raw["value"].encode()[:8], "big", signed=True)
    assert f" key: {raw['key'].encode().hex()} payload: {number}" in record


# --- damage ---------------------------------------------------------------------------------------


def test_flipped_bit_is_reported_and_the_rest_is_printed(copy: Path, eoctl: Callable) -> None:
    """Status 1, the position in words, all other lines as before."""
    path = copy / "txn-0" / SEGMENT
    before = eoctl("dump-segment", f"txn-0/{SEGMENT}").text.splitlines()
    third = int(before[4].split(" position: ")[1].split()[0])
    data = bytearray(path.read_bytes())
    data[third + 70] ^= 1
    path.write_bytes(data)
    outcome = eoctl("dump-segment", f"txn-0/{SEGMENT}")
    assert outcome.status == 1
    assert f"position {third}.." in outcome.errors
    assert "[BAT-1]" in outcome.errors
    changed = [
        pair for pair in zip(before, outcome.text.splitlines(), strict=True) if len({*pair}) > 1
    ]
    assert [line.endswith("isvalid: false") for _, line in changed] == [True]


def test_a_magic_above_two_is_read_as_the_tool_reads_it(copy: Path, eoctl: Callable) -> None:
    """Its records are printed, the batch is named, and no gap is made up behind it."""
    path = copy / "plain-0" / SEGMENT
    call = ("dump-segment", "--print-data-log", f"plain-0/{SEGMENT}")
    before = eoctl(*call)
    data = bytearray(path.read_bytes())
    assert data[16] == 2
    data[16] = 6
    path.write_bytes(data)
    outcome = eoctl(*call)
    assert outcome.status == 1
    assert "[BAT-2]" in outcome.errors
    assert "Non-consecutive" not in outcome.errors
    assert outcome.text == before.text.replace(" magic: 2 ", " magic: 6 ", 1)


def test_torn_tail_is_normal_after_a_crash_only(copy: Path, eoctl: Callable) -> None:
    """The tool's line either way; a clean stop does not leave one, so there it is invalid."""
    path = copy / "txn-0" / SEGMENT
    path.write_bytes(path.read_bytes()[:-5])
    outcome = eoctl("dump-segment", f"txn-0/{SEGMENT}")
    assert outcome.text.splitlines()[-1].startswith("Found ")
    assert outcome.status == 1
    (copy / ".kafka_cleanshutdown").unlink()
    after_crash = eoctl("dump-segment", f"txn-0/{SEGMENT}")
    assert after_crash.status == 0
    assert after_crash.stdout == outcome.stdout


def test_torn_tail_of_a_middle_segment_is_never_normal(copy: Path) -> None:
    """Only the last segment of an unclean directory may end like that."""
    (copy / ".kafka_cleanshutdown").unlink()
    torn = Verdict(VerdictKind.TORN_TAIL, 0, 1)
    logs = sorted((copy / "rolled-0").glob("*.log"))
    assert [log_context(str(path)).is_normal(torn) for path in logs] == [False, False, True]


def test_what_follows_a_broken_length_is_found_again(copy: Path, eoctl: Callable) -> None:
    """The tool dies there; here the later batches are printed and the gap has its position."""
    path = copy / "txn-0" / SEGMENT
    before = eoctl("dump-segment", f"txn-0/{SEGMENT}").text.splitlines()
    second = int(before[3].split(" position: ")[1].split()[0])
    data = bytearray(path.read_bytes())
    data[second + 8 : second + 12] = b"\0\0\0\1"
    path.write_bytes(data)
    outcome = eoctl("dump-segment", f"txn-0/{SEGMENT}")
    assert outcome.status == 1
    assert outcome.text.splitlines() == before[:3] + before[4:]
    assert f"position {second}.." in outcome.errors


def test_one_bad_file_does_not_keep_the_others_back(clean: Path, eoctl: Callable) -> None:
    """Missing alone: 3. Missing among others: 5, and the others are there."""
    assert eoctl("dump-segment", "nowhere/00000000000000000000.log").status == 3
    outcome = eoctl("dump-segment", "nowhere/0.log", f"txn-0/{SEGMENT}")
    assert outcome.status == 5
    assert "No such file" in outcome.errors
    assert f"Dumping txn-0/{SEGMENT}" in outcome.text


def test_an_unreadable_directory_does_not_keep_the_others_back(
    copy: Path, eoctl: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is named itself, its neighbours are printed, and the status says that a part is left out.

    (Permissions cannot be taken from the superuser, hence the stand-in.)
    """
    scandir = os.scandir

    def refusing(path: str | int) -> Any:
        if str(path).endswith("/plain-0"):
            raise PermissionError(13, "Permission denied", path)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refusing)
    outcome = eoctl("dump-segment", str(copy))
    assert outcome.status == 5
    assert f"{copy}/plain-0: Permission denied" in outcome.errors
    assert "/plain-0/" not in outcome.text
    assert f"Dumping {copy}/txn-0/{SEGMENT}" in outcome.text


def test_unknown_files_are_ignored_aloud(copy: Path, eoctl: Callable) -> None:
    """As the tool does, on stderr and with status 0."""
    (copy / "notes.txt").write_text("x")
    outcome = eoctl("dump-segment", "notes.txt")
    assert outcome.status == 0
    assert outcome.text == "Dumping notes.txt\n"
    assert outcome.errors == "Ignoring unknown file notes.txt\n"


@pytest.mark.parametrize(
    "name", ["a.log", "00000000000000000000.index", "5.timeindex", "7.txnindex"]
)
def test_an_empty_file_is_no_failure(name: str, tmp_path: Path, eoctl: Callable) -> None:
    """Zero bytes of any binary kind but a snapshot are valid."""
    (tmp_path / name).touch()
    assert eoctl("dump-segment", tmp_path / name).status == 0


def test_an_empty_marker_gives_no_empty_line(tmp_path: Path, eoctl: Callable) -> None:
    """`.kafka_cleanshutdown` holds nothing up to Kafka 3.6."""
    marker = tmp_path / ".kafka_cleanshutdown"
    marker.touch()
    outcome = eoctl("dump-segment", marker)
    assert (outcome.status, outcome.text) == (0, f"Dumping {marker}\n")


def test_damaged_small_files_are_findings(copy: Path, eoctl: Callable) -> None:
    """A snapshot's checksum, an index out of order, a checkpoint's count: each with its rule."""
    snapshot = next((copy / "txn-0").glob("*.snapshot"))
    data = bytearray(snapshot.read_bytes())
    data[20] ^= 1
    snapshot.write_bytes(data)
    outcome = eoctl("dump-segment", snapshot)
    assert (outcome.status, "SNP-1" in outcome.errors) == (1, True)
    rows = rows_of(eoctl("dump-segment", snapshot, "--output", "jsonl"), "producer")
    assert rows
    assert not any(row["crc_ok"] for row in rows)

    checkpoint = copy / "recovery-point-offset-checkpoint"
    checkpoint.write_text("0\n7\nplain 0 5\n")
    outcome = eoctl("dump-segment", checkpoint)
    assert (outcome.status, "DIR-7" in outcome.errors) == (1, True)

    index = copy / "plain-0" / "00000000000000000000.index"
    data = bytearray(index.read_bytes())
    data[8:12] = data[0:4]
    index.write_bytes(data)
    outcome = eoctl("dump-segment", "plain-0/00000000000000000000.index")
    assert (outcome.status, "IDX-2" in outcome.errors) == (1, True)


def test_index_that_points_into_a_batch(copy: Path, eoctl: Callable) -> None:
    """A position that is no batch start is IDX-3; the entries are printed all the same."""
    index = copy / "plain-0" / "00000000000000000000.index"
    before = eoctl("dump-segment", "plain-0/00000000000000000000.index").text
    data = bytearray(index.read_bytes())
    data[7] ^= 1
    index.write_bytes(data)
    outcome = eoctl("dump-segment", "plain-0/00000000000000000000.index")
    assert outcome.status == 1
    assert "IDX-3" in outcome.errors
    assert outcome.text.count("\n") == before.count("\n")


@pytest.mark.parametrize("output", ["text", "jsonl", "msgpack"])
@pytest.mark.parametrize(("suffix", "rule"), [("index", "IDX-3"), ("timeindex", "TIM-2")])
def test_every_format_holds_an_index_against_its_log(
    suffix: str, rule: str, output: str, copy: Path, eoctl: Callable
) -> None:
    """The status and the rule do not depend on how the entries are printed, or whether at all."""
    path = copy / "plain-0" / f"00000000000000000000.{suffix}"
    data = bytearray(path.read_bytes())
    if suffix == "index":
        data[7] ^= 1
    else:
        data[12:20] = (int.from_bytes(data[0:8], "big") + 1).to_bytes(8, "big")
    path.write_bytes(data)
    for option in ([], ["--verify-index-only"]):
        outcome = eoctl("dump-segment", *option, "--output", output, path)
        assert outcome.status == 1
        assert rule in outcome.errors


def test_rows_of_an_index_say_what_the_log_has(clean: Path, eoctl: Callable) -> None:
    """What the text lists as mismatches can be told from the rows: here there are none."""
    rows = rows_of(eoctl("dump-segment", "txn-0", "--output", "jsonl"))
    entries = [row for row in rows if row["kind"] == "index_entry"]
    assert entries
    assert all(row["log_offset"] == row["offset"] for row in entries)
    times = [row for row in rows if row["kind"] == "time_index_entry"]
    assert times
    assert all(row["log_timestamp_ms"] == row["timestamp_ms"] for row in times)
    verdict = next(row for row in rows if row["path"].endswith("index") and "verified" in row)
    assert verdict["verified"] == ["entries", "log"]


def test_index_options_hold_for_rows(copy: Path, eoctl: Callable) -> None:
    """Neither prints entries; the broker's simple check is the only one that is then made."""
    index = "plain-0/00000000000000000000.index"
    for option, verified in (
        ("--verify-index-only", ["entries", "log"]),
        ("--index-sanity-check", ["sanity"]),
    ):
        outcome = eoctl("dump-segment", option, index, "--output", "jsonl")
        (row,) = rows_of(outcome)
        assert (row["kind"], row["verdict"], row["verified"]) == ("verdict", "ok", verified)
    (copy / index).write_bytes((copy / index).read_bytes() + b"x")
    outcome = eoctl("dump-segment", "--index-sanity-check", index, "--output", "jsonl")
    assert outcome.status == 1
    assert "sanity check failed" in outcome.errors


def test_a_batch_beyond_max_message_size_is_no_finding(clean: Path, eoctl: Callable) -> None:
    """The tool dies on it; the index is right all the same."""
    outcome = eoctl("dump-segment", "--max-message-size", 20, "txn-0/00000000000000000000.index")
    assert (outcome.status, outcome.errors) == (0, "")


def test_index_beyond_its_log(copy: Path, eoctl: Callable) -> None:
    """IDX-4: the log was cut, the index was not."""
    path = copy / "plain-0" / SEGMENT
    path.write_bytes(path.read_bytes()[:10_000])
    outcome = eoctl("dump-segment", "plain-0/00000000000000000000.index")
    assert outcome.status == 1
    assert "IDX-4" in outcome.errors or "IDX-3" in outcome.errors


def test_time_index_that_look_ups_would_trip_over(copy: Path, eoctl: Callable) -> None:
    """TIM-2: a timestamp below that of an earlier batch."""
    path = copy / "plain-0" / "00000000000000000000.timeindex"
    data = bytearray(path.read_bytes())
    data[12:20] = (int.from_bytes(data[0:8], "big") + 1).to_bytes(8, "big")
    path.write_bytes(data)
    outcome = eoctl("dump-segment", "plain-0/00000000000000000000.timeindex")
    assert outcome.status == 1
    assert "TIM-2" in outcome.errors
    assert "Found timestamp mismatch" in outcome.errors


def test_index_without_its_log(copy: Path, eoctl: Callable) -> None:
    """The entries are printed, and that they were not verified."""
    (copy / "plain-0" / SEGMENT).unlink()
    outcome = eoctl("dump-segment", "plain-0/00000000000000000000.index")
    assert "offset: 37 position: 4111" in outcome.text
    assert "not verified" in outcome.errors


# --- as a program ---------------------------------------------------------------------------------


def program(*arguments: str, **settings: Any) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "eoctl", "dump-segment", *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **settings)


def test_a_closed_pipe_ends_quietly(clean: Path) -> None:
    """As under head: no traceback, and 141: how healthy the rest is was not looked at."""
    with program("--deep-iteration", ".", "--output", "jsonl") as child:
        assert child.stdout is not None
        assert child.stderr is not None
        child.stdout.readline()
        child.stdout.close()
        assert child.stderr.read() == b""
        assert child.wait(timeout=90) == 141


@pytest.mark.share(1)
@pytest.mark.parametrize("jobs", ["1", "2"])
def test_an_interrupt_ends_it_though_nobody_reads(jobs: str, tmp_path: Path) -> None:
    """It waits in a write to a full pipe, of which a part was taken."""
    record = Record(0, 0, 0, None, b"x" * 20, ())
    log = tmp_path / SEGMENT
    log.write_bytes(b"".join(encoded_batch(offset, [record]) for offset in range(20_000)))
    with program("--jobs", jobs, str(log), preexec_fn=_take_interrupts) as child:
        assert child.stdout is not None
        assert child.stderr is not None
        child.stdout.read(1)
        time.sleep(0.3)
        child.send_signal(signal.SIGINT)
        assert child.wait(timeout=90) == 130
        assert child.stderr.read() == b"eoctl: interrupted\n"


def _take_interrupts() -> None:
    """They may be ignored here, as in what a shell runs in the background."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@pytest.mark.parametrize("arguments", [(f"txn-0/{SEGMENT}",), (".", "--output", "jsonl")])
def test_a_full_disk_is_no_fault_of_the_input(arguments: tuple[str, ...], clean: Path) -> None:
    """Status 3, one line that blames standard output, and no input file."""
    command = [sys.executable, "-m", "eoctl", "dump-segment", *arguments]
    with open("/dev/full", "wb") as full:  # noqa: PTH123
        outcome = subprocess.run(
            command, stdout=full, stderr=subprocess.PIPE, timeout=90, check=False
        )
    assert outcome.returncode == 3
    words = outcome.stderr.decode()
    assert "standard output: No space left on device" in words
    assert words.count("\n") == 1


def test_help_on_a_full_disk(clean: Path) -> None:
    """No traceback here either."""
    with open("/dev/full", "wb") as full:  # noqa: PTH123
        outcome = subprocess.run(
            [sys.executable, "-m", "eoctl", "dump-segment", "--help"],
            stdout=full,
            stderr=subprocess.PIPE,
            timeout=90,
            check=False,
        )
    assert outcome.returncode == 3
    assert outcome.stderr == b"eoctl: standard output: No space left on device\n"


@pytest.mark.parametrize(("closed", "status"), [(1, 3), (2, 0)])
def test_closed_standard_streams(closed: int, status: int, clean: Path) -> None:
    """`>&-` is a wrong place for data, `2>&-` is none for words: no traceback either way."""
    command = [sys.executable, "-m", "eoctl", "dump-segment", f"txn-0/{SEGMENT}"]
    outcome = subprocess.run(
        ["sh", "-c", f'exec "$@" {closed}>&-', "sh", *command],
        capture_output=True,
        timeout=90,
        check=False,
    )
    assert outcome.returncode == status
    assert b"Traceback" not in outcome.stderr
    assert bool(outcome.stdout) == (closed == 2)


def test_the_locale_does_not_matter(clean: Path) -> None:
    """Non-ASCII keys and header names come out as UTF-8 under LC_ALL=C too."""
    environment = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    outputs = []
    for settings in (environment, {**os.environ, "LC_ALL": "C.UTF-8"}):
        with program("--print-data-log", f"plain-0/{SEGMENT}", env=settings) as child:
            out, err = child.communicate(timeout=90)
        assert b"Traceback" not in err
        outputs.append(out)
    assert outputs[0] == outputs[1]
    assert not outputs[0].isascii()


def test_small_files_never_pay_for_numpy_or_rich(clean: Path) -> None:
    """What a small dump imports is what keeps its start quick."""
    code = (
        "import sys\nfrom eoctl.main import run\n"
        f"try: run(['dump-segment', '--print-data-log', 'txn-0/{SEGMENT}'])\n"
        "except SystemExit: pass\n"
        "print(sorted({'numpy', 'rich', 'pyspark', 'pyarrow'} & set(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert done.stderr.strip() == b"[]"


@pytest.mark.parametrize("has_numpy", [True, False])
def test_large_files_without_numpy(has_numpy: bool, clean: Path) -> None:
    """The same lines come from plain Python and from the native kernel, also without numpy."""
    hide = "" if has_numpy else "import sys\nsys.modules['numpy'] = None\n"
    code = (
        f"{hide}import sys\nfrom eoctl.dump import log_text\nfrom eoctl.main import run\n"
        "log_text.BULK_MIN_BYTES = dict.fromkeys(['numpy', 'native'], 1) | {'pure': 1 << 62}\n"
        f"try: run(['dump-segment', '--print-data-log', 'txn-0/{SEGMENT}'])\n"
        "finally: print(sorted({'storage.kernels.numpy_kernel'} & set(sys.modules)),"
        " file=sys.stderr)"
    )

    def run(**settings: str) -> subprocess.CompletedProcess[bytes]:
        environment = os.environ | settings
        command = [sys.executable, "-c", code]
        return subprocess.run(command, capture_output=True, env=environment, check=False)

    pure = run(EOCTL_KERNEL="pure")
    assert (pure.returncode, pure.stderr.strip()) == (0, b"[]")
    if has_numpy:
        bulk = run(EOCTL_KERNEL="numpy")
        assert bulk.stderr.strip() == b"['storage.kernels.numpy_kernel']"
        assert bulk.stdout == pure.stdout
        if native_module() is not None:
            assert run(EOCTL_KERNEL="native").stdout == pure.stdout


def read_until(
    child: subprocess.Popen[bytes],
    wanted: bytes,
    seconds: float = 90,
    stream: IO[bytes] | None = None,
) -> bytes:
    """Read the child's stdout, or this stream of its, until `wanted` is in it."""
    stream = stream or child.stdout
    assert stream is not None
    os.set_blocking(stream.fileno(), False)
    seen, deadline = b"", time.monotonic() + seconds
    while wanted not in seen and time.monotonic() < deadline:
        seen += stream.read() or b""
        time.sleep(0.02)
    assert wanted in seen, seen[-500:]
    return seen


def test_follow_sees_appends_and_rolls(copy: Path) -> None:
    """What is appended is printed once, a torn append waits, the next segment is picked up."""
    directory = copy / "followed-0"
    directory.mkdir()
    whole = (copy / "txn-0" / SEGMENT).read_bytes()
    starts = [0]
    while starts[-1] < len(whole):
        starts.append(
            starts[-1] + 12 + int.from_bytes(whole[starts[-1] + 8 : starts[-1] + 12], "big")
        )
    active = directory / SEGMENT
    active.write_bytes(whole[: starts[2]])
    with program("--follow", str(directory)) as child:
        try:
            seen = read_until(child, f"position: {starts[1]} ".encode())
            with active.open("ab") as log:
                log.write(whole[starts[2] : starts[3] - 5])
                log.flush()
                time.sleep(0.6)
                log.write(whole[starts[3] - 5 : starts[3]])
            seen += read_until(child, f"position: {starts[2]} ".encode())
            (directory / "00000000000000000007.log").write_bytes(whole[starts[4] : starts[5]])
            seen += read_until(child, b"Log starting offset: 7\n")
            seen += read_until(child, b"position: 0 ") if seen.count(b"position: 0 ") < 2 else b""
            assert seen.count(b"baseOffset: ") == 4
        finally:
            child.send_signal(signal.SIGINT)
            assert child.wait(timeout=90) == 130


def test_follow_notices_a_truncation(copy: Path) -> None:
    """A follower of the partition cuts its log after an election: said, and what comes next shown."""
    directory = copy / "followed-0"
    directory.mkdir()
    whole = (copy / "txn-0" / SEGMENT).read_bytes()
    second = 12 + int.from_bytes(whole[8:12], "big")
    active = directory / SEGMENT
    active.write_bytes(
        whole[: second + 12 + int.from_bytes(whole[second + 8 : second + 12], "big")]
    )
    with program("--follow", str(directory)) as child:
        try:
            seen = read_until(child, f"position: {second} ".encode())
            os.truncate(active, second)
            reported = f"truncated; going on from {second}".encode()
            read_until(child, reported, stream=child.stderr)
            with active.open("ab") as log:
                log.write(whole[second:][:12] + b"\0\0\0\7" + whole[second:][16:300])
            seen = read_until(child, b"partitionLeaderEpoch: 7 ")
            assert f"position: {second} ".encode() in seen
        finally:
            child.send_signal(signal.SIGINT)
            assert child.wait(timeout=90) == 130


def test_follow_wants_one_log(clean: Path, eoctl: Callable) -> None:
    """Two paths, another kind of file, an empty directory, a question about the future: 2."""
    assert eoctl("dump-segment", "-f", "txn-0", "txn-1").status == 2
    assert eoctl("dump-segment", "-f", "txn-0/partition.metadata").status == 2
    assert eoctl("dump-segment", "-f", "--only-aborted", "txn-0").status == 2


@pytest.mark.parametrize("name", ["x.snapshot", f"{20:020d}-M7rHZOqkSXKHxWpQTeYj7w.snapshot"])
def test_a_snapshot_whose_name_is_no_offset(
    copy: Path, tmp_path: Path, eoctl: Callable[..., Any], name: str
) -> None:
    """Copied by hand, or out of remote storage, where the number is the segment's."""
    snapshot = max((copy / "txn-0").glob("*.snapshot"))
    shutil.copyfile(snapshot, tmp_path / name)
    for options in ((), ("--output", "jsonl")):
        outcome = eoctl("dump-segment", tmp_path / name, *options)
        assert (outcome.status, outcome.errors) == (0, "")
    below = tmp_path / f"{20:020d}.snapshot"
    shutil.copyfile(snapshot, below)
    assert "SNP-5" in eoctl("dump-segment", below).errors
