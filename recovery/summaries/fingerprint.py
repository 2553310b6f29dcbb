"""A fingerprint of a piece of log, by ranges of offsets, to compare replicas of one partition.

A replica is a copy batch for batch: offsets, leader epochs and checksums are equal. Each batch is
hashed, and the hashes of all batches whose base offset lies in one bucket of 2^width_bits offsets
are added up: a sum does not care in how many pieces the log was read. There are at most MAX_BUCKETS
buckets, so that two copies which differ can be compared closely where they do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from storage.kernels.protocol import HeaderTable

    Ints = NDArray[np.int64]
    Words = NDArray[np.uint64]

MAX_BUCKETS = 256


class Fingerprint(NamedTuple):
    """Sums of hashes by bucket; `bucket` ascends, buckets without batches are left out."""

    width_bits: int
    bucket: Ints
    hashes: Words
    batches: Ints


def no_fingerprint() -> Fingerprint:
    """Return that of an empty piece."""
    return Fingerprint(
        width_bits=0,
        bucket=np.empty(0, np.int64),
        hashes=np.empty(0, np.uint64),
        batches=np.empty(0, np.int64),
    )


def fingerprint(table: HeaderTable, width_bits: int = 0) -> Fingerprint:
    """Return that of some batches, in buckets of at least 2^width_bits offsets."""
    if not table.row_count:
        return no_fingerprint()
    counts = np.ones(table.row_count, np.int64)
    return _summed(width_bits, table.base_offset >> width_bits, hash_batches(table), counts)


def hash_batches(table: HeaderTable) -> Words:
    """Hash what replicas have in common: offsets, leader epoch, size, and all under the CRC."""
    mixed = _mix(_u64(table.base_offset))
    mixed = _mix(mixed ^ (table.crc.astype(np.uint64) << np.uint64(32)) ^ _u64(table.batch_bytes))
    last, epoch = _u64(table.last_offset), _u64(table.partition_leader_epoch)
    return _mix(mixed ^ (last << np.uint64(20)) ^ epoch)


def _u64(values: NDArray[np.int64] | NDArray[np.int32]) -> Words:
    return values.astype(np.int64).view(np.uint64)


def _mix(values: Words) -> Words:
    """Spread bits: the finalizer of splitmix64 (public domain, S. Vigna)."""
    values = values + np.uint64(0x9E3779B97F4A7C15)
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


def _summed(width_bits: int, bucket: Ints, hashes: Words, counts: Ints) -> Fingerprint:
    """Add up what is in one bucket, and widen the buckets as long as there are too many."""
    if (np.diff(bucket) < 0).any():
        order = np.argsort(bucket, kind="stable")
        bucket, hashes, counts = bucket[order], hashes[order], counts[order]
    while True:
        starts = np.flatnonzero(np.diff(bucket, prepend=bucket[:1] - 1))
        if len(starts) <= MAX_BUCKETS:
            break
        # What is certainly needed at once: a step halves the number of buckets at most.
        step = ((len(starts) - 1) // MAX_BUCKETS).bit_length()
        bucket, width_bits = bucket >> step, width_bits + step
    return Fingerprint(
        width_bits=width_bits,
        bucket=bucket[starts],
        hashes=np.add.reduceat(hashes, starts),
        batches=np.add.reduceat(counts, starts),
    )


def join_fingerprints(left: Fingerprint, right: Fingerprint) -> Fingerprint:
    """Join those of two pieces."""
    if not len(left.bucket) or not len(right.bucket):
        return left if len(left.bucket) else right
    width_bits = max(left.width_bits, right.width_bits)
    return _summed(
        width_bits,
        np.concatenate([each.bucket >> (width_bits - each.width_bits) for each in (left, right)]),
        np.concatenate((left.hashes, right.hashes)),
        np.concatenate((left.batches, right.batches)),
    )


def widened(each: Fingerprint, width_bits: int) -> Fingerprint:
    """Return the same in wider buckets."""
    if not len(each.bucket):
        return each._replace(width_bits=width_bits)
    step = width_bits - each.width_bits
    return _summed(width_bits, each.bucket >> step, each.hashes, each.batches)
