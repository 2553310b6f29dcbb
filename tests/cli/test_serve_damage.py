"""Damaged copies of real directories: what is served of them is what `export` and `consume` give.

Nothing is lost in silence either: what is not given is told. Damage is drawn by the seed of the run.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from eoctl.clients.log.consumer import ConsumeOptions, Consumer
from eoctl.clients.log.log_walk import DamageError
from eoctl.commands.serve import ServeOptions, open_catalogue
from eoctl.serve.connection import answer
from eoctl.serve.logs.verified_batches import SentBytes
from eoctl.serve.state.broker import Client, VirtualBroker
from eoctl.serve.state.catalogue import Catalogue, ServeRules
from eoctl.serve.state.members import Members
from recovery.transactions.isolation import Isolation
from storage.dirs.discovery import discover
from storage.errors import AccessError
from storage.formats.record import Record
from tests import wire
from tests.batches import encoded_batch
from tests.transaction_logs import damaged, example, index_of, write

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.running import Outcome

    Eoctl = Callable[..., Outcome]

CLIENT = Client(name="", address="", host="", port=0)
SECTOR = 512
DRAWN = 12  # of each kind
Batches = list[wire.Batch]


# --- damage


def flip_bytes(logs: list[Path], draw: Random) -> None:
    """Somewhere in batches: their headers, or their records."""
    log = draw.choice(logs)
    data = bytearray(log.read_bytes())
    for batch in draw.sample(starts_in(data), k=min(3, len(starts_in(data)))):
        data[batch + draw.randrange(62)] ^= 1 << draw.randrange(8)
    for _ in range(2):
        data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
    log.write_bytes(data)


def starts_in(data: bytes) -> list[int]:
    found, pos = [], 0
    for batch in wire.batches_in(bytes(data)):
        found.append(pos)
        pos += len(batch.data)
    return found


def zero_block(logs: list[Path], draw: Random) -> None:
    log = draw.choice(logs)
    data = bytearray(log.read_bytes())
    count = SECTOR * draw.randint(1, 16)
    start = draw.randrange(len(data)) // SECTOR * SECTOR
    count = min(count, len(data) - start)
    data[start : start + count] = bytes(count)
    log.write_bytes(data)


def tear_end(logs: list[Path], draw: Random) -> None:
    os.truncate(logs[-1], logs[-1].stat().st_size - draw.randint(1, 300))


def cut(logs: list[Path], draw: Random) -> None:
    """Any segment, anywhere."""
    log = draw.choice(logs)
    os.truncate(log, draw.randrange(1, log.stat().st_size))


def empty(logs: list[Path], draw: Random) -> None:
    os.truncate(draw.choice(logs), 0)


def remove(logs: list[Path], draw: Random) -> None:
    draw.choice(logs).unlink()


def be_unreadable(logs: list[Path], draw: Random) -> None:
    log = draw.choice(logs)
    log.unlink()
    log.symlink_to(log.with_name("gone"))


def be_a_pipe(logs: list[Path], draw: Random) -> None:
    log = draw.choice(logs)
    log.unlink()
    os.mkfifo(log)


DAMAGE = (flip_bytes, zero_block, tear_end, cut, empty, remove, be_unreadable, be_a_pipe)


# --- what is served, without a process


class Here:
    """A directory that is served within this process."""

    def __init__(self, log_dir: Path, *, skips: bool) -> None:
        self.reported: list[str] = []
        self.aborted: set[tuple[int, int]] = set()  # producer id, first offset
        self.stable_offset = -1
        options = ServeOptions(ServeRules(skips_damage=skips))
        self.catalogue: Catalogue = open_catalogue(discover([str(log_dir)]), options)
        self.catalogue.report = self.reported.append

    def fetch(
        self, broker: VirtualBroker, topic: str, offset: int, *, is_committed: bool = False
    ) -> tuple[int, Batches, int]:
        """Error, batches, high watermark."""
        where = {"partition": 0, "fetchOffset": offset, "partitionMaxBytes": 1 << 16}
        body = {
            "minBytes": 0,
            "isolationLevel": int(is_committed),
            "topics": [{"topic": topic, "partitions": [where]}],
        }
        request = wire.encoded(wire.api_named("Fetch"), 11, body)
        found, _ = asyncio.run(answer(broker, request, CLIENT, lambda: False))
        assert found is not None
        assert found.fetched is not None
        data = b"".join(
            piece.data
            if piece.file is None or piece.batches is None
            else b"".join(iter(SentBytes(piece.file, piece.batches).read, b""))
            for _, piece in found.fetched.pieces()
        )
        found.fetched.close()
        ((answered,),) = (each["partitions"] for each in found.fetched.value["responses"])
        self.stable_offset = answered["lastStableOffset"]
        aborted = answered["abortedTransactions"] or ()
        self.aborted |= {(each["producerId"], each["firstOffset"]) for each in aborted}
        return answered["errorCode"], wire.batches_in(data), answered["highWatermark"]

    def read(self, topic: str, *, is_committed: bool = False) -> tuple[Batches, list[int]]:
        """All batches that a client comes to who looks behind every error; where they were."""
        served = self.catalogue.find(topic, 0)
        assert served is not None
        try:
            bounds = served.log.bounds()
        except AccessError:  # of all that there is
            return [], [0]
        offset, found, errors = bounds.start_offset, [], []
        with ThreadPoolExecutor(1) as executor:
            broker = VirtualBroker(self.catalogue, Members(), executor)
            while offset < bounds.end_offset:
                code, batches, _ = self.fetch(broker, topic, offset, is_committed=is_committed)
                if batches:
                    found += [each for each in batches if each.header.last_offset >= offset]
                    offset = batches[-1].header.last_offset + 1
                elif code:
                    errors.append(offset)
                    offset += 1
                else:
                    break
        return found, errors

    def lost(self, topic: str) -> list[tuple[int, int | None]]:
        """What was told to be missing, both ends included; None: to the end."""
        served = self.catalogue.find(topic, 0)
        assert served is not None
        log = served.log
        damage = [*log.skipped.values(), *(each.damage for each in log.met.values())]
        found = [(each.base_offset, each.last_offset) for each in (*damage, *log.missing)]
        # Damage that has no room for a record ends before it begins: nothing is missing.
        found = [each for each in found if each[1] is None or each[0] <= each[1]]
        unread = [each.path for each in log.partition.problems if isinstance(each, AccessError)]
        return found + [(int(Path(each).stem), None) for each in unread]


def moved(given: Batches, on_disk: Batches) -> Batches:
    """The batches that were given at another offset, which nothing contradicts, as they were before.

    So it may be beside a batch that is damaged, and at the end of the log: a gap is legal. `check`
    tells of them by the indexes.
    """
    given_at = {each.header.crc: each.header.base_offset for each in given}
    found = []
    for number, each in enumerate(on_disk):
        around = [*on_disk[max(number - 1, 0) : number], *on_disk[number + 1 : number + 2]]
        is_at_gap = number == len(on_disk) - 1 or any(
            other.header.crc not in given_at for other in around
        )
        if is_at_gap and given_at.get(each.header.crc) not in (None, each.header.base_offset):
            found.append(each)
    return found


def records(batches: Batches, path: Path) -> list[int]:
    """Offsets of the records of data batches."""
    from storage.log.segment import open_segment

    log = path / f"{0:020d}.log"
    log.write_bytes(b"".join(each.data for each in batches))
    with open_segment(log, base_offset=None) as segment:
        return [
            record.offset
            for batch in segment.scan(verify_crc=True)
            if not batch.header.is_control
            for record in segment.records(batch)
        ]


def consumed(path: Path, *, skips: bool) -> tuple[list[int], bool]:
    """What `consume` gives; whether it ended at damage."""
    options = ConsumeOptions(isolation=Isolation("read_uncommitted"), skip_corrupt=skips)
    consumer = Consumer(str(path), options, lambda _: None)
    found: list[int] = []
    try:
        consumer.start()
        for each in consumer.records():
            if each is not None:
                found += each.lists().offsets
    except DamageError:
        return found, True
    return found, False


def exported(eoctl: Eoctl, path: Path, to: Path) -> tuple[list[int], list[tuple[int, int]]]:
    """What `export` gives; what it lists as lost, both ends included, where both are known."""
    done = eoctl("export", path, "--to", to, "--format", "jsonl", "--jobs", 1)
    assert done.status in (0, 1, 5), done.errors
    rows: list[dict[str, Any]] = []
    for each in to.glob("topic=*/*/*.jsonl"):
        rows += [json.loads(line) for line in each.read_text().split("\n") if line]
    lost = [json.loads(line) for line in (to / "_lost.jsonl").read_text().splitlines()]
    bounds = [(row["base_offset"], row["last_offset"]) for row in lost]
    return sorted(row["offset"] for row in rows), [each for each in bounds if None not in each]


def cases() -> Iterator[Any]:
    for topic in ("plain", "txn", "rolled"):
        for damage in DAMAGE:
            for number in range(DRAWN):
                yield pytest.param(topic, damage, number, id=f"{topic}-{damage.__name__}-{number}")


@pytest.mark.share(6)
@pytest.mark.parametrize(("topic", "damage", "number"), [*cases()])
def test_what_is_served_of_a_damaged_log(
    golden: Callable[[str], Path],
    eoctl: Eoctl,
    tmp_path: Path,
    topic: str,
    damage: Callable[[list[Path], Random], None],
    number: int,
) -> None:
    log_dir = tmp_path / "log-dir"
    source = golden("kafka-4.3.1") / "clean"
    log_dir.mkdir()
    for each in source.iterdir():
        if each.is_file():
            shutil.copy(each, log_dir)
    path = log_dir / f"{topic}-0"
    shutil.copytree(source / path.name, path)
    logs = sorted(path.glob("*.log"))
    on_disk = [each for log in logs for each in wire.batches_in(log.read_bytes())]
    work = tmp_path / "work"
    work.mkdir()
    everything = records(on_disk, work)
    damage(logs, Random(f"{os.environ['EOCTL_SEED']} {topic} {damage.__name__} {number}"))

    skipping = Here(log_dir, skips=True)
    batches, errors = skipping.read(topic)
    given = records(batches, work)
    is_all = errors == [0] and len(logs) == 1 and damage in (be_unreadable, be_a_pipe)
    assert is_all or errors == []  # an error to everybody who asks is not silent
    assert given == consumed(path, skips=True)[0]
    assert given == exported(eoctl, path, tmp_path / "exported")[0]
    lost = skipping.lost(topic)
    elsewhere = records(moved(batches, on_disk), work)
    silent = [
        each
        for each in everything
        if each not in {*given, *elsewhere}
        and not any(base <= each and (last is None or each <= last) for base, last in lost)
    ]
    assert is_all or not silent, lost

    stopping = Here(log_dir, skips=False)
    batches, errors = stopping.read(topic)
    assert records(batches, work) == given
    before, is_stopped = consumed(path, skips=False)
    assert [each for each in given if not errors or each < errors[0]] == before
    assert is_stopped == bool(errors)


@pytest.mark.parametrize("how", ["flip", "cut"])
@pytest.mark.parametrize("index", ["intact", "none"])
def test_an_unknown_outcome_stops_or_is_withheld(tmp_path: Path, how: str, index: str) -> None:
    """The COMMIT of offsets 10 to 14 is gone; 15 and 16 are committed, 18 to 20 aborted."""
    log = example(0, "commit", "abort")
    batches, _ = damaged(log, 3, how)
    path = write(tmp_path / "made", log, batches, index_of(log.batches) * (index == "intact"))
    data = [*range(10), *([*range(10, 15)] if index == "intact" else []), 15, 16, *range(23, 28)]

    skipping = Here(path.parent, skips=True)
    found, errors = skipping.read("t", is_committed=True)
    assert (records(found, tmp_path), errors) == (data, [])
    assert any("unknown outcome" in each for each in skipping.reported) == (index == "none")

    found, _ = Here(path.parent, skips=False).read("t", is_committed=True)
    if index == "none":
        assert records(found, tmp_path) == [*range(10)]
    else:
        assert records(found, tmp_path) == data
    found, _ = Here(path.parent, skips=True).read("t")
    assert records(found, tmp_path) == [*range(17), *range(18, 21), *range(23, 28)]


def test_a_wrong_offset_behind_damage_is_seen_from_within(
    golden: Callable[[str], Path], tmp_path: Path
) -> None:
    """Two damaged batches, and one whose offset alone is wrong, asked for offset by offset."""
    shutil.copytree(golden("kafka-4.3.1") / "clean" / "plain-0", tmp_path / "log-dir" / "plain-0")
    log = tmp_path / "log-dir" / "plain-0" / f"{0:020d}.log"
    data = bytearray(log.read_bytes())
    for pos in (9376 + 2, 9376 + 1449, 12155 + 820, 15133 + 7):
        data[pos] ^= 4
    log.write_bytes(data)
    skipped, _ = Here(tmp_path / "log-dir", skips=True).read("plain")
    found, _ = Here(tmp_path / "log-dir", skips=False).read("plain")
    assert [each.header.base_offset for each in found] == [
        each.header.base_offset for each in skipped
    ]


def test_what_is_appended_is_held_against_what_was_there(
    golden: Callable[[str], Path], tmp_path: Path
) -> None:
    """A new batch with the offset of an older one is damage, and not what a client has already."""
    shutil.copytree(golden("kafka-4.3.1") / "clean" / "plain-0", tmp_path / "log-dir" / "plain-0")
    log = tmp_path / "log-dir" / "plain-0" / f"{0:020d}.log"
    here = Here(tmp_path / "log-dir", skips=False)
    before, errors = here.read("plain")
    assert errors == []
    served = here.catalogue.find("plain", 0)
    assert served is not None
    end_offset = served.log.bounds().end_offset
    served.log.renew()
    value = [Record(0, 0, 0, None, b"new", ())]
    with log.open("ab") as file:
        file.write(encoded_batch(end_offset - 2, value))  # it should have the end for its offset
        file.write(encoded_batch(end_offset + 1, value))
    assert served.log.renew()
    assert served.log.bounds().end_offset == end_offset + 2
    batches, errors = here.read("plain")
    assert errors == [end_offset]
    assert [each.header.base_offset for each in batches[len(before) :]] == [end_offset + 1]


@pytest.mark.parametrize("wrong", [5089, 3])
def test_records_at_a_wrong_offset_are_lost_to_all_readers(
    golden: Callable[[str], Path], eoctl: Eoctl, tmp_path: Path, wrong: int
) -> None:
    """Who took them would take them for other records: to everybody they are damage."""
    path = tmp_path / "log-dir" / "plain-0"
    shutil.copytree(golden("kafka-4.3.1") / "clean" / "plain-0", path)
    log = path / f"{0:020d}.log"
    data = bytearray(log.read_bytes())
    work = tmp_path / "work"
    work.mkdir()
    everything = records(wire.batches_in(bytes(data)), work)
    place = next(
        each for each in starts_in(data) if data[each : each + 8] == (89).to_bytes(8, "big")
    )
    data[place : place + 8] = wrong.to_bytes(8, "big")
    log.write_bytes(data)
    rows, lost = exported(eoctl, path, tmp_path / "exported")
    batches, errors = Here(tmp_path / "log-dir", skips=False).read("plain")
    given = records(batches, work)
    assert given == [each for each in everything if each not in range(89, 108)]
    assert rows == given
    assert lost == [(89, 107)]
    assert errors == [*range(89, 108)]
    assert given == consumed(path, skips=True)[0]
    skipping = Here(tmp_path / "log-dir", skips=True)
    assert records(skipping.read("plain")[0], work) == given
    assert skipping.lost("plain") == [(89, 107)]
