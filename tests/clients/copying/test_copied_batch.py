"""Batches that are stamped many at a time, by either kernel, are those stamped one by one."""

from __future__ import annotations

import tempfile
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from hypothesis import given, settings
from hypothesis import strategies as st

from eoctl.clients.copying.copied_batch import run_columns, run_parts, stamp, stamp_run
from eoctl.clients.log.batch_reader import TableBatches
from storage.formats.record_batch import MAX_SEQUENCE, PLACE, increment_sequence
from storage.kernels.numpy_kernel import BulkScan, BulkWindow
from storage.log.segment import open_segment
from storage.writing.batch_run import headers_needed
from storage.writing.record_builder import ProducerIdentity
from tests.bulk_kernels import BULK_KERNELS, demanded
from tests.drawn import examples
from tests.made_logs import logs, with_right_checksums

if TYPE_CHECKING:
    from storage.log.segment import Segment

LEADER_EPOCH = 3


def batches_of(window: BulkWindow, segment: Segment) -> TableBatches:
    """Those of a window, in bytes of their own."""
    table = window.table
    first_pos = int(table.pos[0])
    end = table.end_pos - window.file_pos
    data = memoryview(bytearray(window.buf[first_pos - window.file_pos : end]))
    return TableBatches(table, first_pos, data, segment)


@given(
    data=logs(),
    base_offset=st.sampled_from((0, 5, 2**40)),
    sequence=st.sampled_from((0, 17, MAX_SEQUENCE - 3, MAX_SEQUENCE)),
    start=st.integers(0, 3),
)
@settings(max_examples=examples(60))
def test_stamped_at_once_as_one_by_one(
    data: bytes, base_offset: int, sequence: int, start: int
) -> None:
    identity = ProducerIdentity(2**40, 3, sequence)
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, f"{0:020}.log")
        path.write_bytes(with_right_checksums(data))
        with open_segment(path) as segment:
            for window in BulkScan(segment, resume=False).parts():
                if not isinstance(window, BulkWindow) or window.table.row_count <= start:
                    continue
                for kernel in BULK_KERNELS:
                    with demanded(kernel):
                        check(window, segment, start, identity, base_offset)


def check(
    window: BulkWindow, segment: Segment, start: int, identity: ProducerIdentity, base_offset: int
) -> None:
    batches = batches_of(window, segment)[start:]
    run = stamp_run(batches, identity, base_offset, LEADER_EPOCH)
    assert run.columns == run_columns(batches.table)
    parts = [*run_parts(batches.table)]
    assert [[*chain.from_iterable(column)] for column in zip(*parts, strict=True)] == [*run.columns]
    expected, headers = bytearray(), []
    for each in batches_of(window, segment)[start:]:
        header, made = stamp(each, identity)
        header = header._replace(base_offset=base_offset, partition_leader_epoch=LEADER_EPOCH)
        made = bytearray(made)
        PLACE.pack_into(made, 0, *header[:3])
        expected += made
        headers.append(header._replace(crc=0))
        count = header.records_count
        base_offset += count
        sequence = increment_sequence(identity.base_sequence, count)
        identity = identity._replace(base_sequence=sequence)
    assert bytes(run.data) == bytes(expected)
    wanted = [headers[place] for place in headers_needed(len(headers))]
    found = [each._replace(crc=0) for each in run.headers]
    assert [each.base_offset for each in found] == [each.base_offset for each in wanted]
    assert [each.base_sequence for each in found] == [each.base_sequence for each in wanted]
    assert [each.producer_id for each in found] == [each.producer_id for each in wanted]
