"""Which partition of a topic a record goes to, as Kafka's own producer decides it.

  with a key      the murmur2 hash of the key, its sign bit dropped, modulo the number of partitions
                  (Utils.murmur2, Utils.toPositive, BuiltInPartitioner.partitionForKey)
  with none       one partition until it was given enough bytes, then one that is drawn: uniformly,
                  so it may be the same again (KIP-480, KIP-794, BuiltInPartitioner without load
                  statistics: brokers that answer slowly do not exist here)

A Java client may put off a switch until its batch is full, up to twice the bytes; this one never
does, so that where a record goes depends on the records before it and on nothing else.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import TYPE_CHECKING

from storage.limits import INT32_MAX

if TYPE_CHECKING:
    from collections.abc import Sequence

_SEED = 0x9747B28C
_FACTOR = 0x5BD1E995
_SHIFT = 24
_MASK = 0xFFFFFFFF

_CACHED_KEYS_COUNT = 1 << 16
_CACHED_KEY_BYTES = 256  # a cache must not keep keys of megabytes


def murmur2(data: bytes) -> int:
    """Return the hash as Java has it, a signed 32-bit integer (Utils.murmur2)."""
    unsigned = _murmur2(data)
    return unsigned - (1 << 32) if unsigned > INT32_MAX else unsigned


def partition_for_key(key: bytes, count: int) -> int:
    """Return the partition, of `count`, that the records with this key are in."""
    hashed = _cached_murmur2(key) if len(key) <= _CACHED_KEY_BYTES else _murmur2(key)
    return (hashed & INT32_MAX) % count


def _murmur2(data: bytes) -> int:
    size = len(data)
    words = struct.unpack_from(f"<{size // 4}I", data)
    return _finished(_mixed(_SEED ^ size, words), data[size & ~3 :])


_cached_murmur2 = lru_cache(_CACHED_KEYS_COUNT)(_murmur2)


def _mixed(hashed: int, words: Sequence[int]) -> int:
    """Mix words of four bytes, little-endian, into a hash."""
    for each in words:
        word = each * _FACTOR & _MASK
        hashed = (hashed * _FACTOR ^ (word ^ word >> _SHIFT) * _FACTOR) & _MASK
    return hashed


def _finished(hashed: int, tail: bytes) -> int:
    """Mix the last bytes, fewer than four, into a hash, and then its bits into each other."""
    if tail:
        hashed = (hashed ^ int.from_bytes(tail, "little")) * _FACTOR & _MASK
    hashed = (hashed ^ hashed >> 13) * _FACTOR & _MASK
    return hashed ^ hashed >> 15


class StickyPartitions:
    """Chooses partitions for records without a key.

    The partition after a number of switches follows from the seed and that number alone, whatever
    the version of Python: a producer that goes through the same records again comes to the same
    places.

    Args:
        count: of the topic's partitions.
        seed: another one gives another order.
        switch_bytes: what a partition is given before the next one is drawn (batch.size).
    """

    def __init__(self, count: int, seed: int, switch_bytes: int) -> None:
        if count < 1 or switch_bytes < 1:
            raise ValueError("at least one partition, and one byte for it")
        self._count = count
        self._seed = seed
        self._switch_bytes = switch_bytes
        self._switches = 0  # partitions drawn after the first
        self._bytes = 0  # given to the one drawn last
        self._partition = self._drawn()

    def next_partition(self, record_bytes: int) -> int:
        """Return where a record of that size goes; what fills the partition is still in it."""
        partition = self._partition
        self._bytes += record_bytes
        if self._bytes >= self._switch_bytes:
            self._switches += 1
            self._bytes = 0
            self._partition = self._drawn()
        return partition

    def _drawn(self) -> int:
        drawn = _murmur2(b"%d %d" % (self._seed, self._switches))
        return (drawn & INT32_MAX) % self._count
