"""Layouts for many at once against the Struct of one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from storage.formats import offset_index, record_batch, time_index, txn_index
from storage.kernels import layouts

if TYPE_CHECKING:
    from struct import Struct


@pytest.mark.parametrize(
    ("struct", "dtype"),
    [
        (record_batch.HEADER, layouts.HEADER_DTYPE),
        (offset_index.ENTRY, layouts.INDEX_ENTRY),
        (time_index.ENTRY, layouts.TIME_ENTRY),
        (txn_index.ENTRY, layouts.TXN_ENTRY),
    ],
)
def test_a_layout_reads_what_its_struct_reads(struct: Struct, dtype: np.dtype[Any]) -> None:
    data = np.random.default_rng(5).bytes(100 * struct.size)  # of both signs in every field
    assert np.frombuffer(data, dtype).tolist() == [*struct.iter_unpack(data)]


def test_a_header_has_the_fields_of_its_value() -> None:
    assert layouts.HEADER_DTYPE.names == record_batch.BatchHeader._fields
