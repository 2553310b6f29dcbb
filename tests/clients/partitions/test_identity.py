"""Producer ids of our own: whose they can never be, and that JSON readers keep all digits of them."""

from __future__ import annotations

from itertools import islice

from eoctl.clients.partitions.identity import (
    COPY_IDS,
    OWN_IDS,
    SESSION_IDS,
    derived_id,
    random_producer_ids,
    run_ids,
)
from storage.formats.producer_id_record import END_ID, FIRST_ID


def test_no_range_touches_another_one() -> None:
    ranges = [range(FIRST_ID, END_ID), OWN_IDS, SESSION_IDS, COPY_IDS]
    ends = [0]
    for each in ranges:
        assert ends[-1] <= each.start < each.stop
        ends.append(each.stop)
    assert ends[-1] == 2**53
    assert float(ends[-1] - 1) == ends[-1] - 1


def test_an_id_is_that_of_its_partitions_and_their_end() -> None:
    cases = [(["t-0"], 5), (["t-1"], 5), (["t-0"], 6), (["t-0", "t-1"], 5), (["u-0"], 5)]
    found = [next(run_ids(names, end_offset)) for names, end_offset in cases]
    assert len(set(found)) == len(cases)
    assert all(each in OWN_IDS for each in found)
    assert next(run_ids(["t-1", "t-0"], 5)) == found[3]


def test_ids_are_drawn_and_derived_from_all_of_their_range() -> None:
    drawn = {*islice(random_producer_ids(), 200)}
    assert len(drawn) == 200
    assert all(each in SESSION_IDS for each in drawn)
    derived = [derived_id(number, COPY_IDS) for number in range(2000)]
    assert all(each in COPY_IDS for each in derived)
    middle = (COPY_IDS.start + COPY_IDS.stop) // 2
    assert 800 < sum(each < middle for each in derived) < 1200
