"""Committed offsets from __consumer_offsets: real ones by kafka-dump-log's words, and made logs."""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from recovery.cluster import group_offsets
from recovery.cluster.clusters import Clusters
from recovery.cluster.group_offsets import CommittedOffset, GroupOffsets, find_group_offsets
from storage.dirs.cluster_image import ClusterImage, PartitionImage, TopicImage
from storage.dirs.log_dir import read_log_dir
from storage.errors import AccessError, CorruptError, FormatError
from storage.files import positioned_file
from storage.formats.compression import Codec
from storage.formats.consumer_offsets import OffsetCommit as Value
from storage.formats.consumer_offsets import OffsetKey, encode_offset_key, encode_offset_value
from storage.formats.control_record import EndTxnMarker, encode_control_key, encode_end_txn_marker
from storage.formats.legacy_message import Message, encode_message, with_crc
from storage.formats.record import Record, encode_record
from storage.formats.record_batch import (
    CONTROL_MASK,
    TRANSACTIONAL_MASK,
    BatchHeader,
    encode_batch,
)
from storage.writing.record_builder import BatchBuilder, ProducerIdentity
from tests.batches import encoded_batch
from tests.made_logs import with_right_checksums

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

STATES = ["crash", "clean", "recovered", "hard", "hard-clean", "tv2", "tv2-clean"]
COMMIT, ABORT = "commit", "abort"
LEADER_CHANGE = 2


# --- what must come out ---------------------------------------------------------------------------


class Event(NamedTuple):
    """A commit (value), a tombstone (value None) or a marker (outcome) in one log, by offset."""

    offset: int
    producer_id: int
    group: str = ""
    value: int | None = None
    outcome: str = ""


def settle(events: Sequence[Event]) -> list[CommittedOffset]:
    """For one topic-partition: the last commit in the log wins, of those that count at its end.

    A commit is out when a tombstone of its group follows, or when its producer's next marker is
    ABORT; without a next marker it is pending, and the last one of its producer is given.
    """
    found: dict[tuple[str, int | None], Event] = {}
    for place, each in enumerate(events):
        later = events[place + 1 :]
        if each.outcome or each.value is None:
            continue
        if any(other.group == each.group and other.value is None for other in later):
            continue
        own_markers = (o.outcome for o in later if o.outcome and o.producer_id == each.producer_id)
        outcome = COMMIT if each.producer_id == -1 else next(own_markers, None)
        if outcome == COMMIT:
            found[each.group, None] = each
        elif outcome is None:
            found[each.group, each.producer_id] = each
    offsets = [
        CommittedOffset(group, each.value or 0, producer_id is not None)
        for (group, producer_id), each in found.items()
    ]
    return sorted(offsets, key=lambda each: (each.group, each.is_pending, each.offset))


# --- real directories -----------------------------------------------------------------------------

BATCH = re.compile(r"baseOffset: .* producerId: (-?\d+) ")
RECORD = re.compile(r"\| offset: (\d+) .* key: (\{.*\}) payload: (.*)")
MARKER = re.compile(r"\| offset: (\d+) .* endTxnMarker: (COMMIT|ABORT) ")


def events_of_dump(path: Path, topic: str, partition: int) -> list[Event]:
    events = []
    producer_id = -1
    for line in path.read_text("utf-8", "replace").splitlines():
        if match := BATCH.match(line):
            producer_id = int(match[1])
        elif match := MARKER.match(line):
            events.append(Event(int(match[1]), producer_id, outcome=match[2].lower()))
        elif match := RECORD.match(line):
            key = json.loads(match[2])
            data = key["data"]
            if (key["type"], data.get("topic"), data.get("partition")) == ("1", topic, partition):
                value = None if match[3] == "<DELETE>" else json.loads(match[3])["data"]["offset"]
                events.append(Event(int(match[1]), producer_id, data["group"], value))
    return events


def image_of(log_dir: Path) -> ClusterImage:
    read = read_log_dir(log_dir)
    image = Clusters([read]).image_for(read)
    assert image is not None
    return image


def find(
    *log_dirs: Path, topic: str = "t", partition: int = 0, image: ClusterImage | None = None
) -> GroupOffsets:
    read = [read_log_dir(each) for each in log_dirs]
    found = find_group_offsets(read, topic, partition, image=image)
    assert found is not None
    return found


@pytest.mark.share(3)
@pytest.mark.parametrize("state", STATES)
def test_real_ones_are_what_the_dump_says(state: str, golden: Callable[[str], Path]) -> None:
    log_dir = golden("kafka-4.3.1") / state
    dumps = sorted((golden("kafka-4.3.1.dump") / state).glob("__consumer_offsets-*/*.log.txt"))
    image = image_of(log_dir)
    committed = 0
    for topic in image.topics.values():
        for partition in topic.partitions:
            found = find(log_dir, topic=topic.name, partition=partition, image=image)
            expected = []
            for dump in dumps:
                expected += settle(events_of_dump(dump, topic.name, partition))
            assert list(found.offsets) == sorted(expected)
            assert found[1:4] == ((0, 1, 2, 3), 4, ())
            assert found.is_complete
            committed += len(found.offsets)
    assert committed == 2


def test_real_groups(golden: Callable[[str], Path]) -> None:
    log_dir = golden("kafka-4.3.1") / "clean"
    in_transactions = find(log_dir, topic="txn", partition=1)
    assert in_transactions.offsets == (CommittedOffset("ctp", 89, is_pending=False),)
    plain = find(log_dir, topic="plain", partition=1)
    assert plain.offsets == (CommittedOffset("plain-group", 200, is_pending=False),)
    # Nothing else but the image tells that there is no fifth partition.
    assert plain[1:4] == ((0, 1, 2, 3), None, ())
    assert not plain.is_complete


def test_no_partition_of_the_topic(golden: Callable[[str], Path], tmp_path: Path) -> None:
    legacy = [read_log_dir(golden("kafka-0.10.2-legacy"))]
    assert find_group_offsets(legacy, "v0-none", 0) is None
    assert find_group_offsets([], "t", 0) is None
    for suffix in ("delete", "future", "stray"):
        (tmp_path / f"__consumer_offsets-0.{'0' * 32}-{suffix}").mkdir()
    assert find_group_offsets([read_log_dir(tmp_path)], "t", 0) is None


# --- made logs ------------------------------------------------------------------------------------


def key_of(group: str = "g", topic: str = "t", partition: int = 0) -> bytes:
    return encode_offset_key(OffsetKey(group, topic, partition))


def value_of(offset: int, version: int = 3) -> bytes:
    return encode_offset_value(Value(version=version, offset=offset, commit_timestamp_ms=1))


def data(
    *records: tuple[bytes | None, bytes | None],
    pid: int = -1,
    is_transactional: bool | None = None,
    codec: Codec = Codec.NONE,
) -> bytes:
    builder = BatchBuilder(codec=codec, batch_bytes=1 << 30)
    for key, value in records:
        builder.add(key, value, 1_700_000_000_000)
    identity = ProducerIdentity(pid, 0 if pid >= 0 else -1, 0)
    return builder.build(
        identity, is_transactional=pid >= 0 if is_transactional is None else is_transactional
    )


def commit(offset: int | None, *, group: str = "g", pid: int = -1, **options: Any) -> bytes:
    value = None if offset is None else value_of(offset)
    return data((key_of(group), value), pid=pid, **options)


def marker(
    pid: int, outcome: str, *, key: bytes | None = None, records_count: int | None = None
) -> bytes:
    if key is None:
        key = encode_control_key(outcome == COMMIT)
    records = [Record(0, 0, 0, key, encode_end_txn_marker(EndTxnMarker(0, 0)), ())]
    records = records[:records_count]
    return encoded_batch(
        0,
        records,
        attributes=TRANSACTIONAL_MASK | CONTROL_MASK,
        last_offset_delta=0,
        producer_id=pid,
        producer_epoch=0,
    )


def placed(batches: Iterable[bytes], base_offset: int = 0) -> tuple[bytes, int]:
    """The batches one behind the other, and the offset behind them."""
    out = []
    for each in batches:
        out.append(base_offset.to_bytes(8, "big") + each[8:])
        base_offset += int.from_bytes(each[23:27], "big") + 1
    return b"".join(out), base_offset


def write(log_dir: Path, *segments: Sequence[bytes], number: int = 0) -> Path:
    """A log dir with one more partition of `__consumer_offsets`; returns it."""
    directory = log_dir / f"__consumer_offsets-{number}"
    directory.mkdir(parents=True)
    offset = 0
    for batches in segments:
        log, next_offset = placed(batches, offset)
        (directory / f"{offset:020d}.log").write_bytes(log)
        offset = next_offset
    return log_dir


def log_of(log_dir: Path, number: int = 0) -> Path:
    return log_dir / f"__consumer_offsets-{number}" / f"{0:020d}.log"


def offsets_of(log_dir: Path) -> list[tuple[str, int]]:
    """What counts, as (group, offset); fails if anything is pending or could not be read."""
    found = find(log_dir)
    assert found.problems == ()
    assert not any(each.is_pending for each in found.offsets)
    return [(each.group, each.offset) for each in found.offsets]


def image_with(*numbers: int) -> ClusterImage:
    nothing: tuple[int, ...] = ()
    partition = PartitionImage((1,), (1,), nothing, nothing, 1, 0, 0, (bytes(16),))
    image = ClusterImage()
    name = group_offsets.GROUPS_TOPIC
    image.topics[name] = TopicImage(name, bytes(16), dict.fromkeys(numbers, partition))
    return image


def test_the_last_value_wins_and_a_tombstone_removes(tmp_path: Path) -> None:
    write(
        tmp_path,
        [commit(5), commit(9, group="a"), commit(7)],
        [commit(3, group="gone"), commit(None, group="gone"), commit(2, group="back")],
        [commit(None, group="back"), commit(4, group="back"), commit(None, group="never")],
    )
    assert offsets_of(tmp_path) == [("a", 9), ("back", 4), ("g", 7)]


def test_keys_of_others_do_not_count(tmp_path: Path) -> None:
    """Nor do they hide what is in the same batch: all of it in one, and each on its own."""
    others: list[tuple[bytes | None, bytes | None]] = [
        (key_of(topic="t2"), value_of(1)),
        (key_of(topic="a.t"), value_of(2)),
        (key_of(partition=1), value_of(3)),
        (b"\0\2" + key_of()[2:], b"no value of a group"),  # by its type: group "g", and more
        (b"\0\2\0\1g", b"nor this"),
        (b"\0\6\0\1t\0\0\0\0", None),
        (None, b"no key"),
        (b"", b"no type"),
    ]
    # A group whose name looks like topic and partition: found by their bytes, not by the key.
    others.append((key_of(group="\0\1t\0\0\0\0", topic="x"), b"\x7f\x7f"))
    ours = (b"\0\0" + key_of("old")[2:], value_of(8, version=0))
    write(tmp_path, [data(*others, (key_of(), value_of(6, version=4)), ours), *map(data, others)])
    assert offsets_of(tmp_path) == [("g", 6), ("old", 8)]


def test_segments_that_look_alike(tmp_path: Path) -> None:
    """The same batches at the same places, but for the topic."""
    other = data((key_of(topic="u"), value_of(1)))
    write(tmp_path, [other, commit(2)], [commit(3, group="h"), other], [other, other])
    assert offsets_of(tmp_path) == [("g", 2), ("h", 3)]


def test_compressed_batches(tmp_path: Path) -> None:
    records = [(key_of(f"g{n:03}"), value_of(n)) for n in range(100)]
    for codec in Codec:
        write(tmp_path / codec.name, [data(*records, codec=codec)])
        assert offsets_of(tmp_path / codec.name) == [(f"g{n:03}", n) for n in range(100)]


def test_messages_of_old_formats(tmp_path: Path) -> None:
    for magic in (0, 1):
        messages = [
            Message(0, 0, magic, 0, -1, key_of(), value_of(4, version=1)),
            Message(1, 0, magic, 0, -1, key_of("x"), value_of(5, version=0)),
            Message(2, 0, magic, 0, -1, key_of("x"), None),
        ]
        log_dir = write(tmp_path / str(magic), [])
        log_of(log_dir).write_bytes(b"".join(encode_message(with_crc(each)) for each in messages))
        assert offsets_of(log_dir) == [("g", 4)]


# --- transactions ---------------------------------------------------------------------------------


def test_transactions(tmp_path: Path) -> None:
    write(
        tmp_path,
        [
            commit(1, group="committed", pid=7),
            commit(1, group="aborted", pid=8),
            commit(1, group="pending"),
            commit(2, group="pending", pid=9),
            commit(3, group="committed", pid=7),
        ],
        [marker(8, ABORT), marker(7, COMMIT), marker(7, ABORT), marker(1, COMMIT)],
    )
    assert find(tmp_path).offsets == (
        CommittedOffset("committed", 3, is_pending=False),
        CommittedOffset("pending", 1, is_pending=False),
        CommittedOffset("pending", 2, is_pending=True),
    )


def test_an_older_commit_does_not_overwrite_a_newer_one(tmp_path: Path) -> None:
    """What was committed since the pending one was written stays, whatever the markers' order."""
    write(tmp_path / "plain", [commit(1), commit(50, pid=7), commit(60), marker(7, COMMIT)])
    assert offsets_of(tmp_path / "plain") == [("g", 60)]
    write(tmp_path / "newer", [commit(60), commit(50, pid=7), marker(7, COMMIT)])
    assert offsets_of(tmp_path / "newer") == [("g", 50)]
    both = [commit(50, pid=7), commit(60, pid=8)]
    for order in ((7, 8), (8, 7)):
        log_dir = tmp_path / f"{order}"
        write(log_dir, [*both, *(marker(pid, COMMIT) for pid in order)])
        assert offsets_of(log_dir) == [("g", 60)]
    # In one batch it is the record that counts, not the batch.
    one = data((key_of(), value_of(1)), (key_of(), value_of(2)), pid=7)
    write(tmp_path / "one", [one, marker(7, COMMIT)])
    assert offsets_of(tmp_path / "one") == [("g", 2)]


def test_a_tombstone_removes_what_is_pending_too(tmp_path: Path) -> None:
    log = [commit(5, pid=7), commit(6, pid=8), commit(None), commit(9, pid=8), marker(7, COMMIT)]
    write(tmp_path, log)
    assert find(tmp_path).offsets == (CommittedOffset("g", 9, is_pending=True),)


def test_the_producer_id_makes_a_commit_wait(tmp_path: Path) -> None:
    """As in Kafka's coordinator, which does not look at the transactional flag."""
    write(tmp_path, [commit(5, pid=7, is_transactional=False), commit(6, is_transactional=True)])
    assert find(tmp_path).offsets == (
        CommittedOffset("g", 6, is_pending=False),
        CommittedOffset("g", 5, is_pending=True),
    )


def test_several_open_transactions_of_a_group(tmp_path: Path) -> None:
    write(tmp_path, [commit(9, pid=7), commit(5, pid=8), commit(9, pid=3)])
    assert find(tmp_path).offsets == tuple(CommittedOffset("g", n, True) for n in (5, 9, 9))


def test_control_batches_that_end_nothing(tmp_path: Path) -> None:
    """Compacted to nothing, or of another type."""
    other = marker(7, COMMIT, key=encode_control_key(LEADER_CHANGE))
    write(tmp_path, [commit(5, pid=7), marker(7, COMMIT, records_count=0), other])
    found = find(tmp_path)
    assert found.offsets == (CommittedOffset("g", 5, is_pending=True),)
    assert found.problems == ()


def test_a_marker_that_cannot_be_read(tmp_path: Path) -> None:
    bad = marker(7, COMMIT, key=b"\0")
    write(tmp_path, [commit(5, pid=7), marker(8, COMMIT, key=b""), bad])
    found = find(tmp_path)
    assert found.offsets == (CommittedOffset("g", 5, is_pending=True),)
    (problem,) = found.problems  # the other one ends nothing that is of interest
    assert isinstance(problem, FormatError)
    assert (problem.check_id, problem.path) == ("CTL-1", str(log_of(tmp_path)))
    assert problem.pos == log_of(tmp_path).stat().st_size - len(bad)


# --- damage ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "record, check_id",
    [
        ((b"\0\x63" + key_of()[2:], b""), "COO-2"),
        ((key_of(), b"\0\x63"), "COO-3"),
        ((key_of(), b""), "MSG-1"),
        ((key_of(), value_of(5)[:-1]), "MSG-1"),
        ((b"\0\1\xff\xff" + key_of()[5:], value_of(5)), "MSG-2"),
    ],
)
def test_records_that_cannot_be_understood(
    tmp_path: Path, record: tuple[bytes, bytes], check_id: str
) -> None:
    before, after = commit(3), commit(4, group="h")
    write(tmp_path, [before, data(record), after])
    found = find(tmp_path, image=image_with(0))
    (problem,) = found.problems
    assert isinstance(problem, FormatError)
    assert (problem.check_id, problem.pos) == (check_id, len(before))
    assert problem.path == str(log_of(tmp_path))
    assert [each[:2] for each in found.offsets] == [("g", 3), ("h", 4)]
    assert found.read_partitions == ()
    assert not found.is_complete


def test_a_batch_that_does_not_parse(tmp_path: Path) -> None:
    """Right checksum, wrong records: what comes before the fault counts."""
    records = [Record(0, 0, n, key_of(f"g{n}"), value_of(n), ()) for n in range(2)]
    body = b"".join(map(encode_record, records)) + b"\x7f"
    header = BatchHeader._make((0, 0, 0, 2, 0, 0, 2, 0, 0, -1, -1, -1, 3))
    write(tmp_path, [encode_batch(header, body), commit(9, group="z")])
    found = find(tmp_path)
    assert [each[:2] for each in found.offsets] == [("g0", 0), ("g1", 1), ("z", 9)]
    (problem,) = found.problems
    assert isinstance(problem, CorruptError)
    assert problem.check_id == "BAT-7"


def test_a_batch_with_a_wrong_checksum(tmp_path: Path) -> None:
    batches = [commit(3), commit(4), commit(5, group="h")]
    write(tmp_path, batches)
    log = bytearray(log_of(tmp_path).read_bytes())
    log[len(batches[0]) + 70] ^= 1
    log_of(tmp_path).write_bytes(log)
    found = find(tmp_path, image=image_with(0))
    assert [each[:2] for each in found.offsets] == [("g", 3), ("h", 5)]
    (problem,) = found.problems
    assert isinstance(problem, CorruptError)
    assert (problem.check_id, problem.pos) == ("BAT-1", len(batches[0]))
    assert not found.is_complete


def test_a_torn_tail_is_no_loss(tmp_path: Path) -> None:
    for name, tail in (("torn", commit(4)[:-1]), ("zeros", bytes(100))):
        log_dir = write(tmp_path / name, [commit(3)])
        with log_of(log_dir).open("ab") as file:
            file.write(tail)
        found = find(log_dir, image=image_with(0))
        assert found.is_complete
        assert [each[:2] for each in found.offsets] == [("g", 3)]


def test_many_problems_are_cut_off(tmp_path: Path) -> None:
    for number in (0, 1):
        write(tmp_path, [data(*[(key_of(), b"")] * 70)], number=number)
    assert len(find(tmp_path).problems) == 100


def test_segments_that_cannot_be_opened(tmp_path: Path) -> None:
    write(tmp_path, [commit(3)], [commit(4), commit(5, group="h")])
    log_of(tmp_path).unlink()
    os.mkfifo(log_of(tmp_path))
    found = find(tmp_path)
    assert [each[:2] for each in found.offsets] == [("g", 4), ("h", 5)]
    (problem,) = found.problems
    assert isinstance(problem, AccessError)
    assert problem.path == str(log_of(tmp_path))


@pytest.mark.parametrize("sector", [0, 1, 3])
def test_places_that_cannot_be_read(
    tmp_path: Path, sector: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sector of a dying disk: what lies around it is read."""
    commits = [commit(n, group=f"g{n:02}") for n in range(20)]
    write(tmp_path, commits)
    bad = range(sector * 512, sector * 512 + 512)

    def pread(fd: int, view: memoryview, pos: int) -> int:
        if pos < bad.stop and bad.start < pos + len(view):
            raise OSError(errno.EIO, "Input/output error")
        return os.preadv(fd, [view], pos)

    monkeypatch.setattr(positioned_file, "_preadv", pread)
    found = find(tmp_path, image=image_with(0))
    size = len(commits[0])
    touched = {f"g{n:02}" for n in range(20) if n * size < bad.stop and bad.start < (n + 1) * size}
    lost = {f"g{n:02}" for n in range(20)} - {each.group for each in found.offsets}
    assert touched
    assert lost == touched
    (problem,) = found.problems
    assert isinstance(problem, AccessError)
    assert problem.errno == errno.EIO
    assert not found.is_complete


@pytest.mark.parametrize("fails", [("window",), ("window", "batch")])
@pytest.mark.parametrize("is_shorter", [False, True])
def test_a_file_that_changes_after_its_scan(
    tmp_path: Path, fails: tuple[str, ...], is_shorter: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its batches are read one by one, and what cannot be read then is a problem each."""
    commits = [commit(n, group=f"g{n:02}") for n in range(9)]
    write(tmp_path, commits)
    sizes = {"window": 7777, "batch": len(commits[0])}

    def pread(fd: int, view: memoryview, pos: int) -> int:
        if len(view) not in {sizes[each] for each in fails}:
            return os.preadv(fd, [view], pos)
        if is_shorter:
            return 0
        raise OSError(errno.ESTALE, "Stale file handle")

    monkeypatch.setattr(group_offsets, "WINDOW_BYTES", sizes["window"])
    monkeypatch.setattr(positioned_file, "_preadv", pread)
    found = find(tmp_path)
    if "batch" in fails:
        assert found.offsets == ()
        assert len(found.problems) == 9
    else:
        assert [each[:2] for each in found.offsets] == [(f"g{n:02}", n) for n in range(9)]
        assert found.problems == ()


# --- several partitions, several copies -----------------------------------------------------------


def test_what_is_known_of_the_partitions(tmp_path: Path) -> None:
    for number in (0, 2):
        write(tmp_path, [commit(number)], number=number)
    both = (CommittedOffset("g", 0, False), CommittedOffset("g", 2, False))
    apart = {0: both[:1], 2: both[1:]}
    assert find(tmp_path) == (both, (0, 2), None, (), apart)
    missing = find(tmp_path, image=image_with(0, 1, 2))
    assert missing == (both, (0, 2), 3, (), apart)
    assert not missing.is_complete
    write(tmp_path, [], number=1)
    whole = find(tmp_path, image=image_with(0, 1, 2))
    assert whole == (both, (0, 1, 2), 3, (), {**apart, 1: ()})
    assert whole.is_complete


def test_images_that_do_not_tell(tmp_path: Path) -> None:
    """Without the topic, older than the directories, with holes, or not wholly read."""
    write(tmp_path, [commit(0)], number=0)
    write(tmp_path, [commit(1)], number=1)
    damaged = image_with(0, 1)
    damaged.add_problem(CorruptError("", check_id="BAT-1", pos=0))
    for image in (ClusterImage(), image_with(), image_with(0), image_with(0, 1, 3), damaged):
        found = find(tmp_path, image=image)
        assert (found.read_partitions, found.partitions_count) == ((0, 1), None)
        assert not found.is_complete


def test_a_directory_without_a_log_was_not_read(tmp_path: Path) -> None:
    (tmp_path / "__consumer_offsets-0").mkdir()
    found = find(tmp_path, image=image_with(0))
    assert found[:4] == ((), (), 1, ())
    assert not found.is_complete


def test_of_two_copies_the_one_that_reaches_further(tmp_path: Path) -> None:
    short = write(tmp_path / "short", [commit(3), commit(4, group="short")])
    long = write(tmp_path / "long", [commit(3)], [commit(5), commit(6, group="long")])
    for order in ((short, long), (long, short)):
        found = find(*order, image=image_with(0))
        assert [each[:2] for each in found.offsets] == [("g", 5), ("long", 6)]
        assert found.is_complete


def test_of_two_copies_that_reach_as_far_the_good_one(tmp_path: Path) -> None:
    good = write(tmp_path / "good", [commit(3), commit(4)])
    bad = write(tmp_path / "bad", [commit(3), commit(4)])
    log = bytearray(log_of(bad).read_bytes())
    log[70] ^= 1
    log_of(bad).write_bytes(log)
    for order in ((good, bad), (bad, good)):
        found = find(*order, image=image_with(0))
        assert [each[:2] for each in found.offsets] == [("g", 4)]
        assert found.is_complete
    assert not find(bad, bad, image=image_with(0)).is_complete


def test_a_copy_that_cannot_be_looked_at(tmp_path: Path) -> None:
    """It may reach further: the answer is that of the others, and not complete."""
    good, gone = (write(tmp_path / name, [commit(3)]) for name in ("good", "gone"))
    log_dirs = [read_log_dir(good), read_log_dir(gone)]
    shutil.rmtree(gone / "__consumer_offsets-0")
    found = find_group_offsets(log_dirs, "t", 0, image=image_with(0))
    assert found is not None
    assert [each[:2] for each in found.offsets] == [("g", 3)]
    assert found.read_partitions == (0,)
    assert [type(each) for each in found.problems] == [AccessError]
    assert not found.is_complete
    alone = find_group_offsets(log_dirs[1:], "t", 0, image=image_with(0))
    assert alone is not None
    assert alone[:3] == ((), (), 1)
    # The end of a copy is not known when its last segment does not open.
    log_of(gone).parent.mkdir()
    os.mkfifo(log_of(gone))
    assert [each[:2] for each in find(gone, good).offsets] == [("g", 3)]


def test_below_the_log_start(tmp_path: Path) -> None:
    """As a broker: from the batch with the log start on."""
    write(tmp_path, [commit(3, group="cut"), commit(4), commit(5, group="h")])
    (tmp_path / "log-start-offset-checkpoint").write_text("0\n1\n__consumer_offsets 0 1\n")
    assert offsets_of(tmp_path) == [("g", 4), ("h", 5)]


def test_names_that_are_no_topics(tmp_path: Path) -> None:
    write(tmp_path, [commit(3)])
    for topic in ("", "\ud800", "x" * 70_000):
        assert find(tmp_path, topic=topic)[:4] == ((), (0,), None, ())
    assert find(tmp_path, partition=-1).offsets == ()


# --- anything -------------------------------------------------------------------------------------

GROUPS = ("g", "h", "ключ")
pids = st.sampled_from([-1, -1, 7, 8, 9])
commits = st.tuples(
    pids, st.lists(st.tuples(st.sampled_from(GROUPS), st.integers(-1, 9)), min_size=1, max_size=4)
)
markers = st.tuples(st.sampled_from([7, 8, 9]), st.sampled_from([COMMIT, ABORT]))
logs = st.lists(st.one_of(commits, markers), max_size=25)
slow = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)


def made(log: list[tuple[int, Any]], codec: Codec = Codec.NONE) -> tuple[list[bytes], list[Event]]:
    """Batches and events; -1 stands for a tombstone, which no transaction has in Kafka."""
    batches, events = [], []
    offset = 0
    for pid, what in log:
        if isinstance(what, str):
            batches.append(marker(pid, what))
            events.append(Event(offset, pid, outcome=what))
            offset += 1
            continue
        records = []
        for group, number in what:
            value = None if number < 0 else number
            records.append((key_of(group), None if value is None else value_of(value)))
            events.append(Event(offset, pid, group, value))
            records.append((key_of(group, topic="another"), value_of(99)))
            offset += 2
        batches.append(data(*records, pid=pid, codec=codec))
    return batches, events


@slow
@given(
    log=logs,
    split=st.integers(0, 25),
    codec=st.sampled_from([Codec.NONE, Codec.NONE, Codec.ZSTD]),
    window_bytes=st.sampled_from([60, 150, 400, 1 << 20]),
)
def test_any_log_against_the_definition(
    log: list[tuple[int, Any]],
    split: int,
    codec: Codec,
    window_bytes: int,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    log_dir = tmp_path_factory.mktemp("log")
    batches, events = made(log, codec)
    segments = [batches[:split], batches[split:]] if 0 < split < len(batches) else [batches]
    write(log_dir, *segments)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(group_offsets, "WINDOW_BYTES", window_bytes)
        found = find(log_dir, image=image_with(0))
    assert list(found.offsets) == settle(events)
    assert found.is_complete
    shutil.rmtree(log_dir)


@slow
@given(log=logs, place=st.integers(0, 2**16), change=st.integers(1, 255), many=st.booleans())
def test_any_damage_gives_a_problem_or_the_same(
    log: list[tuple[int, Any]],
    place: int,
    change: int,
    many: bool,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """A batch that follows tells a wrong length from a torn tail."""
    log_dir = tmp_path_factory.mktemp("log")
    batches, events = made(log)
    write(log_dir, [*batches, commit(1, group="last")])
    content = bytearray(log_of(log_dir).read_bytes())
    size = sum(map(len, batches))
    for pos in range(place % max(size, 1), size, 13 if many else size or 1):
        content[pos] ^= change
    log_of(log_dir).write_bytes(content)
    found = find(log_dir)
    if not found.problems:
        rest = [each for each in found.offsets if each.group != "last"]
        assert rest == settle(events)
    shutil.rmtree(log_dir)


@slow
@given(
    log=logs, changes=st.lists(st.tuples(st.integers(0, 2**16), st.integers(1, 255)), max_size=4)
)
def test_damage_under_right_checksums_raises_nothing(
    log: list[tuple[int, Any]],
    changes: list[tuple[int, int]],
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    log_dir = tmp_path_factory.mktemp("log")
    write(log_dir, made(log)[0])
    content = bytearray(log_of(log_dir).read_bytes())
    for place, change in changes if content else ():
        content[place % len(content)] ^= change
    log_of(log_dir).write_bytes(with_right_checksums(content))
    for topic in ("t", ""):  # the bytes of the empty name are in every header
        assert find(log_dir, topic=topic, image=image_with(0)).partitions_count == 1
    shutil.rmtree(log_dir)
