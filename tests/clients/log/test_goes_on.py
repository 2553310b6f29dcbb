"""A walk that goes on where it came to holds what is new there against what was there before."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from eoctl.clients.log import log_walk
from eoctl.clients.log.batch_reader import BatchReader
from eoctl.clients.log.consumer import LogReader
from eoctl.clients.log.log_walk import DamageError
from eoctl.serve.logs.verified_batches import WireWalk
from storage.dirs.discovery import select_partition
from storage.dirs.partition import Partition
from storage.formats.legacy_message import MAGIC_V1, Message, encode_message, with_crc
from storage.formats.record import Record
from tests.batches import encoded_batch

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from eoctl.clients.log.log_walk import LogWalk

READERS = [LogReader, BatchReader, WireWalk]
SIZES = [0, 1 << 62]  # in bulk; one by one
WALKED = 3  # batches that are there when it begins


def plain(offset: int) -> bytes:
    return encoded_batch(offset, [Record(0, 0, each, None, b"v", ()) for each in range(2)])


def legacy(offset: int) -> bytes:
    """One message of format v1, which has one offset."""
    message = Message(offset + 1, 0, MAGIC_V1, 0, 0, None, b"v")
    return encode_message(with_crc(message))


class Going:
    """A log that grows, and what reads on."""

    def __init__(
        self, directory: Path, kind: Any, make: Callable[[int], bytes], least: int
    ) -> None:
        self._log = directory / f"{0:020d}.log"
        self._make = make
        directory.mkdir()
        self._log.write_bytes(b"".join(make(2 * each) for each in range(WALKED)))
        self.partition = Partition.of(select_partition(directory))
        self.reader: LogWalk[Any] = kind(self.partition, 0)

    def append(self, *offsets: int) -> None:
        with self._log.open("ab") as file:
            for each in offsets:
                file.write(self._make(each))
        self.partition.refresh()

    def read(self, end_offset: int = 1 << 40) -> int:
        """Read to the end; returns where that is."""
        for _ in self.reader.read(end_offset):
            pass
        return self.reader.next_offset


@pytest.fixture(params=SIZES)
def least(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(log_walk, "BULK_MIN_BYTES", request.param)
    return int(request.param)


@pytest.mark.parametrize("kind", READERS)
@pytest.mark.parametrize("make", [plain, legacy])
def test_a_new_batch_with_an_offset_that_was_there_is_damage(
    tmp_path: Path, kind: Any, make: Callable[[int], bytes], least: int
) -> None:
    """Its records are new, and would be passed over for old ones."""
    going = Going(tmp_path / "t-0", kind, make, least)
    assert going.read() == 2 * WALKED
    going.append(2, 2 * WALKED + 2)
    with pytest.raises(DamageError) as caught:
        going.read()
    assert caught.value.check_id == "BAT-3"
    assert caught.value.damage.base_offset == 2 * WALKED


@pytest.mark.parametrize("kind", READERS)
@pytest.mark.parametrize("make", [plain, legacy])
def test_what_goes_on_well_is_given_once(
    tmp_path: Path, kind: Any, make: Callable[[int], bytes], least: int
) -> None:
    """Also where the end was in front of batches that were there, as a high watermark is."""
    going = Going(tmp_path / "t-0", kind, make, least)
    if kind is not WireWalk:  # its windows are not cut
        assert going.read(2) == 2
        assert going.read(4) == 4
    assert going.read() == 2 * WALKED
    going.append(2 * WALKED, 2 * WALKED + 2)
    assert going.read() == 2 * WALKED + 4
    going.append(2 * WALKED + 8)  # behind a gap
    assert going.read() == 2 * WALKED + 10
    assert (going.reader.skipped, going.reader.noted, going.reader.tail) == ([], [], [])


@pytest.mark.parametrize("kind", [LogReader, WireWalk])
def test_behind_damage_that_was_told_it_is_not_told_again(
    tmp_path: Path, kind: Any, least: int
) -> None:
    going = Going(tmp_path / "t-0", lambda *of: kind(*of, skip_corrupt=True), plain, least)
    log = tmp_path / "t-0" / f"{0:020d}.log"
    with log.open("ab") as file:
        file.write(plain(2 * WALKED)[:-1] + b"?")
    going.partition.refresh()
    assert going.read() == 2 * WALKED
    going.reader.finish()
    assert len(going.reader.skipped) == 1
    going.append(2, 2 * WALKED + 4)
    assert going.read() == 2 * WALKED + 6
    kinds = [each.check_id for each in going.reader.skipped]
    assert kinds[1:] == ["BAT-3"], going.reader.skipped
