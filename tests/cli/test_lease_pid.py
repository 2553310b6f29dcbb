"""`eoctl lease-pid`: what each part answers, in each format; refusals; clusters; damage."""

from __future__ import annotations

import errno
import itertools
import json
import os
import re
import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgpack
import pytest

from recovery.changes.journals.listing import UNFINISHED_NAME
from storage.formats.producer_id_record import FIRST_ID
from storage.producers.producer_state import AppendError
from storage.writing.producer_ids import DIRECTORY_NAME
from storage.writing.record_builder import ProducerIdentity
from tests.changes import notes_of, rows_of
from tests.crash.faults import FailingFileSystem
from tests.writing import NEW_TOPIC, NOW_MS, batch, content, headers_of, open_writer

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.running import Outcome

JSONL = ("--output", "jsonl")
HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
AT = ("--now", NOW_MS)


@pytest.fixture
def acquire(eoctl: Callable[..., Outcome], log_dir: Path) -> Callable[..., list[dict[str, Any]]]:
    """Acquire a lease of an hour; the rows."""

    def call(app: str, *more: object, status: int = 0) -> list[dict[str, Any]]:
        found = eoctl("lease-pid", "acquire", log_dir, "--app-id", app, "--expiry-ms", HOUR_MS,
                      *(more if "--now" in more else (*AT, *more)), *JSONL)  # fmt: skip
        assert found.status == status, found.errors
        return rows_of(found, "lease")

    return call


def write(log_dir: Path, name: str, producer_id: int, epoch: int, count: int = 1, *, is_transactional: bool = False) -> None:  # fmt: skip
    writer = open_writer(log_dir / name)
    data = batch(count, ProducerIdentity(producer_id, epoch, 0), is_transactional=is_transactional)
    writer.append(data)
    writer.close()


# --- answers --------------------------------------------------------------------------------------


def test_acquire_answers_for_each_partition(
    acquire: Callable[..., list[dict[str, Any]]], log_dir: Path
) -> None:
    write(log_dir, "t-0", 1, 0)
    write(log_dir, "t-1", FIRST_ID, 0, 7)
    partitions = ("--topic", "t", "--partition", 1, "--topic", "t", "--partition", 0)
    common = {
        "error": "NONE", "app_id": "a", "producer_id": FIRST_ID + 1,
        "generation": 0, "expires_at_ms": NOW_MS + HOUR_MS,
    }  # fmt: skip
    # What a log knows already is not given out.
    assert acquire("a", *partitions) == [
        {**common, "next_sequence": 0, "topic": "t", "partition": 1},
        {**common, "next_sequence": 0, "topic": "t", "partition": 0},
    ]
    assert acquire("b") == [
        {**common, "app_id": "b", "producer_id": FIRST_ID + 2, "next_sequence": None, "topic": None,
         "partition": None}
    ]  # fmt: skip


def test_a_generation_is_above_every_epoch_that_its_partitions_know(
    acquire: Callable[..., list[dict[str, Any]]], log_dir: Path
) -> None:
    partition = ("--topic", "t", "--partition", 0)
    (row,) = acquire("a", *partition, status=5)
    assert (row["error"], row["next_sequence"]) == ("UNKNOWN_TOPIC_OR_PARTITION", None)
    write(log_dir, "t-0", row["producer_id"], 41)
    (row,) = acquire("a", *partition)
    assert (row["producer_id"], row["generation"], row["next_sequence"]) == (FIRST_ID, 42, 0)


def test_renew_answers_with_the_sequence_of_the_log(
    acquire: Callable[..., list[dict[str, Any]]],
    eoctl: Callable[..., Outcome],
    log_dir: Path,
) -> None:
    write(log_dir, "t-0", 1, 0)
    acquire("a", "--topic", "t", "--partition", 0)
    write(log_dir, "t-0", FIRST_ID, 0, 5)
    call = ("lease-pid", "renew", log_dir, "--app-id", "a", "--generation", 0, *JSONL)
    (row,) = rows_of(eoctl(*call, "--expiry-ms", 7, *AT), "lease")
    assert (row["next_sequence"], row["expires_at_ms"]) == (5, NOW_MS + 7)
    late = eoctl(*call, "--expiry-ms", 7, "--now", NOW_MS + 7)
    assert late.status == 4
    assert "INVALID_PRODUCER_ID_MAPPING: the lease of a has lapsed" in notes_of(late)[0]


def test_the_old_holder_is_refused(
    acquire: Callable[..., list[dict[str, Any]]], eoctl: Callable[..., Outcome], log_dir: Path
) -> None:
    acquire("a")
    acquire("a")
    before = content(log_dir / DIRECTORY_NAME)
    for part, more in (("renew", ("--expiry-ms", 1)), ("release", ())):
        found = eoctl("lease-pid", part, log_dir, "--app-id", "a", "--generation", 0, *more, *AT)
        assert found.status == 4
        assert found.stdout == b""
        assert "PRODUCER_FENCED: generation 0 of a" in found.errors
        assert "try: stop that producer" in found.errors
    assert content(log_dir / DIRECTORY_NAME) == before


def test_list_in_each_format(
    acquire: Callable[..., list[dict[str, Any]]], eoctl: Callable[..., Outcome], log_dir: Path
) -> None:
    acquire("held", "--topic", "t", "--partition", 3, status=5)
    acquire("lapsed", "--now", NOW_MS - HOUR_MS)
    acquire("released")
    assert (
        eoctl(
            "lease-pid", "release", log_dir, "--app-id", "released", "--generation", 0, *AT
        ).status
        == 0
    )
    text = eoctl("lease-pid", "list", log_dir, *AT)
    assert text.status == 0
    assert text.text == (
        "app_id\tstate\tproducer_id\tgeneration\texpiry_ms\texpires_at_ms\tpartitions\n"
        f"held\theld\t{FIRST_ID}\t0\t3600000\t{NOW_MS + HOUR_MS}\tt-3\n"
        f"lapsed\tlapsed\t{FIRST_ID + 1}\t0\t3600000\t{NOW_MS}\t-\n"
        f"released\treleased\t{FIRST_ID + 2}\t0\t3600000\t{NOW_MS + HOUR_MS}\t-\n"
        "\n"
        "first_id\tnext_block_id\tlease_ids_left\tfree_ids\n"
        f"{FIRST_ID}\t{FIRST_ID + 1000}\t997\t-\n"
    )
    assert "as given" in text.errors
    lines = [
        json.loads(each)
        for each in eoctl("lease-pid", "list", log_dir, *AT, *JSONL).text.splitlines()
    ]
    packed = eoctl("lease-pid", "list", log_dir, *AT, "--output", "msgpack").stdout
    unpacker = msgpack.Unpacker()
    unpacker.feed(packed)
    assert [*unpacker] == lines
    assert [each.get("state") for each in lines] == ["held", "lapsed", "released", None]


def test_list_of_nothing(eoctl: Callable[..., Outcome], log_dir: Path) -> None:
    before = content(log_dir)
    found = eoctl("lease-pid", "list", log_dir, *AT, *JSONL)
    assert found.status == 0
    assert rows_of(found, "sequence") == [
        {"first_id": FIRST_ID, "next_block_id": FIRST_ID, "lease_ids_left": 0, "free_ids": []}
    ]  # fmt: skip
    assert content(log_dir) == before


# --- expiry ---------------------------------------------------------------------------------------


def test_an_id_is_free_when_nothing_knows_it(
    acquire: Callable[..., list[dict[str, Any]]], eoctl: Callable[..., Outcome], log_dir: Path
) -> None:
    """Its last batch is a day old everywhere, and no transaction of it is open."""
    for app in ("known", "unknown", "open", "held"):
        acquire(app)
    acquire("held", "--now", NOW_MS + 2 * DAY_MS)
    write(log_dir, "t-0", FIRST_ID, 0)
    write(log_dir, "u-0", FIRST_ID, 0)
    write(log_dir, "t-1", FIRST_ID + 2, 0, is_transactional=True)

    def expire(now_ms: int) -> dict[str, tuple[object, ...]]:
        found = eoctl("lease-pid", "expire", log_dir, "--now", now_ms, *JSONL)
        assert found.status == 0
        names = ("outcome", "producer_id", "reusable_at_ms", "known_in")
        return {
            each["app_id"]: tuple(each[name] for name in names)
            for each in rows_of(found, "expired")
        }

    assert expire(NOW_MS + HOUR_MS - 1) == {}
    assert expire(NOW_MS + DAY_MS - 1) == {
        "known": ("known", FIRST_ID, NOW_MS + DAY_MS, ["t-0", "u-0"]),
        "unknown": ("freed", FIRST_ID + 1, None, []),
        "open": ("known", FIRST_ID + 2, None, ["t-1"]),
    }
    (row,) = acquire("new", "--now", NOW_MS + DAY_MS)
    assert (row["producer_id"], row["generation"]) == (FIRST_ID + 1, 1)
    assert expire(NOW_MS + DAY_MS) == {
        "known": ("freed", FIRST_ID, None, []),
        "open": ("known", FIRST_ID + 2, None, ["t-1"]),
    }
    listed = eoctl("lease-pid", "list", log_dir, *AT, *JSONL)
    assert rows_of(listed, "sequence")[0]["free_ids"] == [FIRST_ID]
    assert [each["app_id"] for each in rows_of(listed, "lease")] == ["held", "new", "open"]


def test_another_expiration(
    acquire: Callable[..., list[dict[str, Any]]], eoctl: Callable[..., Outcome], log_dir: Path
) -> None:
    acquire("a")
    write(log_dir, "t-0", FIRST_ID, 0)
    call = (
        "lease-pid",
        "expire",
        log_dir,
        "--now",
        NOW_MS + HOUR_MS,
        *JSONL,
        "--producer-expiry-ms",
    )
    assert rows_of(eoctl(*call, HOUR_MS + 1), "expired")[0]["outcome"] == "known"
    assert rows_of(eoctl(*call, HOUR_MS), "expired")[0]["outcome"] == "freed"


def test_what_cannot_be_read_may_know_any_id(
    acquire: Callable[..., list[dict[str, Any]]], eoctl: Callable[..., Outcome], log_dir: Path
) -> None:
    acquire("a", "--now", NOW_MS - HOUR_MS)
    write(log_dir, "t-0", 5, 0, 3)
    (log,) = (log_dir / "t-0").glob("*.log")
    data = bytearray(log.read_bytes())
    data[30] ^= 1
    log.write_bytes(bytes(data) + bytes(data))
    for path in (log_dir / "t-0").glob("*.snapshot"):
        path.unlink()
    found = eoctl("lease-pid", "expire", log_dir, *AT, *JSONL)
    assert found.status == 5
    (row,) = rows_of(found, "expired")
    assert row["outcome"] == "unknown"
    assert any("t-0" in each and "position 0" in each for each in notes_of(found))
    (row,) = acquire("a", "--topic", "t", "--partition", 0, status=5)
    assert (row["error"], row["next_sequence"]) == ("KAFKA_STORAGE_ERROR", None)


# --- refusals -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "more, words",
    [
        (("--topic", "t"), "1 --topic and 0 --partition"),
        (("--topic", "t", "--partition", 0) * 2, "named twice"),
        (("--app-id", ""), "not 1 to 4096"),
        (("--app-id", "x" * 4097), "not 1 to 4096"),
        (("--app-id", "\udcff"), "not UTF-8"),
        (("--topic", "\udcff", "--partition", 0), "no name of a topic"),
        (("--topic", "a/b", "--partition", 0), "no name of a topic"),
    ],
)
def test_calls_that_make_no_sense(
    eoctl: Callable[..., Outcome], log_dir: Path, more: tuple[object, ...], words: str
) -> None:
    found = eoctl("lease-pid", "acquire", log_dir, "--app-id", "a", "--expiry-ms", 1, *more)
    assert found.status == 2
    assert words in found.errors
    assert not (log_dir / DIRECTORY_NAME).exists()


@pytest.mark.parametrize("part", ["acquire", "list", "expire"])
def test_what_is_no_log_dir(eoctl: Callable[..., Outcome], tmp_path: Path, part: str) -> None:
    more = ("--app-id", "a", "--expiry-ms", 1) if part == "acquire" else ()
    (tmp_path / "t-0").mkdir()
    found = eoctl("lease-pid", part, tmp_path / "t-0", *more)
    assert found.status == 2
    assert "not a log dir" in found.errors
    assert [*(tmp_path / "t-0").iterdir()] == []
    assert eoctl("lease-pid", part, tmp_path / "none", *more).status == 3


HOLDER = """
import sys, time
from storage.files.broker_lock import take
with take([sys.argv[1]]):
    print("held", flush=True)
    time.sleep(60)
"""


def test_beside_a_broker(
    acquire: Callable[..., list[dict[str, Any]]], eoctl: Callable[..., Outcome], log_dir: Path
) -> None:
    """Refused with the process id of the holder after a while; looking goes on."""
    acquire("a")
    holder = subprocess.Popen([sys.executable, "-c", HOLDER, str(log_dir)], stdout=subprocess.PIPE)
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        call = ("--app-id", "a", "--generation", 0, "--wait-ms", 30)
        found = eoctl("lease-pid", "release", log_dir, *call)
        assert found.status == 4
        assert f"process {holder.pid} holds the lock" in found.errors
        assert len(rows_of(eoctl("lease-pid", "list", log_dir, *AT, *JSONL), "lease")) == 1
    finally:
        holder.kill()
        holder.communicate()
    assert eoctl("lease-pid", "release", log_dir, *call).status == 0


def test_an_unfinished_change_comes_first(eoctl: Callable[..., Outcome], log_dir: Path) -> None:
    (log_dir / UNFINISHED_NAME).write_text(str(log_dir.parent / "journal"))
    found = eoctl("lease-pid", "acquire", log_dir, "--app-id", "a", "--expiry-ms", 1)
    assert found.status == 4
    assert "has not been finished" in found.errors
    assert not (log_dir / DIRECTORY_NAME).exists()


def test_damage_is_refused_with_its_place(
    acquire: Callable[..., list[dict[str, Any]]], eoctl: Callable[..., Outcome], log_dir: Path
) -> None:
    acquire("a")
    log = log_dir / DIRECTORY_NAME / f"{0:020d}.log"
    start_pos = log.stat().st_size
    acquire("b")
    data = bytearray(log.read_bytes())
    data[start_pos + 70] ^= 4
    log.write_bytes(data)
    for part in ("list", "expire"):
        found = eoctl("lease-pid", part, log_dir)
        assert found.status == 4
        assert f"{log}: position {start_pos}, offset 2: corrupt" in found.errors
        assert f"try: eoctl check {log.parent}" in found.errors
    assert log.read_bytes() == data


def test_a_torn_end_is_cut_and_told(
    acquire: Callable[..., list[dict[str, Any]]], eoctl: Callable[..., Outcome], log_dir: Path
) -> None:
    acquire("a")
    log = log_dir / DIRECTORY_NAME / f"{0:020d}.log"
    whole = log.read_bytes()
    log.write_bytes(whole + whole[:100])
    found = eoctl("lease-pid", "release", log_dir, "--app-id", "a", "--generation", 0)
    assert found.status == 0
    assert "the part that a crash left of an unanswered change: 100 bytes" in found.errors


@pytest.mark.parametrize("suffix", ["stray", "delete"])
def test_what_a_broker_set_aside_is_not_begun_anew(
    acquire: Callable[..., list[dict[str, Any]]],
    eoctl: Callable[..., Outcome],
    log_dir: Path,
    suffix: str,
) -> None:
    acquire("a")
    aside = log_dir / f"{DIRECTORY_NAME}.{'0' * 32}-{suffix}"
    (log_dir / DIRECTORY_NAME).rename(aside)
    found = eoctl("lease-pid", "acquire", log_dir, "--app-id", "a", "--expiry-ms", 1)
    assert found.status == 4
    assert f"{aside}: a broker has set the producer ids aside" in found.errors
    aside.rename(log_dir / DIRECTORY_NAME)
    assert acquire("a")[0]["generation"] == 1


def test_the_first_call_may_fail_anywhere(
    eoctl: Callable[..., Outcome], log_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A directory that was not finished gives nothing out, and the next call makes another one."""
    call = ("lease-pid", "acquire", log_dir, "--app-id", "a", "--expiry-ms", 1, *AT, *JSONL)
    for number in itertools.count():
        fs = FailingFileSystem(number, errno.ENOSPC, for_ever=True)
        with monkeypatch.context() as patched:
            patched.setattr("storage.files.fsio.FileSystem", partial(lambda fs: fs, fs))
            failed = eoctl(*call)
        assert failed.status in {0, 3}, failed.errors
        found = eoctl(*call)
        assert found.status == 0, (fs.calls[number], found.errors)
        if failed.status == 0 or number > 60:
            break
        for each in log_dir.glob("__eoctl*"):
            shutil.rmtree(each)
    assert number > 20


def test_produce_leaves_it_alone(
    acquire: Callable[..., list[dict[str, Any]]], eoctl: Callable[..., Outcome], log_dir: Path
) -> None:
    acquire("a")
    found = eoctl("produce", log_dir / DIRECTORY_NAME, os.devnull, *NEW_TOPIC, "--apply")
    assert found.status == 4
    assert "only eoctl lease-pid writes to" in found.errors


# --- produce --lease ------------------------------------------------------------------------------


@pytest.fixture
def produce(eoctl: Callable[..., Outcome], log_dir: Path, tmp_path: Path) -> Callable[..., Outcome]:
    def call(lines: int, *more: object) -> Outcome:
        (tmp_path / "input").write_bytes(b"line\n" * lines)
        place = (log_dir / "t-0", tmp_path / "input")
        return eoctl("produce", *place, "--apply", *NEW_TOPIC, "--lease", "a", *AT, *JSONL, *more)

    return call


def test_produce_writes_as_the_holder(
    acquire: Callable[..., list[dict[str, Any]]], produce: Callable[..., Outcome], log_dir: Path
) -> None:
    """Id, generation and sequence are those of the lease; the one before is fenced, also by the log."""
    acquire("other")
    acquire("a")
    assert produce(3).status == 0
    assert produce(2, "--producer-epoch", 0).status == 0
    acquire("a")
    fenced = produce(2, "--producer-epoch", 0)
    assert fenced.status == 4
    assert "PRODUCER_FENCED: generation 0 of a: another producer has acquired it" in fenced.errors
    assert produce(4, "--producer-epoch", 1).status == 0
    found = [each[-4:-1] for each in headers_of(log_dir / "t-0")]
    assert found == [(FIRST_ID + 1, 0, 0), (FIRST_ID + 1, 0, 3), (FIRST_ID + 1, 1, 0)]
    with pytest.raises(AppendError, match="INVALID_PRODUCER_EPOCH"):
        open_writer(log_dir / "t-0").append(batch(1, (FIRST_ID + 1, 0, 5)))


def test_a_session_is_fenced(
    acquire: Callable[..., list[dict[str, Any]]], produce: Callable[..., Outcome], tmp_path: Path
) -> None:
    session = ("--producer-session", tmp_path / "session")
    acquire("a")
    assert produce(3, *session).status == 0
    assert produce(5, *session).status == 0
    acquire("a")
    fenced = produce(7, *session)
    assert fenced.status == 4
    assert "PRODUCER_FENCED: generation 0 of a" in fenced.errors


@pytest.mark.parametrize(
    "more, status, words",
    [
        (("--producer-id", 7), 2, "--lease and --producer-id"),
        (("--txn-records", 2), 2, "--transaction-version 1"),
        (("--now", NOW_MS + HOUR_MS), 4, "INVALID_PRODUCER_ID_MAPPING: the lease of a has lapsed"),
        (("--lease", "b"), 4, "INVALID_PRODUCER_ID_MAPPING: b has no producer id"),
        (("--producer-epoch", 1), 4, "nobody has acquired it yet, the last generation is 0"),
    ],
)
def test_produce_without_the_lease(
    acquire: Callable[..., list[dict[str, Any]]],
    produce: Callable[..., Outcome],
    log_dir: Path,
    more: tuple[object, ...],
    status: int,
    words: str,
) -> None:
    acquire("a")
    found = produce(1, *more)
    assert found.status == status
    assert words in found.errors
    assert not (log_dir / "t-0").exists()


def test_transactions_of_the_holder(
    acquire: Callable[..., list[dict[str, Any]]], produce: Callable[..., Outcome], log_dir: Path
) -> None:
    acquire("a")
    assert produce(4, "--txn-records", 2, "--transaction-version", 1).status == 0
    assert {each[-4:-2] for each in headers_of(log_dir / "t-0")} == {(FIRST_ID, 0)}


# --- clusters -------------------------------------------------------------------------------------


def test_in_a_cluster_the_topic_must_be_known(eoctl: Callable[..., Outcome], kafka: Path) -> None:
    """A broker would set the directory aside."""
    call = ("lease-pid", "acquire", kafka, "--app-id", "a", "--expiry-ms", 1, *JSONL)
    found = eoctl(*call)
    assert found.status == 4
    assert "does not know the topic" in found.errors
    assert "kafka-topics.sh --create --topic __eoctl_producer_ids" in found.errors
    assert not (kafka / DIRECTORY_NAME).exists()
    assert (kafka / ".kafka_cleanshutdown").exists()
    later = eoctl(*call, "--topic-id", "AAECAwQFBgcICQoLDA0ODw", "--single-copy")
    assert later.status == 0
    assert rows_of(later, "lease")[0]["producer_id"] == FIRST_ID
    assert not (kafka / ".kafka_cleanshutdown").exists()
    price = "the log dir is without its clean-shutdown marker afterwards"
    assert any(each.startswith(price) for each in notes_of(later))
    again = eoctl(*call, "--topic-id", "AAECAwQFBgcICQoLDA0ODw", "--single-copy")
    assert not any(each.startswith(price) for each in notes_of(again))


def test_the_examples_of_the_man_page(eoctl: Callable[..., Outcome], log_dir: Path) -> None:
    """Each call of the page, one after the other, prints what is there."""
    write(log_dir, "orders-0", 1, 0)
    page = (Path(__file__).parents[2] / "man/eoctl-lease-pid.1").read_text()
    joined = re.sub(r" \\e\n\s*", " ", page)
    blocks = re.findall(r"^\.Bd -literal\n(.+?)^\.Ed", joined, re.DOTALL | re.MULTILINE)
    examples = [each for block in blocks for each in block.split("$ ")[1:]]
    assert len(examples) == 4
    for example in examples:
        command, _, printed = example.partition("\n")
        words = command.replace("/var/lib/kafka", str(log_dir)).split()
        assert eoctl(*words[1:]).text.split() == printed.split(), command
