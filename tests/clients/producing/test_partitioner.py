"""The partition of a record: Kafka's own hash, and one partition at a time without a key."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eoctl.clients.producing.topic_producer import StickyPartitions, murmur2, partition_for_key


@pytest.mark.parametrize(
    ("key", "wanted"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_the_hashes_that_kafka_knows(key: bytes, wanted: int) -> None:
    """The cases of Kafka's own UtilsTest."""
    assert murmur2(key) == wanted
    assert partition_for_key(key, 7) == (wanted & 0x7FFFFFFF) % 7


def test_bytes_are_not_signed() -> None:
    """Printed by Kafka 4.3.1; a sign that spreads would show in every one but the first."""
    wanted = [275646681, -311467685, -1642832928, 1548199422, 644171429]
    assert [murmur2(b"\xff" * size) for size in range(5)] == wanted


@given(st.binary(max_size=40) | st.binary(min_size=250, max_size=260), st.integers(1, 2**31 - 1))
def test_short_and_long_keys(key: bytes, count: int) -> None:
    """Hashes of short keys are remembered, those of long ones are not."""
    for _ in range(2):
        assert partition_for_key(key, count) == (murmur2(key) & 0x7FFFFFFF) % count


# --- records without a key ------------------------------------------------------------------------


@given(
    st.integers(1, 5), st.integers(0, 2**64), st.integers(1, 300),
    st.lists(st.integers(0, 200), max_size=60),
)  # fmt: skip
def test_one_partition_until_it_has_enough(
    count: int, seed: int, switch_bytes: int, sizes: list[int]
) -> None:
    """Which one comes next depends on how many came before, not on what they were given."""
    sticky = StickyPartitions(count, seed, switch_bytes)
    switching = StickyPartitions(count, seed, 1)  # with every record
    wanted, given_bytes = switching.next_partition(1), 0
    assert 0 <= wanted < count
    for size in sizes:
        assert sticky.next_partition(size) == wanted
        given_bytes += size
        if given_bytes >= switch_bytes:
            wanted, given_bytes = switching.next_partition(1), 0
            assert 0 <= wanted < count


@pytest.mark.parametrize("count", [1, 2, 3, 10])
def test_partitions_are_drawn_evenly(count: int) -> None:
    for seed in (0, 1, 12345):
        sticky = StickyPartitions(count, seed, 1)
        drawn = [sticky.next_partition(1) for _ in range(10_000)]
        shares = Counter(drawn)
        assert all(abs(shares[n] * count / 10_000 - 1) < 0.15 for n in range(count))
        again = sum(one == other for one, other in pairwise(drawn))
        assert abs(again * count / 10_000 - 1) < 0.15
    assert count == 1 or drawn != [StickyPartitions(count, 0, 1).next_partition(1)] * 10_000


def test_nothing_to_choose_from() -> None:
    for count, switch_bytes in ((0, 1), (1, 0)):
        with pytest.raises(ValueError, match="at least one"):
            StickyPartitions(count, 0, switch_bytes)
