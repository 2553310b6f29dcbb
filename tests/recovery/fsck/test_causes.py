"""Which findings follow from which: as the plain definition says, also of very many."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import given, settings
from hypothesis import strategies as st

from recovery.fsck import verdict
from recovery.fsck.verdict import PlacedFinding, fold, segment_of
from recovery.rules.findings import Finding, Severity
from tests.drawn import examples

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest


def finding(check_id: str, segment: int | None, offset: int | None) -> Finding:
    name = "leader-epoch-checkpoint" if segment is None else f"{segment:020d}.log"
    return Finding(
        check_id=check_id,
        severity=Severity.ERROR,
        path=f"t-0/{name}",
        message="",
        topic="t",
        partition=0,
        base_offset=offset,
    )


def is_because(one: Finding, cause: Finding) -> bool:
    segment, damaged = segment_of(one.path), segment_of(cause.path)
    if segment is not None and damaged is not None and segment < damaged:
        return False
    return (
        one.base_offset is None or cause.base_offset is None or one.base_offset >= cause.base_offset
    )


NUMBERS = st.none() | st.integers(0, 9)
FINDINGS = st.builds(
    finding, st.sampled_from(["BAT-1", "SEG-6", "OFS-3", "IDX-3", "EPC-2"]), NUMBERS, NUMBERS
)


@settings(max_examples=examples(200))
@given(st.lists(FINDINGS, max_size=12))
def test_the_nearest_cause_is_found(found: list[Finding]) -> None:
    known = [each for each in found if each.check_id in verdict.CAUSES]
    known.sort(key=lambda one: (one.check_id == "OFS-3", -(one.base_offset or 0)))
    expected = [
        next((one for one in known if is_because(each, one)), None)
        for each in found
        if each.check_id in verdict.CONSEQUENCES
    ]
    folded = fold(PlacedFinding("t-0", each) for each in found)
    assert sum(len(each.consequences) for each in folded) == len([e for e in expected if e])
    for each in folded:
        for one in each.consequences:
            assert next(cause for cause in known if is_because(one, cause)) == each.finding


def test_very_many_are_looked_at_once_each(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    count = 2000
    calls = 0

    def counting(path: str, segment: Callable[[str], int | None] = segment_of) -> int | None:
        nonlocal calls
        calls += 1
        return segment(path)

    monkeypatch.setattr(verdict, "segment_of", counting)
    found = [finding(name, each, each) for each in range(count) for name in ("BAT-1", "IDX-3")]
    folded = fold(PlacedFinding("t-0", each) for each in found)
    assert [len(each.consequences) for each in folded] == [1] * count
    assert calls == 2 * count
