"""What a crash leaves at the end of a log of producer ids, and what must be damage."""

from __future__ import annotations

import itertools
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.errors import RefusedError
from storage.formats.producer_id_record import FIRST_ID
from storage.writing.producer_ids import DIRECTORY_NAME, ProducerIds
from tests.writing import NOW_MS, TOPIC_ID, NoSyncFileSystem, make_log_dir

if TYPE_CHECKING:
    from pathlib import Path

COUNT = 4


class Context:
    """A log of some leases, and what it becomes."""

    def __init__(self, root: Path) -> None:
        self.log_dir = make_log_dir(root / "log-dir")
        ids = self.open()
        self.ends = [0]
        self.log = self.log_dir / DIRECTORY_NAME / f"{0:020d}.log"
        for n in range(COUNT):
            # The last one reaches over the end of a disk's block.
            ids.acquire(f"app-{n}" + "x" * 400 * (n == COUNT - 1), 1000)
            self.ends.append(self.log.stat().st_size)
        ids.close()
        self.data = self.log.read_bytes()

    def open(self) -> ProducerIds:
        return ProducerIds.at(
            self.log_dir, NoSyncFileSystem(), now_ms=lambda: NOW_MS, topic_id=TOPIC_ID
        )

    def require(self, data: bytes, leases_count: int) -> None:
        """The first leases are there, the log ends behind them, and goes on."""
        self.log.write_bytes(data)
        looking = ProducerIds.at(self.log_dir, None, now_ms=lambda: NOW_MS)
        looking.refresh()
        assert self.log.read_bytes() == data  # who only looks changes nothing
        ids = self.open()
        ids.refresh()
        for each in (looking, ids):
            assert [lease.app_id[:5] for lease in each.leases()] == [
                f"app-{n}" for n in range(leases_count)
            ]
        end = self.ends[leases_count]
        assert self.log.read_bytes() == self.data[:end]
        assert ids.cut_bytes == len(data) - end
        assert ids.acquire("next", 1).producer_id == FIRST_ID + leases_count
        ids.close()

    def require_refused(self, data: bytes, start_pos: int) -> None:
        self.log.write_bytes(data)
        with pytest.raises(RefusedError, match="what was given out cannot be known") as caught:
            self.open().acquire("next", 1)
        assert f"{self.log}: position {start_pos}, offset " in str(caught.value)
        assert "eoctl check" in caught.value.next_step
        assert self.log.read_bytes() == data


@pytest.fixture(scope="module")
def context(tmp_path_factory: pytest.TempPathFactory) -> Context:
    return Context(tmp_path_factory.mktemp("torn"))


@given(st.data())
def test_cut_short_anywhere_in_the_last_batch(context: Context, data: st.DataObject) -> None:
    batch = data.draw(st.integers(0, COUNT - 1))
    context.require(
        context.data[: data.draw(st.integers(context.ends[batch], context.ends[batch + 1] - 1))],
        batch,
    )


@pytest.mark.parametrize("batch, zeros", [*itertools.product(range(COUNT + 1), [1, 18, 61, 5000])])
def test_zeros_at_the_end(context: Context, batch: int, zeros: int) -> None:
    """The size came to the disk and the data did not, or the file was preallocated."""
    context.require(context.data[: context.ends[batch]] + bytes(zeros), batch)


def test_a_block_that_was_not_written(context: Context) -> None:
    start_pos, end = context.ends[-2:]
    block_pos = start_pos // 512 * 512 + 512
    assert block_pos < end - 50
    context.require(context.data[:block_pos] + bytes(end - block_pos), COUNT - 1)
    # No block of a disk begins there.
    broken = context.data[: block_pos - 20] + bytes(20) + context.data[block_pos:]
    context.require_refused(broken, start_pos)


PLACE_BYTES = 8  # of the base offset, which no checksum covers
EPOCH_BYTES = range(12, 16)  # nor the leader epoch


@given(st.data())
def test_any_other_byte_is_damage(context: Context, data: st.DataObject) -> None:
    """Also in the last batch: it was synced and answered."""
    pos = data.draw(st.integers(0, len(context.data) - 1))
    start_pos = max(each for each in context.ends if each <= pos)
    value = data.draw(st.integers(1, 255)) ^ context.data[pos]
    broken = context.data[:pos] + bytes([value]) + context.data[pos + 1 :]
    if pos - start_pos >= PLACE_BYTES and pos - start_pos not in EPOCH_BYTES:
        context.require_refused(broken, start_pos)
        return
    # It is seen at the next batch, or says nothing of what was given out.
    context.log.write_bytes(broken)
    ids = context.open()
    with suppress(RefusedError):
        ids.refresh()
        assert len(ids.leases()) == COUNT
        assert ids.ids.next_lease_id == FIRST_ID + COUNT
    assert context.log.read_bytes() == broken
