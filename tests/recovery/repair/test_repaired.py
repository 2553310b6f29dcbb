"""What a planned repair counts: offsets that are lost and kept, at both ends of a range."""

from __future__ import annotations

import pytest

from recovery.repair.repaired import RemovedRange, Repaired
from recovery.repair.strategies import Strategy
from storage.kernels.protocol import VerdictKind


def repaired(base_offset: int | None, last_offset: int | None) -> Repaired:
    """A repair that keeps offsets 10 to 19 but for this range."""
    lost = RemovedRange(
        path="t-0/00000000000000000010.log",
        start_pos=0,
        end_pos=100,
        base_offset=base_offset,
        last_offset=last_offset,
        kind=VerdictKind.CORRUPT,
        check_id="BAT-3",
        reason="",
    )
    return Repaired("t-0", Strategy.SALVAGE, log_start_offset=10, end_offset=20, lost=(lost,))


@pytest.mark.parametrize(
    ("base_offset", "last_offset", "kept"),
    [(12, 12, 9), (12, 14, 7), (18, None, 8), (18, 25, 8), (None, None, 10)],
)
def test_the_last_offset_of_a_range_is_lost(
    base_offset: int | None, last_offset: int | None, kept: int
) -> None:
    assert repaired(base_offset, last_offset).kept_offsets_count == kept


@pytest.mark.parametrize(
    ("high_watermark", "acknowledged"), [(12, 0), (13, 1), (14, 2), (15, 3), (20, 3), (None, None)]
)
def test_offsets_below_the_high_watermark_were_acknowledged(
    high_watermark: int | None, acknowledged: int | None
) -> None:
    assert repaired(12, 14).acknowledged_lost_count(high_watermark) == acknowledged


@pytest.mark.parametrize(
    ("high_watermark", "below", "is_below"),
    [(15, 4, True), (5, 0, False), (None, None, True)],
)
def test_an_intact_record_below_the_high_watermark_is_a_loss(
    high_watermark: int | None, below: int | None, *, is_below: bool
) -> None:
    found = repaired(None, None)
    [lost] = found.lost
    lost = lost._replace(records_count=4, batches_count=4, acknowledged_records_count=below)
    assert found._replace(lost=(lost,)).loses_below(high_watermark) is is_below
