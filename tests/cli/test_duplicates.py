"""`eoctl duplicates`: whole output in each mode, exit status, and what is refused."""

from __future__ import annotations

import json
import resource
import signal
import subprocess
import sys
import time
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import msgpack
import pytest

from eoctl.clock import parse_duration_ms
from recovery.duplicates.spill import Duplicate
from storage.errors import UsageError
from tests.doubled_logs import Said, Sent, write_log
from tests.terminal import on_terminal

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

VERIFIED = "verified: headers and checksums of all batches, records of the compared batches\n"
ORDER = Said(1_000, b"order-1", b"paid", ((b"id", b"7"),))
LATER = ORDER._replace(time=61_000)


@pytest.fixture
def doubled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A batch that is there again, and a record that another session wrote again; in aborts too."""
    batches = [
        Sent(7, 0, 2**31 - 1, (Said(500, b"k", b"a"), Said(501, None, b"b"))),
        Sent(7, 0, 2**31 - 1, (Said(500, b"k", b"a"), Said(501, None, b"B"))),
        Sent(8, 1, 0, (ORDER,), "txn"),
        Sent(8, 1, kind="abort"),
        Sent(9, 0, 0, (LATER,), "txn"),
        Sent(9, 0, kind="commit"),
    ]
    path = write_log(tmp_path / "pay-3", batches, cuts=[4])
    monkeypatch.chdir(tmp_path)
    return path


FIRST, SECOND = f"pay-3/{0:020d}.log", f"pay-3/{6:020d}.log"
# The hashes are of records as they are on disk, from the length of the key on.
ROWS: list[dict[str, Any]] = [
    {
        "kind": "proved",
        "cause": "retry",
        "topic": "pay",
        "partition": 3,
        "first_partition": 3,
        "first_base_offset": 0,
        "first_last_offset": 1,
        "repeat_base_offset": 2,
        "repeat_last_offset": 3,
        "records_count": 2,
        "first_timestamp_ms": 501,
        "repeat_timestamp_ms": 501,
        "first_producer_id": 7,
        "first_producer_epoch": 0,
        "repeat_producer_id": 7,
        "repeat_producer_epoch": 0,
        "base_sequence": 2**31 - 1,
        "last_sequence": 0,
        "is_same_payload": False,
        "payload_hash": blake2b(b"\x02k\x02a\x01\x02B", digest_size=16).hexdigest(),
        "first_outcome": "committed",
        "repeat_outcome": "committed",
        "first_path": FIRST,
        "path": FIRST,
    },
    {
        "kind": "suspected",
        "cause": "session",
        "topic": "pay",
        "partition": 3,
        "first_partition": 3,
        "first_base_offset": 4,
        "first_last_offset": 4,
        "repeat_base_offset": 6,
        "repeat_last_offset": 6,
        "records_count": 1,
        "first_timestamp_ms": 1_000,
        "repeat_timestamp_ms": 61_000,
        "first_producer_id": 8,
        "first_producer_epoch": 1,
        "repeat_producer_id": 9,
        "repeat_producer_epoch": 0,
        "base_sequence": None,
        "last_sequence": None,
        "is_same_payload": True,
        "payload_hash": blake2b(b"\x0eorder-1\x08paid\x02\x04id\x027", digest_size=16).hexdigest(),
        "first_outcome": "aborted",
        "repeat_outcome": "committed",
        "first_path": FIRST,
        "path": SECOND,
    },
]


def test_jsonl(eoctl: Callable[..., Any], doubled: Path) -> None:
    outcome = eoctl("duplicates", doubled.name, "--output", "jsonl")
    assert [json.loads(line) for line in outcome.text.splitlines()] == ROWS
    assert [json.loads(line)["message"] for line in outcome.errors.splitlines()] == [
        VERIFIED.rstrip(),
        "duplicates: 1 proved, 1 suspected",
        "Found 3 duplicate records, the first copies not included",
        "Cause 2 records: a retry that the broker let through",
        "Cause 1 record: another producer session: another process, or a restart",
    ]
    assert outcome.status == 1


def test_msgpack(eoctl: Callable[..., Any], doubled: Path) -> None:
    outcome = eoctl("duplicates", doubled.name, "--output", "msgpack")
    unpacker = msgpack.Unpacker()
    unpacker.feed(outcome.stdout)
    assert list(unpacker) == ROWS
    assert outcome.status == 1


def test_text(eoctl: Callable[..., Any], doubled: Path) -> None:
    words = {None: "unknown", True: "yes", False: "no"}
    outcome = eoctl("duplicates", doubled.name)
    assert outcome.text.splitlines() == [
        "\t".join(Duplicate._fields),
        *(
            "\t".join(
                str(words[each] if each is None or isinstance(each, bool) else each)
                for each in row.values()
            )
            for row in ROWS
        ),
    ]
    assert outcome.errors.startswith(VERIFIED + "duplicates: 1 proved, 1 suspected\n")
    assert outcome.status == 1


@pytest.mark.parametrize(
    ("options", "status", "counts"),
    [
        (["--kind", "proved"], 1, "1 proved, 0 suspected"),
        (["--kind", "suspected"], 0, "0 proved, 1 suspected"),
        (["--kind", "suspected", "--fail-on", "note"], 1, "0 proved, 1 suspected"),
        (["--fail-on", "error"], 0, "1 proved, 1 suspected"),
        (["--window", "59999ms"], 1, "1 proved, 0 suspected"),
        (["--window", "1m"], 1, "1 proved, 1 suspected"),
        (["--min-bytes", "14"], 1, "1 proved, 1 suspected"),
        (["--min-bytes", "15"], 1, "1 proved, 0 suspected"),
        (["--isolation", "read_committed"], 1, "1 proved, 0 suspected"),
        (["--id", "key"], 1, "1 proved, 2 suspected"),
        (["--id", "header:id", "--across-partitions"], 1, "1 proved, 1 suspected"),
        (["--memory", "1"], 1, "1 proved, 1 suspected"),
    ],
)
def test_options(
    eoctl: Callable[..., Any], doubled: Path, options: list[str], status: int, counts: str
) -> None:
    outcome = eoctl("duplicates", doubled, *options)
    assert f"duplicates: {counts}" in outcome.errors.splitlines()
    assert outcome.status == status


def test_limit(eoctl: Callable[..., Any], doubled: Path) -> None:
    outcome = eoctl("duplicates", doubled, "--limit", 1)
    assert len(outcome.text.splitlines()) == 2
    assert outcome.errors.splitlines()[-4:-2] == [
        "duplicates: 1 proved, 1 suspected",
        "1 of them are printed (--limit)",
    ]


def test_damage_is_told(eoctl: Callable[..., Any], doubled: Path) -> None:
    for place, log in enumerate(sorted(doubled.glob("*.log"))):
        data = bytearray(log.read_bytes())
        data[70] ^= 1
        log.write_bytes(data)
        outcome = eoctl("duplicates", doubled)
        assert outcome.errors.count("[BAT-1]") == place + 1
        assert outcome.status == 5


def test_a_directory_that_is_no_partition(eoctl: Callable[..., Any], tmp_path: Path) -> None:
    """It is named, and was not looked at; status 1 is for duplicates alone."""
    write_log(tmp_path / "t-0", [Sent()])
    (tmp_path / "meta.properties").write_text("version=1\n")
    (tmp_path / "notes").mkdir()
    outcome = eoctl("duplicates", tmp_path)
    assert outcome.status == 5
    assert f"{tmp_path / 'notes'}: position 0: directory that is no partition" in outcome.errors


def test_what_cannot_be_read(eoctl: Callable[..., Any], doubled: Path) -> None:
    for log in doubled.glob("*.log"):
        log.unlink()
        log.symlink_to(log.name)  # a loop
    assert eoctl("duplicates", doubled).status == 3
    assert eoctl("duplicates", doubled / "nothing").status == 3
    assert eoctl("duplicates").status == 2


def test_replicas_are_not_compared_with_each_other(
    eoctl: Callable[..., Any], tmp_path: Path
) -> None:
    batches = [Sent(records=(Said(5, b"k"),))]
    paths = [write_log(tmp_path / broker / "t-0", batches) for broker in ("one", "two")]
    paths.append(write_log(tmp_path / "one" / "t-1", batches))
    outcome = eoctl("duplicates", *paths, "--across-partitions", "--output", "jsonl")
    (row,) = map(json.loads, outcome.text.splitlines())
    assert (row["first_path"], row["path"]) == (
        str(paths[0] / f"{0:020d}.log"),
        str(paths[2] / f"{0:020d}.log"),
    )
    assert f"{paths[1]}: not compared with other partitions" in outcome.errors


@pytest.mark.parametrize(
    ("text", "expected"), [("500ms", 500), ("30s", 30_000), ("5m", 300_000), ("1h", 3_600_000),
                           (" 2d", 172_800_000), ("0s", 0)],
)  # fmt: skip
def test_durations(text: str, expected: int) -> None:
    assert parse_duration_ms(text) == expected


@pytest.mark.parametrize("text", ["", "5", "m", "-5m", "1.5h", "5 m", "9" * 19 + "d", "5w"])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(UsageError):
        parse_duration_ms(text)


@pytest.mark.parametrize(
    "options",
    [
        ["--window", "soon"],
        ["--id", "value"],
        ["--kind", "proved", "--id", "key"],
        ["--kind", "proved", "--across-partitions"],
        ["--memory", "0"],
    ],
)
def test_wrong_calls(eoctl: Callable[..., Any], doubled: Path, options: list[str]) -> None:
    outcome = eoctl("duplicates", doubled, *options)
    assert (outcome.status, outcome.stdout) == (2, b"")


# --- temporary files ------------------------------------------------------------------------------


def test_a_log_dir_is_no_place_for_them(
    eoctl: Callable[..., Any], kafka: Path, tmp_path: Path
) -> None:
    outcome = eoctl("duplicates", kafka, "--spill-dir", kafka / "txn-0")
    assert outcome.status == 4
    assert "--spill-dir" in outcome.errors
    assert eoctl("duplicates", kafka, "--spill-dir", tmp_path / "nothing").status == 3


@pytest.fixture
def large(tmp_path: Path) -> Path:
    """More records than fit into 1 MiB of rows, each of them twice."""
    batches = [
        Sent(records=tuple(Said(n, b"%d" % (1000 * (place % 25) + n)) for n in range(1000)))
        for place in range(50)
    ]
    return write_log(tmp_path / "large-0", batches)


@pytest.mark.exhaustive
def test_a_full_disk(eoctl: Callable[..., Any], large: Path, tmp_path: Path) -> None:
    spill = tmp_path / "spill"
    spill.mkdir()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))
    try:
        outcome = eoctl("duplicates", large, "--memory", 1, "--spill-dir", spill)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert outcome.status == 3
    assert f"eoctl: {spill}: File too large" in outcome.errors
    assert "--spill-dir DIR" in outcome.errors
    assert list(spill.iterdir()) == []
    outcome = eoctl("duplicates", large, "--memory", 1, "--spill-dir", spill, "--limit", 0)
    assert "duplicates: 0 proved, 25000 suspected" in outcome.errors
    assert list(spill.iterdir()) == []


@pytest.mark.exhaustive
def test_an_interrupt(large: Path, tmp_path: Path) -> None:
    """Ctrl-C while rows are written to disk, and the reader has stopped reading."""
    spill = tmp_path / "spill"
    spill.mkdir()
    arguments = ["-m", "eoctl", "duplicates", large, "--memory", "1", "--spill-dir", spill]
    with subprocess.Popen(
        [sys.executable, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as running:
        assert running.stdout is not None
        running.stdout.read(10)  # the search is over, and a full pipe stops the printing
        time.sleep(0.2)
        running.send_signal(signal.SIGINT)
        assert running.wait(timeout=90) == 130
    assert list(spill.iterdir()) == []


# --- groups ---------------------------------------------------------------------------------------


def grouped(eoctl: Callable[..., Any], *arguments: object) -> list[dict[str, Any]]:
    outcome = eoctl("duplicates", *arguments, "--grouped", "--output", "jsonl")
    return [json.loads(line) for line in outcome.text.splitlines()]


def paired(eoctl: Callable[..., Any], *arguments: object) -> list[dict[str, Any]]:
    outcome = eoctl("duplicates", *arguments, "--output", "jsonl")
    return [json.loads(line) for line in outcome.text.splitlines()]


def test_a_group_is_a_row(eoctl: Callable[..., Any], doubled: Path) -> None:
    first, other = grouped(eoctl, doubled)
    assert (first["kind"], first["copies_count"], first["offsets"]) == ("proved", 2, [0, 2])
    assert (first["key"], first["value"], first["is_same_payload"]) == ("k", "a", False)
    assert (first["sessions"], first["records_count"]) == (["7/0"], 2)
    assert (other["kind"], other["copies_count"], other["offsets"]) == ("suspected", 2, [4, 6])
    assert (other["key"], other["value"], other["is_same_payload"]) == ("order-1", "paid", True)
    assert (other["sessions"], other["outcomes"]) == (["8/1", "9/0"], ["aborted", "committed"])
    assert (other["first_timestamp_ms"], other["last_timestamp_ms"]) == (1_000, 61_000)


def test_a_chain_is_one_group(eoctl: Callable[..., Any], tmp_path: Path) -> None:
    """Runs of one session too; a pause longer than the window begins another one."""
    times = [0, 100, 200, 300, 400, 2_000_000, 2_000_100]
    batches = [
        Sent(place // 2, 0, place % 2, (Said(time, b"k", b"v" * 100),))
        for place, time in enumerate(times)
    ]
    path = write_log(tmp_path / "t-0", batches, cuts=[3])
    pairs = paired(eoctl, path)
    groups = grouped(eoctl, path)
    assert [each["copies_count"] - 1 for each in groups] == [3, 1]
    assert sum(each["copies_count"] - 1 for each in groups) == len(pairs)
    assert [each["offsets"] for each in groups] == [[1, 2, 3, 4], [5, 6]]
    assert {each["value"] for each in groups} == {"v" * 64}


@pytest.mark.share(2)
@pytest.mark.parametrize("memory", ["1", "256"])
@pytest.mark.parametrize("more", [(), ("--across-partitions",), ("--id", "key")])
def test_each_pair_is_in_one_group(
    eoctl: Callable[..., Any],
    golden: Callable[[str], Path],
    more: tuple[str, ...],
    memory: str,
) -> None:
    """Of a real log, by all ways to compare; with so little memory that rows go to disk."""
    arguments = (golden("kafka-4.3.1") / "clean", *more, "--memory", memory)
    pairs, groups = paired(eoctl, *arguments), grouped(eoctl, *arguments)
    assert pairs != []
    assert sum(each["copies_count"] - 1 for each in groups) == len(pairs)
    for group in groups:
        assert len(group["offsets"]) == min(group["copies_count"], 10)
    firsts = {(each["path"], each["base_offset"]) for each in groups}
    repeats = {(each["path"], each["repeat_base_offset"]) for each in pairs}
    known = {(each["first_path"], each["first_base_offset"]) for each in pairs}
    assert known - repeats <= firsts <= known


def test_text_of_groups(eoctl: Callable[..., Any], doubled: Path) -> None:
    lines = eoctl("duplicates", doubled, "--grouped").text.splitlines()
    assert lines[0].split("\t")[:6] == [
        *("kind", "causes", "topic", "partition", "copies_count", "base_offset")
    ]
    assert len(lines) == 3
    one = eoctl("duplicates", doubled, "--grouped", "--limit", "1")
    assert len(one.text.splitlines()) == 2
    assert "1 of 2 groups are printed" in one.errors


def test_what_is_duplicated_by_key(doubled: Path) -> None:
    shown = on_terminal("duplicates", doubled, streams=("stdout",))
    status, lines = shown.status, shown.lines
    assert status == 1
    assert [each.split()[:5] for each in lines if each.startswith(("proved", "suspected"))] == [
        ["proved", "retry", "pay-3", "2", "k"],
        ["suspected", "session", "pay-3", "2", "order-1"],
    ]
    assert all(len(each) <= 80 for each in lines[:4])
