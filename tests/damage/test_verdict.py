"""Every fault that is planted for check: what its verdict says is not less than what was found."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from eoctl.commands.shared.check_verdict import lines
from recovery.fsck.verdict import Answer
from recovery.rules.findings import Severity
from tests.cli.test_check_verdict import ONE_LINE, top_of, verdict
from tests.damage.planted import FAULTS

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.damage.planted.shape import Fault


@pytest.mark.share(40)
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_no_fault_is_told_away(fault: Fault, copied: Callable[[Fault], Path]) -> None:
    """A yes stands only where no finding says no; six lines hold, whatever is wrong."""
    log_dir = copied(fault)
    fault.planted_in(log_dir)
    found = verdict(log_dir, is_deep=fault.deep, now="dir")
    shown = top_of(found)
    findings = [each.finding for each in found.listed]
    if found.answer is Answer.YES:
        assert not any(each.broker_action == "refuses to start" for each in findings)
        assert not found.checked.unread_count
    graver = [each for each in findings if each.severity is not Severity.NOTE]
    if graver:
        assert found.call is not None or all(not each.fix for each in graver), shown
        assert not any("nothing: no damaged" in each for each in shown) or not found.damaged
    text = "\n".join(each.text for each in lines(found, ONE_LINE))
    for each in graver[:50]:
        assert each.check_id in text
