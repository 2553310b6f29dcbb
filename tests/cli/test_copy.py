"""`eoctl copy`: what a real client is given of the source is in the destination, exactly once."""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import msgpack
import pytest

from eoctl.clients.partitions.identity import COPY_IDS
from storage.checksum import crc32c
from storage.formats.compression import Codec
from storage.formats.record_batch import LOG_APPEND_TIME_MASK, parse_header
from storage.log.segment import open_segment
from tests.cli.test_consume import ISOLATIONS, fixture
from tests.copying import Copy, contents, make_copy, require_sequences, write
from tests.read_back import PARTITIONS
from tests.read_log import read_log
from tests.writing import NEW_TOPIC, NOW_MS, batch, content, headers_of, make_log_dir

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from storage.formats.record_batch import BatchHeader
    from tests.copying import Eoctl

KEPT = ("timestamp_ms", "timestamp_type", "key", "value", "headers")
STATES = ("crash", "hard", "tv2", "tv2-clean")


def rows_of(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


@pytest.fixture(params=[1 << 20, 0], ids=["one by one", "many at once"])
def windows(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """How the batches of a small log are read."""
    monkeypatch.setattr("eoctl.clients.log.log_walk.BULK_MIN_BYTES", request.param)


@pytest.fixture
def copy(eoctl: Eoctl, tmp_path: Path) -> Copy:
    return make_copy(eoctl, tmp_path)


# --- real directories -----------------------------------------------------------------------------


@pytest.mark.share(10)
@pytest.mark.parametrize("isolation", ISOLATIONS)
@pytest.mark.parametrize("name", PARTITIONS)
def test_it_is_what_a_real_client_was_given(
    name: str, isolation: str, eoctl: Eoctl, golden: Callable[[str], Path], log_dir: Path
) -> None:
    _, *records = fixture(golden, name, isolation)
    made = Copy(eoctl, golden("kafka-4.3.1") / "clean" / name, log_dir / "t-0")
    row = made.report("--isolation", isolation, "--until", "hw")
    assert (row["records"], row["compared"]) == (len(records), "equal")
    if not records:
        return
    outcome = eoctl("consume", log_dir / "t-0", "--output", "jsonl", "--bytes", "base64")
    found = rows_of(outcome.text)
    assert [each["offset"] for each in found] == list(range(len(records)))
    assert [[each[it] for it in KEPT] for each in found] == [
        [each[it] for it in KEPT] for each in records
    ]
    require_sequences(log_dir / "t-0")
    assert eoctl("check", log_dir, "--fail-on", "note").status == 0


@pytest.mark.share(1)
@pytest.mark.parametrize("isolation", ISOLATIONS)
@pytest.mark.parametrize("state", STATES)
def test_logs_of_brokers_that_were_killed(
    state: str, isolation: str, eoctl: Eoctl, golden: Callable[[str], Path], log_dir: Path
) -> None:
    """Transactions of both versions, open ones, what a cleaner has left; the source is as it was."""
    encoded = aborted = opened = 0
    for source in sorted((golden("kafka-4.3.1") / state).glob("[a-z]*-[0-9]")):
        made = Copy(eoctl, source, log_dir / source.name)
        row = made.report("--isolation", isolation)
        wanted = read_log(source).records
        if isolation == "read_committed":
            known = rows_of(
                eoctl("consume", source, "--isolation", isolation, "--output", "jsonl").text
            )
            offsets = {each["offset"] for each in known}
            wanted = [each for each in wanted if each.offset in offsets]
        assert row["records"] == len(wanted)
        assert row["compared"] == "equal"
        if wanted:
            assert contents(read_log(log_dir / source.name).records) == contents(wanted)
            require_sequences(log_dir / source.name)
        encoded += row["encoded_batches"]
        aborted += row["aborted_records"]
        opened += row["open_transactions"] or 0
    assert eoctl("check", log_dir, "--fail-on", "note").status == 0
    is_committed = isolation == "read_committed"
    assert encoded
    assert bool(aborted) == is_committed
    assert bool(opened) == (is_committed and state in {"crash", "hard"})


def test_old_formats_are_encoded_anew(
    eoctl: Eoctl, golden: Callable[[str], Path], log_dir: Path
) -> None:
    count = 0
    for source in sorted(golden("kafka-0.10.2-legacy").rglob("v[01]-*-0")):
        made = Copy(eoctl, source, log_dir / source.name)
        row = made.report()
        assert row["batches"] == row["encoded_batches"] > 0
        assert contents(read_log(log_dir / source.name).records) == contents(
            read_log(source).records
        )
        count += 1
    assert count
    assert eoctl("check", log_dir, "--fail-on", "note").status == 0


# --- bytes ----------------------------------------------------------------------------------------


def test_batches_go_as_bytes(copy: Copy) -> None:
    """The header says who sends it, and where it is; nothing else of a batch changes."""
    for codec in range(5):
        write(copy.source, batch(7, (9, 0, 7 * codec), codec=Codec(codec)))
    row = copy.report()
    assert (row["batches"], row["encoded_batches"], row["base_offset"]) == (8, 0, 0)
    originals, copies = headers_of(copy.source), headers_of(copy.destination)
    stamped = {"producer_id": 0, "producer_epoch": 0, "base_sequence": 0, "crc": 0}
    for one, other in zip(originals, copies, strict=True):
        assert other._replace(**stamped) == one._replace(**stamped)  # both are dense
        assert other.producer_id == row["producer_id"]
        assert other.producer_id in COPY_IDS
    bodies = [
        [data[pos + 61 : pos + each.batch_bytes] for pos, each in _places(data)]
        for data in (_log_bytes(copy.source), _log_bytes(copy.destination))
    ]
    assert bodies[0] == bodies[1]
    assert len(bodies[0]) == 8
    copy.require_equal()


def _log_bytes(directory: Path) -> bytes:
    return b"".join(each.read_bytes() for each in sorted(directory.glob("*.log")))


def _places(data: bytes) -> Iterator[tuple[int, BatchHeader]]:
    pos = 0
    while pos < len(data):
        header = parse_header(data, pos)
        yield pos, header
        pos += header.batch_bytes


@pytest.mark.share(2)
@pytest.mark.parametrize(
    ("name", "segment_bytes"),
    [("rolled-0", 300_000), ("txn-0", 3_000), ("plain-0", 9_000), ("txn-1", 3_000),
     ("idem-none-0", 8_000)],
)  # fmt: skip
def test_many_at_once_are_as_one_by_one(
    name: str,
    segment_bytes: int,
    eoctl: Eoctl,
    golden: Callable[[str], Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Every file of the destination, over rolls by size and by full indexes."""
    source = golden("kafka-4.3.1") / "clean" / name
    small = ("--segment-bytes", segment_bytes, "--index-interval-bytes", 200, "--index-max-bytes",
             240)  # fmt: skip
    made = []
    for bulk_bytes, run_batches in ((0, 2), (1 << 30, 2), (0, 1 << 30)):
        monkeypatch.setattr("eoctl.clients.log.log_walk.BULK_MIN_BYTES", bulk_bytes)
        monkeypatch.setattr("eoctl.clients.copying.copier.MIN_RUN_BATCHES", run_batches)
        copy = Copy(eoctl, source, make_log_dir(tmp_path / str(len(made))) / "t-0")
        row = copy.report("--now", "2026-11-21T03:00:00Z", *small)
        del row["session"], row["path"]
        made.append((row, content(copy.destination)))
    assert made[0] == made[1] == made[2]
    assert made[0][0]["segments_rolled"] > 0


def test_append_times_stay(eoctl: Eoctl, golden: Callable[[str], Path], log_dir: Path) -> None:
    source = golden("kafka-4.3.1") / "clean" / "append-time-0"
    made = Copy(eoctl, source, log_dir / "t-0")
    assert made.report()["encoded_batches"] == 0
    assert all(each.attributes & LOG_APPEND_TIME_MASK for each in headers_of(log_dir / "t-0"))
    made.require_equal()


def test_a_batch_is_divided_only_where_a_session_begins(copy: Copy) -> None:
    row = copy.report("--from", 13, "--until", 25)
    assert (row["source_start_offset"], row["source_end_offset"]) == (13, 20)
    assert (row["records"], row["encoded_batches"]) == (7, 1)
    row = copy.report()
    assert (row["source_start_offset"], row["records"]) == (20, 10)
    values = [each.offset for each in read_log(copy.source).records if each.offset >= 13]
    assert len(read_log(copy.destination).records) == len(values)
    assert contents(read_log(copy.destination).records) == contents(
        read_log(copy.source).records[13:]
    )


# --- going on -------------------------------------------------------------------------------------


def test_a_second_run_copies_what_is_new(copy: Copy) -> None:
    first = copy.report()
    assert (first["records"], first["producer_epoch"], first["compared_records"]) == (30, 0, 30)
    again = copy.report()
    assert (again["records"], again["producer_epoch"]) == (0, None)
    write(copy.source, None, None)
    grown = copy.report()
    assert (grown["records"], grown["base_offset"], grown["producer_epoch"]) == (20, 30, 1)
    assert grown["producer_id"] == first["producer_id"]
    copy.require_equal()


@pytest.mark.usefixtures("windows")
def test_others_may_write_in_between(copy: Copy) -> None:
    copy.report()
    write(copy.destination, batch(3), batch(5, (7, 0, 0)))
    write(copy.source, None)
    row = copy.report("--compare", "all")
    assert (row["records"], row["base_offset"], row["compared_records"]) == (10, 38, 40)
    copy.session.write_bytes(copy.session.read_bytes())
    own = row["producer_id"]
    records = read_log(copy.destination).records
    headers = [each for each in headers_of(copy.destination) if each.producer_id == own]
    offsets = {n for each in headers for n in range(each.base_offset, each.last_offset + 1)}
    mine = [each for each in records if each.offset in offsets]
    assert contents(mine) == contents(read_log(copy.source).records)


def test_a_plan_changes_nothing(copy: Copy) -> None:
    planned = copy.report(is_applied=False)
    assert (planned["records"], planned["applied"], planned["compared"]) == (30, False, None)
    assert not copy.destination.exists()
    assert not (copy.destination.parents[1] / "target.eoctl").exists()
    copy.report()
    write(copy.source, None)
    before = content(copy.destination), copy.session.read_bytes()
    assert copy.report(is_applied=False)["records"] == 10
    assert (content(copy.destination), copy.session.read_bytes()) == before


def test_the_log_decides(copy: Copy) -> None:
    """The session was saved before anything was sent: what is there is compared and passed over."""
    copy.report()
    saved = copy.session.read_bytes()
    write(copy.source, None)
    copy.report()
    begun = copy.session.read_bytes()
    write(copy.source, None)
    copy.session.write_bytes(saved)
    copy.refused("INVALID_PRODUCER_EPOCH")  # an older copier
    copy.session.write_bytes(begun)
    row = copy.report()
    assert (row["records"], row["producer_epoch"]) == (10, 2)
    copy.require_equal()


def test_a_destination_that_lost_its_end_gets_it_again(copy: Copy, eoctl: Eoctl) -> None:
    for _ in range(3):
        copy.report("--fsync", "never")
        write(copy.source, None)
    for offset in (35, 0):
        cut = eoctl("truncate", copy.destination, "--to-offset", offset, "--apply", "--single-copy")
        assert cut.status == 0, cut.errors
        write(copy.source, None)
        copy.report()
        copy.require_equal()


def test_a_lost_session_is_proved_or_refused(copy: Copy, eoctl: Eoctl) -> None:
    first = copy.report()
    copy.session.unlink()
    write(copy.source, None)
    row = copy.report()
    assert (row["verified_records"], row["records"]) == (30, 10)
    assert (row["producer_id"], row["producer_epoch"]) == (first["producer_id"], 1)
    copy.require_equal()
    copy.session.unlink()
    copy.refused("cannot be proved", "--from", 10)
    write(copy.destination, batch(1))
    cut = eoctl("truncate", copy.source, "--to-offset", 20, "--apply", "--single-copy")
    assert cut.status == 0, cut.errors
    error = copy.refused("the source has nothing in its place")
    assert "--session FILE" in error["next_step"]
    before = len(read_log(copy.destination).records)
    assert copy.report("--producer-id", 5)["records"] == 20  # all of it once more, as asked for
    assert len(read_log(copy.destination).records) == before + 20


def test_a_copy_of_an_earlier_release_goes_on_under_its_id(copy: Copy) -> None:
    """That of a lost session was above 2^53; the log of the destination still knows it."""
    new = copy.report("--producer-id", 1)["producer_id"]
    assert new == 1
    shutil.rmtree(copy.destination)
    copy.session.unlink()
    first = copy.report()["producer_id"]
    place = (first - COPY_IDS.start) / len(COPY_IDS)
    shutil.rmtree(copy.destination)
    copy.session.unlink()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("eoctl.clients.copying.session.COPY_IDS", range(3 << 61, 1 << 63))
        earlier = copy.report()["producer_id"]
    assert earlier == pytest.approx((3 << 61) + place * 2**61)  # the same digest
    assert earlier > 2**53
    copy.session.unlink()
    write(copy.source, None)
    row = copy.report()
    assert (row["producer_id"], row["verified_records"], row["records"]) == (earlier, 30, 10)


def test_an_older_copier_is_fenced(copy: Copy, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two at once, where a file system has no locks: the second one takes the session over."""
    from contextlib import nullcontext

    from eoctl.clients.copying.copier import Copier

    monkeypatch.setattr(
        "eoctl.clients.partitions.open_partition.take", lambda *_, **__: nullcontext()
    )
    copy.report()
    write(copy.source, None, None)
    take = Copier.take
    second: list[dict[str, Any]] = []

    def overtaken(self: Copier, block: Any) -> None:
        first, *rest = block.batches
        take(self, block._replace(batches=(first,), next_offset=block.next_offset))
        monkeypatch.setattr(Copier, "take", take)
        monkeypatch.setattr("eoctl.clients.copying.copier.ANCHOR_BYTES", 1)
        second.append({"ours": self.producer_epoch})
        keeper = self.keeper
        session = keeper.begun
        later = session.last_anchor._replace(producer_epoch=session.last_anchor.producer_epoch + 1)
        other = type(keeper)(keeper._journal, keeper.path, keeper._like)
        other.save(session.with_anchor(later))
        take(self, block._replace(batches=tuple(rest)))

    monkeypatch.setattr(Copier, "take", overtaken)
    copy.refused("INVALID_PRODUCER_EPOCH")
    assert second == [{"ours": 1}]
    assert len(headers_of(copy.destination)) == 4


def test_epochs_run_out(copy: Copy) -> None:
    from eoctl.clients.copying.session import CopySessionKeeper
    from recovery.changes.append_journal import AppendJournal
    from storage.files.fsio import FileSystem

    copy.report()
    journal = AppendJournal(FileSystem(), [str(copy.destination.parent)], "test")
    keeper = CopySessionKeeper(journal, str(copy.session), str(copy.session.parent))
    last = keeper.begun.last_anchor._replace(producer_epoch=32766)
    keeper.save(keeper.begun.with_anchor(last, is_clean=True))
    write(copy.source, None)
    copy.refused("has no epoch left")
    assert copy.report("--producer-id", 8)["records"] == 10
    write(copy.source, None)
    row = copy.report()
    assert (row["producer_id"], row["producer_epoch"], row["records"]) == (8, 1, 10)
    assert copy.report("--compare", "all")["compared_records"] == 50
    copy.require_equal()


# --- the source has changed -----------------------------------------------------------------------


def test_a_source_that_was_truncated(copy: Copy, eoctl: Eoctl) -> None:
    copy.report()
    cut = eoctl("truncate", copy.source, "--to-offset", 20, "--apply", "--single-copy")
    assert cut.status == 0, cut.errors
    copy.refused("was truncated to offset 20, and copied up to 30")
    write(copy.source, batch(10, value=b"other"), None)
    error = copy.refused("the batch that ends at offset 29 is not the batch that was copied")
    assert ".log: position " in error["message"]
    copy.session.unlink()
    copy.refused("the source has something else: value of source offset 20")


def test_a_source_that_lost_its_start(copy: Copy) -> None:
    """Small segments: two batches in each."""
    write(copy.source, *[None] * 20)
    copy.report("--until", 30)
    logs = sorted(copy.source.glob("*.log"))
    gone = [each for each in logs if int(each.stem) < 100][:-1]
    for each in gone:
        for path in copy.source.glob(f"{each.stem}.*"):
            path.unlink()
    first_offset = int(min(copy.source.glob("*.log")).stem)
    assert first_offset > 30
    epochs = copy.source / "leader-epoch-checkpoint"  # retention cuts it, too
    epochs.write_text(f"0\n1\n0 {first_offset}\n")
    copy.refused(f"offsets 30 to {first_offset - 1} were deleted before they were copied")
    row = copy.report("--session", copy.session.with_name("new"), "--producer-id", 4)
    assert row["source_start_offset"] == first_offset


def test_damage_ends_the_copy_before_it(copy: Copy) -> None:
    log = min(copy.source.glob("*.log"))
    data = bytearray(log.read_bytes())
    second = 12 + int.from_bytes(data[8:12], "big")
    data[second + 70] ^= 1
    log.write_bytes(data)
    outcome = copy.call()
    assert outcome.status == 1
    assert rows_of(outcome.text)[0]["records"] == 10
    error = rows_of(outcome.errors)[-1]
    assert (error["path"], error["pos"]) == (str(log), second)
    assert f"eoctl repair {copy.source}" in error["next_step"]  # and no option of another command
    assert not re.search("(^|; )--", error["next_step"])
    data[second + 70] ^= 1
    log.write_bytes(data)
    assert copy.report()["records"] == 20
    copy.require_equal()


# --- comparing ------------------------------------------------------------------------------------


@pytest.mark.usefixtures("windows")
def test_a_difference_is_found(copy: Copy) -> None:
    """A record that was changed in the destination, with a right checksum."""
    from tests.made_logs import with_right_checksums

    copy.report()
    log = min(copy.destination.glob("*.log"))
    log.write_bytes(with_right_checksums(log.read_bytes().replace(b"from 10", b"FROM 10")))
    outcome = copy.call("--compare", "all")
    assert outcome.status == 1
    row = rows_of(outcome.text)[0]
    assert (row["compared"], row["compared_records"]) == ("different", 10)
    message = rows_of(outcome.errors)[-1]["message"]
    assert "value of source offset 10, destination offset 10" in message
    assert copy.report("--no-compare")["compared"] is None


# --- chains, topics -------------------------------------------------------------------------------


def test_a_chain(copy: Copy, eoctl: Eoctl) -> None:
    middle = Copy(eoctl, copy.destination, make_log_dir(copy.source.parents[1] / "end") / "v-0")
    for count in (0, 1, 3):
        write(copy.source, *[None] * count)
        copy.report()
        middle.report()
    middle.require_equal()
    assert contents(read_log(middle.destination).records) == contents(read_log(copy.source).records)
    ids = {each.producer_id for each in headers_of(middle.destination)}
    assert ids.isdisjoint(each.producer_id for each in headers_of(copy.destination))


@pytest.mark.exhaustive
def test_a_chain_that_is_followed(copy: Copy, eoctl: Eoctl) -> None:
    """Two copies at once, the second one of what the first one is writing."""
    middle = Copy(eoctl, copy.destination, make_log_dir(copy.source.parents[1] / "end") / "v-0")
    copy.report()
    processes = []
    for each in (copy, middle):
        call = [sys.executable, "-m", "eoctl", "copy", str(each.source), str(each.destination),
                "--apply", *NEW_TOPIC, "--output", "jsonl", "--follow"]  # fmt: skip
        processes.append(subprocess.Popen(call, stdout=subprocess.PIPE, stderr=subprocess.PIPE))
    try:
        for count in range(4, 7):
            write(copy.source, None)
            deadline_s = time.monotonic() + 60
            while not _has_records(middle.destination, 10 * count):
                assert all(each.poll() is None for each in processes)
                assert time.monotonic() < deadline_s
                time.sleep(0.1)
    finally:
        outcomes = []
        for each in processes:
            each.send_signal(signal.SIGINT)
        for each in processes:
            try:
                outcomes.append((*each.communicate(timeout=60), each.returncode))
            except subprocess.TimeoutExpired:
                each.kill()
                raise
    for stdout, stderr, status in outcomes:
        assert status == 130, stderr
        assert rows_of(stdout.decode())[0]["compared"] is None
    assert (copy.report("--compare", "all")["records"], middle.report()["records"]) == (0, 0)
    middle.require_equal()
    assert contents(read_log(middle.destination).records) == contents(read_log(copy.source).records)


def _has_records(directory: Path, count: int) -> bool:
    """Whether whole batches with so many records are there; the last one may be half written."""
    found = 0
    for path in sorted(directory.glob("*.log")):
        with open_segment(path) as segment:
            found += sum(each.header.records_count for each in segment.scan() if each.crc_ok)
    return found >= count


def test_a_topic(eoctl: Eoctl, tmp_path: Path) -> None:
    source, target = make_log_dir(tmp_path / "source"), make_log_dir(tmp_path / "target")
    for number in range(3):
        write(source / f"t-{number}", *[None] * (number + 1))
    call = ("copy", source, target, "--to-topic", "t", "--apply", *NEW_TOPIC, "--output", "jsonl")
    outcome = eoctl(*call)
    assert outcome.status == 0, outcome.errors
    rows = [each for each in rows_of(outcome.text) if each["kind"] == "copy"]
    assert [(each["partition"], each["records"]) for each in rows] == [(0, 10), (1, 20), (2, 30)]
    for number in range(3):
        assert contents(read_log(target / f"t-{number}").records) == contents(
            read_log(source / f"t-{number}").records
        )
    assert all(json.loads(each)["records"] == 0 for each in eoctl(*call).text.splitlines()
               if '"kind":"copy"' in each)  # fmt: skip
    outcome = eoctl("copy", source, target, "--to-topic", "none", "--apply")
    assert outcome.status == 2


# --- what is refused ------------------------------------------------------------------------------


def test_what_is_refused(copy: Copy, eoctl: Eoctl) -> None:
    assert eoctl("copy", copy.source, copy.source, "--apply").status == 2
    before = content(copy.source)
    inside = Copy(eoctl, copy.source, copy.source / "u-0")
    inside.refused("lies in a partition", status=2)
    assert content(copy.source) == before  # above all no .lock: it would be taken for a log dir
    assert copy.call("--follow", is_applied=False).status == 2
    assert copy.call("--follow", "--until", 5).status == 2
    assert copy.call("--no-compare", "--compare", "all").status == 2
    assert eoctl("copy", copy.source, copy.destination, "--apply").status == 4
    copy.report()
    copy.refused("was begun with --isolation read_committed", "--isolation", "read_uncommitted")
    copy.refused("was begun at offset 0, not 5", "--from", 5)
    copy.refused("the session has producer id", "--producer-id", 5)
    copy.refused("lies in a log dir", "--session", copy.source.parent / "session")
    copy.refused("lies in a log dir", "--session", copy.source / "session")
    other = Copy(eoctl, copy.source, copy.destination.with_name("u-1"))
    other.refused("the session's destination is", "--session", copy.session)
    saved = copy.session.read_bytes()
    copy.session.write_bytes(b"x" * 50)
    copy.refused("not the session of a copy, or damaged")
    copy.session.write_bytes(saved)
    fields = msgpack.unpackb(msgpack.unpackb(saved)[0])
    fields["anchors"][-1][0] = 5  # in the source, before the end of the last batch
    body = msgpack.packb(fields)
    copy.session.write_bytes(msgpack.packb([body, crc32c(body)]))
    copy.refused("an anchor is not behind its last batch")


def test_one_file_in_two_places(copy: Copy) -> None:
    """A backup by hard links: what is appended to it would be in the source, too."""
    copy.destination.mkdir()
    for each in copy.source.iterdir():
        (copy.destination / each.name).hardlink_to(each)
    before = content(copy.source)
    copy.refused("is one file with", status=2)
    assert content(copy.source) == before


def test_a_compacted_destination_wants_keys(copy: Copy, monkeypatch: pytest.MonkeyPatch) -> None:
    from storage.dirs.topic_settings import LogConfig

    monkeypatch.setattr(
        "eoctl.clients.partitions.target.read_log_config",
        lambda *_, **__: LogConfig(is_compacted=True),
    )
    assert copy.report()["records"] == 30
    write(copy.source, batch(1), _without_key())
    copy.refused("INVALID_RECORD", status=4)
    assert len(read_log(copy.destination).records) == 31


def _without_key() -> bytes:
    from storage.writing.record_builder import BatchBuilder

    builder = BatchBuilder()
    builder.add(None, b"value", NOW_MS)
    return builder.build()
