"""Layouts of many headers and index entries, byte for byte as on disk, and the columns of tables.

Each layout on disk equals a Struct in `storage.formats`, which does not use numpy.
"""

from __future__ import annotations

import numpy as np

from storage.kernels.protocol import HeaderTable

# The columns of a HeaderTable in order.
COLUMN_DTYPES: dict[str, type[np.generic]] = {
    "pos": np.int64,
    "batch_bytes": np.int64,
    "base_offset": np.int64,
    "last_offset": np.int64,
    "partition_leader_epoch": np.int32,
    "magic": np.int8,
    "attributes": np.int16,
    "base_timestamp_ms": np.int64,
    "max_timestamp_ms": np.int64,
    "producer_id": np.int64,
    "producer_epoch": np.int16,
    "base_sequence": np.int32,
    "records_count": np.int32,
    "crc": np.uint32,
    "crc_ok": np.bool_,
}

HEADER_DTYPE = np.dtype(
    [
        ("base_offset", ">i8"),
        ("batch_length", ">i4"),
        ("partition_leader_epoch", ">i4"),
        ("magic", "i1"),
        ("crc", ">u4"),
        ("attributes", ">i2"),
        ("last_offset_delta", ">i4"),
        ("base_timestamp_ms", ">i8"),
        ("max_timestamp_ms", ">i8"),
        ("producer_id", ">i8"),
        ("producer_epoch", ">i2"),
        ("base_sequence", ">i4"),
        ("records_count", ">i4"),
    ]
)

INDEX_ENTRY = np.dtype([("relative_offset", ">i4"), ("segment_pos", ">i4")])
TIME_ENTRY = np.dtype([("timestamp_ms", ">i8"), ("relative_offset", ">i4")])
# Version 0 and the columns of EndedTransactions (TXI-1).
TXN_ENTRY = np.dtype(
    [
        ("version", ">i2"),
        ("producer_id", ">i8"),
        ("first_offset", ">i8"),
        ("last_offset", ">i8"),
        ("last_stable_offset", ">i8"),
    ]
)


def empty_table() -> HeaderTable:
    """Return a table without rows."""
    return HeaderTable._make(np.empty(0, dtype) for dtype in COLUMN_DTYPES.values())
