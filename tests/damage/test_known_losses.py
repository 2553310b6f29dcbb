"""What a change of a damaged log dir has lost, `loss` says afterwards: the same offsets, once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.changes import rows_of
from tests.damage.planted import FAULTS

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.damage.planted.shape import Fault
    from tests.running import Outcome

JSONL = ("--output", "jsonl")
COUNTS = ("offsets_count", "records_count")
SINGLE = ("--single-copy", "--now", "dir")
CHANGES = {
    "salvage": ("repair", "--strategy", "salvage", *SINGLE),
    "as-broker": ("repair", "--strategy", "as-broker", *SINGLE),
    "truncate": ("truncate", "--to-offset", "10", "--single-copy"),
}


@pytest.mark.share(12)
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_loss_equals_the_result_of_a_change(
    fault: Fault,
    change: str,
    copied: Callable[[Fault], Path],
    eoctl: Callable[..., Outcome],
) -> None:
    log_dir = copied(fault)
    fault.planted_in(log_dir)
    command, *options = CHANGES[change]
    place = log_dir / fault.partitions[0] if command == "truncate" else log_dir
    before = eoctl("loss", log_dir, *JSONL)
    done = eoctl(command, place, *options, "--apply", *JSONL)
    rows = rows_of(done) if done.status in {0, 1, 5} else []
    if not any(row.get("applied") for row in rows):
        return  # it is refused, or there is nothing to change
    found = rows_of(eoctl("loss", log_dir, *JSONL), "lost")
    by_change = [row for row in found if row["check_id"] == "JNL-3"]
    reported = {name: sum(row[name] or 0 for row in by_change) for name in COUNTS}
    [price] = [row for row in rows if row["kind"] == "price"]
    if command == "truncate":
        offsets_count = price["cut_end_offset"] - price["cut_start_offset"]
        is_counted = price["records_count"] is not None
        assert reported["offsets_count"] == (0 if is_counted else offsets_count), (price, found)
        assert reported["records_count"] == (price["records_count"] or 0), (price, found)
    else:
        assert reported["offsets_count"] == (price["lost_offsets_count"] or 0), (price, found)
        assert reported["records_count"] == price["lost_records_count"], (price, found)
    known = {(row["base_offset"], row["last_offset"]) for row in rows_of(before, "lost")}
    new = {(row["base_offset"], row["last_offset"]) for row in found if row not in by_change}
    assert new <= known, (done.text, found)
