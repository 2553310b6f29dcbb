"""Who a record is: 16 bytes of key, by which the audit knows it on the disk again.

pos  width  type    meaning
  0      8  uint64  the run: drawn for each run of a cell
  8      8  uint64  which of its records, from 0 on

The value is 1,000 seeded bytes, which do not compress.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from storage.kernels.record_table import RecordTable

KEY = Struct(">QQ")
KEY_BYTES = 16
SEQUENCE_POS = 8
POOL_COUNT = 256  # different values, used in turn


def values_pool(seed: int, value_bytes: int) -> list[bytes]:
    """Give the values of one seed."""
    data = np.random.default_rng(seed).bytes(POOL_COUNT * value_bytes)
    return [data[pos : pos + value_bytes] for pos in range(0, len(data), value_bytes or 1)] or [b""]


def sequence_of(key: bytes | None, run_key: int) -> int | None:
    """Tell which record of a run a key belongs to; None: it is not of this run."""
    if key is None or len(key) != KEY_BYTES:
        return None
    run, sequence = KEY.unpack(key)
    return int(sequence) if run == run_key else None


def sequences_in(records: RecordTable, run_key: int) -> tuple[NDArray[np.int64], int]:
    """Give the sequences of the records of a run in a table, and how many others are there."""
    own = records.key_bytes == KEY_BYTES
    pos = records.key_pos[own]
    if not len(pos):
        return np.empty(0, np.int64), records.row_count
    source = np.asarray(records.source)
    keys = np.ascontiguousarray(source[pos[:, None] + np.arange(KEY_BYTES)]).view(">u8")
    is_ours = keys[:, 0] == np.uint64(run_key)
    found = keys[is_ours, 1].astype(np.int64)
    return found, records.row_count - len(found)
