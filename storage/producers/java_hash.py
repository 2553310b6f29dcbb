"""Orders that come out of Java's hash maps, and java.lang.String's hash.

Kafka writes producer snapshots in the iteration order of a java.util.HashMap (rule SNAP-8), its
tools print in such orders, and coordinators pick partitions by String.hashCode.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from storage.limits import INT32_MAX

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

Key = TypeVar("Key")

INITIAL_BUCKETS = 16
TREE_BUCKET_ENTRIES = 8  # an entry more makes a table smaller than 64 grow instead of a tree
MIN_TREE_BUCKETS = 64


def string_hash(text: str) -> int:
    """java.lang.String.hashCode as an unsigned 32-bit number: over UTF-16 code units."""
    value = 0
    units = text.encode("utf-16-be", "surrogatepass")
    for pos in range(0, len(units), 2):
        value = (31 * value + (units[pos] << 8 | units[pos + 1])) & 0xFFFFFFFF
    return value


def coordinator_partition(key: str, count: int) -> int:
    """Which of `count` partitions holds what an internal topic knows of a key.

    Utils.abs(key.hashCode()) % count: the smallest number, whose absolute value does not fit,
    counts as 0.
    """
    unsigned = string_hash(key)
    signed = unsigned - (1 << 32) if unsigned >> 31 else unsigned
    return 0 if signed == -INT32_MAX - 1 else abs(signed) % count


def long_hash(value: int) -> int:
    """java.lang.Long.hashCode as an unsigned 32-bit number."""
    unsigned = value & 0xFFFFFFFFFFFFFFFF
    return (unsigned ^ (unsigned >> 32)) & 0xFFFFFFFF


def spread(key_hash: int) -> int:
    """Fold the upper half of a hash into the lower, as HashMap does before it picks a bucket."""
    return key_hash ^ (key_hash >> 16)


class HashMapCapacity:
    """The number of buckets of a java.util.HashMap while keys come and go; it never shrinks."""

    def __init__(self) -> None:
        self.buckets_count = INITIAL_BUCKETS

    def insert(self, key: Key, present: Collection[Key], key_hash: Callable[[Key], int]) -> None:
        """Account for one new key beside those that are present."""
        if self.buckets_count < MIN_TREE_BUCKETS:
            mask = self.buckets_count - 1
            bucket = spread(key_hash(key)) & mask
            neighbours = sum(spread(key_hash(each)) & mask == bucket for each in present)
            if neighbours >= TREE_BUCKET_ENTRIES:
                self.buckets_count *= 2
        if len(present) + 1 > self.buckets_count * 3 // 4:
            self.buckets_count *= 2
