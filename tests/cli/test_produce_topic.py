"""`eoctl produce`: whole topics, other formats, transactions, faulty links, acknowledgements."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any

import msgpack
import pytest

from eoctl.clients.partitions.identity import SESSION_IDS
from eoctl.clients.producing.topic_producer import partition_for_key
from storage.dirs.discovery import discover
from storage.dirs.log_tail import read_tail
from storage.dirs.partition import Partition
from storage.dirs.topic_settings import LogConfig
from storage.files.fsio import FileSystem
from storage.formats.producer_snapshot import parse_snapshot
from storage.formats.record import RecordHeader
from storage.formats.txn_index import parse_entries
from storage.writing.partition_store import FileStore
from storage.writing.writer import PartitionWriter
from tests.read_log import read_log
from tests.writing import NEW_TOPIC

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.running import Outcome


@pytest.fixture
def produce(eoctl: Callable[..., Outcome], log_dir: Path) -> Callable[..., Outcome]:
    def call(path: Path, data: bytes, *options: object) -> Outcome:
        file = log_dir.parent / "input"
        file.write_bytes(data)
        return eoctl("produce", path, file, *NEW_TOPIC, "--output", "jsonl", *options)

    return call


def rows(outcome: Outcome, kind: str = "append") -> list[dict[str, Any]]:
    assert outcome.status == 0, outcome.errors
    found = [json.loads(each) for each in outcome.text.splitlines()]
    return [each for each in found if each["kind"] == kind]


def lines(count: int) -> bytes:
    return b"".join(b"k%d=%d\n" % (n % 7, n) for n in range(count))


# --- topics ---------------------------------------------------------------------------------------


def test_records_go_to_the_partition_that_they_name(
    log_dir: Path, produce: Callable[..., Outcome]
) -> None:
    named = b"".join(b'{"key":"k","value":"%d","partition":%d}\n' % (n, n % 3) for n in range(6))
    options = ("--format", "jsonl", "--apply")
    appended = rows(produce(log_dir, named, "--to-topic", "t", "--partitions", 3, *options))
    assert [each["records"] for each in appended] == [2, 2, 2]
    for number in range(3):
        found = read_log(log_dir / f"t-{number}")
        assert {int(each.value) % 3 for each in found.records} == {number}
    refused = produce(log_dir / "t-0", named, *options)
    assert refused.status == 2
    assert "line 2: partition: expected 0, found 1" in refused.errors


def test_keys_go_where_kafka_has_them(log_dir: Path, produce: Callable[..., Outcome]) -> None:
    options = ("--to-topic", "t", "--partitions", 3, "--key-separator", "=")
    planned = produce(log_dir, lines(50), *options)
    assert not list(log_dir.glob("t-*"))
    done = produce(log_dir, lines(50), *options, "--apply")
    assert [each["records"] for each in rows(done)] == [each["records"] for each in rows(planned)]
    assert sum(each["records"] for each in rows(done)) == 50
    for number in range(3):
        found = read_log(log_dir / f"t-{number}").records
        assert [each.value for each in found] == [
            b"%d" % n for n in range(50) if partition_for_key(b"k%d" % (n % 7), 3) == number
        ]
    assert len({each["producer_id"] for each in rows(done)}) == 1
    # The partitions that are there are all that there are.
    again = produce(log_dir, lines(50), "--to-topic", "t", "--key-separator", "=", "--apply")
    assert [each["records"] for each in rows(again)] == [each["records"] for each in rows(done)]


def test_records_without_key_fill_a_batch_in_each_place(
    log_dir: Path, produce: Callable[..., Outcome]
) -> None:
    data = b"".join(b"%05d\n" % n for n in range(2000))
    options = ("--to-topic", "t", "--partitions", 4, "--batch-bytes", 500, "--apply")
    found = rows(produce(log_dir, data, *options))
    assert sum(each["records"] for each in found) == 2000
    assert all(each["records"] > 200 for each in found)
    assert all(each["records"] / each["batches"] > 20 for each in found)
    values = {
        each.value for number in range(4) for each in read_log(log_dir / f"t-{number}").records
    }
    assert len(values) == 2000


def test_how_many_partitions(log_dir: Path, produce: Callable[..., Outcome]) -> None:
    outcome = produce(log_dir, b"v\n", "--to-topic", "t")
    assert outcome.status == 2
    assert "--partitions N" in outcome.errors
    assert produce(log_dir / "t-0", b"v\n", "--partitions", 3).status == 2
    assert produce(log_dir / "t-4", b"v\n", "--apply").status == 0
    outcome = produce(log_dir, b"v\n", "--to-topic", "t")
    assert outcome.status == 4
    assert "are not the first 1" in outcome.errors
    outcome = produce(log_dir / "t-4", b"v\n", "--to-topic", "t", "--apply")
    assert outcome.status == 2
    assert "with --to-topic, name its log dir" in outcome.errors


def test_the_cluster_knows_the_partitions(
    eoctl: Callable[..., Outcome], golden_copy: Path, tmp_path: Path
) -> None:
    file = tmp_path / "input"
    file.write_bytes(lines(30))
    call = ("produce", golden_copy, file, "--key-separator", "=", "--output", "jsonl")
    found = rows(eoctl(*call, "--to-topic", "txn"))
    assert [each["partition"] for each in found] == [0, 1]
    outcome = eoctl(*call, "--to-topic", "txn", "--partitions", 3)
    assert outcome.status == 4
    assert "has 2 partitions by the cluster's metadata" in outcome.errors


@pytest.fixture
def golden_copy(golden: Callable[[str], Path], tmp_path: Path) -> Path:
    import shutil

    copied = tmp_path / "clean"
    shutil.copytree(golden("kafka-4.3.1") / "clean", copied, symlinks=True)
    return copied


# --- formats --------------------------------------------------------------------------------------

ROWS: list[dict[str, Any]] = [
    {"key": "k", "value": "v", "headers": [["h", "x"]], "timestamp_ms": 1_700_000_000_000},
    {"key": None, "value": None},
    {"value": "\u00e4\u2028"},
]


def test_json_lines_and_msgpack(log_dir: Path, produce: Callable[..., Outcome]) -> None:
    text = "".join(json.dumps(each) + "\n" for each in ROWS).encode()
    packed = b"".join(msgpack.packb(each) for each in ROWS)
    coded = [
        {
            name: base64.b64encode(value.encode()).decode() if isinstance(value, str) else value
            for name, value in each.items()
            if name in ("key", "value")
        }
        for each in ROWS
    ]
    coded_text = "".join(json.dumps(each) + "\n" for each in coded).encode()
    common = ("--apply", "--timestamp", "2026-11-21T01:00:00Z")
    for number, (data, *options) in enumerate(
        [
            (text, "--format", "jsonl"),
            (packed, "--format", "msgpack"),
            (coded_text, "--format", "jsonl", "--bytes", "base64"),
        ]
    ):
        directory = log_dir / f"f-{number}"
        assert rows(produce(directory, data, *common, *options))[0]["records"] == 3
        found = read_log(directory).records
        assert [(each.key, each.value) for each in found] == [
            (b"k", b"v"),
            (None, None),
            (None, "\u00e4\u2028".encode()),
        ]
        if "base64" not in options:
            assert found[0].headers == (RecordHeader(b"h", b"x"),)
            assert found[0].timestamp_ms == 1_700_000_000_000
        assert found[1].timestamp_ms == 1_795_222_800_000


@pytest.mark.parametrize("bytes_as", ["text", "base64"])
def test_what_consume_prints_is_read_again(
    eoctl: Callable[..., Outcome],
    produce: Callable[..., Outcome],
    golden: Callable[[str], Path],
    log_dir: Path,
    bytes_as: str,
) -> None:
    """Keys, values, headers and timestamps: text that is not UTF-8, and nulls, included."""
    given = ("--output", "jsonl", "--bytes", bytes_as)
    for name in ("plain-0", "txn-0", "compacted-0"):
        source = golden("kafka-4.3.1") / "clean" / name
        text = eoctl("consume", source, *given).stdout
        options = ("--format", "jsonl", "--bytes", bytes_as, "--apply")
        rows(produce(log_dir / name, text, *options))
        assert [each[3:6] for each in read_log(log_dir / name).records] == [
            each[3:6] for each in read_log(source).records
        ]
        copied = eoctl("consume", log_dir / name, *given).stdout
        times = [
            [json.loads(line)["timestamp_ms"] for line in each.splitlines()]
            for each in (text, copied)
        ]
        assert times[0] == times[1]


def test_what_cannot_be_read_ends_it_there(log_dir: Path, produce: Callable[..., Outcome]) -> None:
    data = b'{"value":"a"}\n{"value":"b"}\n{"valu":"c"}\n'
    outcome = produce(log_dir / "t-0", data, "--format", "jsonl", "--apply")
    assert outcome.status == 2
    assert "line 3" in outcome.errors
    assert "valu" in outcome.errors
    assert [each.value for each in read_log(log_dir / "t-0").records] == []


# --- transactions ---------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [0, 1, 2])
def test_transactions(log_dir: Path, produce: Callable[..., Outcome], version: int) -> None:
    data = b"".join(b"%d\n" % n for n in range(10))
    options = ("--txn-records", 3, "--abort-every", 2, "--transaction-version", version)
    (report,) = rows(produce(log_dir / "t-0", data, *options, "--apply"))
    assert (report["records"], report["committed"], report["aborted"]) == (10, 2, 2)
    log = read_log(log_dir / "t-0")
    assert [each.value for each in log.committed] == [b"0", b"1", b"2", b"6", b"7", b"8"]
    assert not log.undecided
    index = (log_dir / "t-0" / "00000000000000000000.txnindex").read_bytes()
    aborted = [(each.first_offset, each.last_offset) for each in parse_entries(index)]
    assert aborted == [(4, 7), (12, 13)]
    (entry,) = parse_snapshot((log_dir / "t-0" / "00000000000000000014.snapshot").read_bytes())
    expected = (4, -1) if version == 2 else (0, 9)
    assert (entry.producer_epoch, entry.last_sequence) == expected
    # The same producer goes on, as the log has it: with the epoch of the last marker.
    known = ("--producer-id", report["producer_id"])
    (second,) = rows(produce(log_dir / "t-0", b"x\n", *options, *known, "--apply"))
    assert second["producer_epoch"] == (4 if version == 2 else 0)


def test_more_transactions_than_a_producer_id_has_epochs(
    log_dir: Path, produce: Callable[..., Outcome]
) -> None:
    call = (log_dir / "t-0", b"".join(b"%d\n" % n for n in range(6)), "--txn-records", 1)
    session = ("--producer-session", log_dir.parent / "session", "--apply")
    first = ("--producer-id", 5, "--producer-epoch", 32764)
    (report,) = rows(produce(*call, *first, *session))
    assert report["committed"] == 6
    log = read_log(log_dir / "t-0")
    assert [each.value for each in log.committed] == [b"%d" % n for n in range(6)]
    entries = parse_snapshot((log_dir / "t-0" / "00000000000000000012.snapshot").read_bytes())
    found = {each.producer_id: each.producer_epoch for each in entries}
    assert found.pop(5) == 32767
    (second,) = found
    assert found[second] == 3
    assert second in SESSION_IDS  # drawn: a new one in any log
    (again,) = rows(produce(*call, *first, *session))
    assert (again["records"], again["skipped"]) == (0, 6)


@pytest.mark.parametrize("version", [1, 2])
def test_a_known_producer_has_one_epoch_everywhere(
    log_dir: Path, produce: Callable[..., Outcome], version: int
) -> None:
    """The highest that any partition knows: with a lower one it would be fenced there."""
    known = ("--producer-id", 77, "--txn-records", 1, "--transaction-version", version, "--apply")
    for epoch, number in ((3, 1), (1, 2)):
        produce(log_dir / f"t-{number}", b"x\n", *known, "--producer-epoch", epoch)
    options = ("--to-topic", "t", "--partitions", 3, "--key-separator", "=", *known)
    session = ("--producer-session", log_dir.parent / "session")
    found = rows(produce(log_dir, lines(40), *options, *session))
    assert sum(each["records"] for each in found) == 40
    assert len({each["producer_epoch"] for each in found}) == 1
    again = rows(produce(log_dir, lines(80), *options, *session))
    assert sum(each["records"] for each in again) == 40
    committed = [len(read_log(log_dir / f"t-{number}").committed) for number in range(3)]
    assert sum(committed) == 82


def test_nobody_elses_transaction_is_ended(log_dir: Path, produce: Callable[..., Outcome]) -> None:
    session = ("--producer-session", log_dir.parent / "session")
    bad = b"k=1\nk=2\nbad\n"
    options = ("--txn-records", 5, "--producer-id", 50, "--key-separator", "=", "--apply")
    assert produce(log_dir / "t-0", bad, *options, "--batch-records", 1, *session).status == 2
    outcome = produce(log_dir / "t-0", b"k=n\n", *options)
    assert outcome.status == 4
    assert "has a transaction open since offset 0" in outcome.errors


@pytest.mark.parametrize("version", [1, 2])
def test_a_transaction_that_somebody_else_ended(
    log_dir: Path, produce: Callable[..., Outcome], version: int
) -> None:
    """What follows cannot be part of it: nothing is left out without a word."""
    session = ("--producer-session", log_dir.parent / "session", "--batch-records", 1)
    options = ("--txn-records", 5, "--transaction-version", version, "--key-separator", "=")
    path = log_dir / "t-0"
    outcome = produce(path, b"k=1\nk=2\nk=3\nbad\n", *options, *session, "--apply")
    assert outcome.status == 2
    (selected,) = discover([path]).selected
    tail = read_tail(Partition.of(selected), 4096)
    (entry,) = tail.producers
    writer = PartitionWriter(
        FileStore(str(path), FileSystem()), tail, LogConfig(), leader_epoch=0, now_ms=lambda: 1
    )
    writer.end_transaction(entry.producer_id, version - 1, is_commit=False)
    writer.close()
    whole = b"".join(b"k=%d\n" % n for n in range(1, 9))
    outcome = produce(path, whole, *options, *session, "--apply")
    assert outcome.status == 4
    assert "was ended before all of its records were there" in outcome.errors


def test_what_is_wrong_is_said_before_anything_is_touched(
    log_dir: Path, produce: Callable[..., Outcome]
) -> None:
    session = log_dir.parent / "session"
    for options in (
        ("--format", "jsonl", "--key-separator", "x"),
        ("--txn-records", 2, "--base-sequence", 3, "--producer-id", 5),
        ("--acks-to", session),
        ("--timestamp", "-5"),
        ("--acks-to", log_dir.parent / "input"),
        ("--to-topic", "../x", "--partitions", 1),
        ("--to-topic", "..", "--partitions", 1),
    ):
        path = log_dir if "--to-topic" in options else log_dir / "t-0"
        outcome = produce(path, b"v\n", *options, "--producer-session", session, "--apply")
        assert outcome.status == 2, options
        assert not session.exists()
        assert not list(log_dir.glob("t-*"))
    for name in ("bad name!-0", "t-007"):
        assert produce(log_dir / name, b"v\n", "--apply").status == 2
    path = log_dir / "t-0"
    used_up = ("--producer-id", 5, "--producer-epoch", 32767, "--txn-records", 1)
    assert produce(path, b"v\n", *used_up).status == 2


def test_a_topic_has_all_its_directories(log_dir: Path, produce: Callable[..., Outcome]) -> None:
    produce(
        log_dir, b"k=v\n", "--to-topic", "t", "--partitions", 9, "--key-separator", "=", "--apply"
    )
    assert len(list(log_dir.glob("t-*"))) == 9
    rows(produce(log_dir, b"k=v\n", "--to-topic", "t", "--key-separator", "=", "--apply"))


def test_faults_behind_a_change_of_producer_id(
    log_dir: Path, produce: Callable[..., Outcome]
) -> None:
    data = b"".join(b"%d\n" % n for n in range(200))
    options = ("--producer-id", 7, "--producer-epoch", 32766, "--txn-records", 50)
    faults = ("--in-flight", 5, "--fault", "reorder=0.6,drop=0.3,lost-ack=0.2,seed=3")
    rows(produce(log_dir / "t-0", data, *options, *faults, "--batch-records", 1, "--apply"))
    assert [each.value for each in read_log(log_dir / "t-0").committed] == data.split()


def test_an_error_aborts_the_open_transaction(
    log_dir: Path, produce: Callable[..., Outcome]
) -> None:
    data = b"".join(b"k=%d\n" % n for n in range(5)) + b"no key\n"
    options = ("--key-separator", "=", "--txn-records", 2, "--batch-records", 1, "--apply")
    outcome = produce(log_dir / "t-0", data, *options)
    assert outcome.status == 2
    log = read_log(log_dir / "t-0")
    assert [each.value for each in log.committed] == [b"0", b"1", b"2", b"3"]
    assert not log.undecided


def test_transactions_that_make_no_sense(log_dir: Path, produce: Callable[..., Outcome]) -> None:
    for options in (("--abort-every", 2), ("--txn-records", 2, "--producer-id", -1)):
        assert produce(log_dir / "t-0", b"v\n", *options).status == 2
    sequence = ("--producer-id", 5, "--base-sequence", 3)
    assert produce(log_dir / "t-0", b"v\n", "--txn-records", 2, *sequence).status == 2


# --- links and acknowledgements -------------------------------------------------------------------


def test_a_faulty_link_shows_without_idempotence_only(
    log_dir: Path, produce: Callable[..., Outcome]
) -> None:
    values = [b"%d" % n for n in range(200)]
    data = b"".join(value + b"\n" for value in values)
    faults = ("--fault", "drop=0.1,reorder=0.2,lost-ack=0.2,seed=3", "--in-flight", 5)
    options = (*faults, "--batch-records", 4, "--apply")
    outcome = produce(log_dir / "t-0", data, *options)
    (report,) = rows(outcome)
    (link,) = rows(outcome, "link")
    assert [each.value for each in read_log(log_dir / "t-0").records] == values
    assert (report["records"], report["batches"]) == (200, 50)
    assert (report["base_sequence"], report["last_sequence"]) == (0, 199)
    assert all(link[name] for name in ("drops", "reorders", "lost_acks", "retries", "duplicates"))
    assert rows(produce(log_dir / "u-0", data, *options, "--producer-id", -1))
    found = [each.value for each in read_log(log_dir / "u-0").records]
    assert set(found) == set(values)
    assert len(found) > len(values)
    assert [value for n, value in enumerate(found) if value not in found[:n]] != values


def test_acknowledgements(log_dir: Path, produce: Callable[..., Outcome]) -> None:
    acks = log_dir.parent / "acks"
    options = ("--batch-records", 2, "--acks-to", acks)
    produce(log_dir / "t-0", b"a\nb\nc\n", *options)
    assert not acks.exists()
    for first in (0, 3):
        produce(log_dir / "t-0", b"a\nb\nc\n", *options, "--apply", "--producer-id", 9)
        found = [json.loads(line) for line in acks.read_bytes().splitlines()]
        assert found[-2:] == [
            {
                "partition": "t-0",
                "base_offset": first + offset,
                "last_offset": first + offset + records - 1,
                "producer_id": 9,
                "producer_epoch": 0,
                "base_sequence": first + offset,
                "last_sequence": first + offset + records - 1,
                "records": records,
                "duplicate": False,
            }
            for offset, records in ((0, 2), (2, 1))
        ]
    assert len(found) == 4
    outcome = produce(log_dir / "t-0", b"a\n", "--acks-to", log_dir / "acks", "--apply")
    assert outcome.status == 4
    outcome = produce(log_dir / "t-0", b"a\n", "--acks-to", acks / "below", "--apply")
    assert outcome.status == 3
