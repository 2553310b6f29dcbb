"""All readers over every damaged log dir: one verdict for a place, and sums that come out.

`make matrix` and `make test-all` take every fault, `make test` a share of them: see `tests.drawn`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.damage.conftest import copied as copied  # noqa: PLC0414 - a fixture
from tests.damage.planted import FAULTS
from tests.drawn import drawn
from tests.matrix.allowed import ALLOWED, allowed_in
from tests.matrix.compare import contradictions
from tests.matrix.more_faults import MORE
from tests.matrix.readers import Context, all_said

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.damage.planted.shape import Fault

CHOSEN = [*drawn(FAULTS, 24, "matrix"), *drawn(MORE.all, 4, "matrix, more")]


@pytest.mark.share(6)
@pytest.mark.parametrize("fault", CHOSEN, ids=lambda fault: fault.name)
def test_readers_agree(
    fault: Fault,
    golden: Callable[[str], Path],
    eoctl: Callable[..., Any],
    copied: Callable[[Fault], Path],
    tmp_path: Path,
) -> None:
    """But for what is allowed, all of which occurs."""
    log_dir = copied(fault)
    fault.planted_in(log_dir)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    context = Context(log_dir, golden("kafka-4.3.1") / "clean", scratch, eoctl)
    found = list(contradictions(context, all_said(context)))
    allowed = allowed_in(fault.name)
    bad = [each for each in found if each[:2] not in allowed]
    assert not bad, "\n".join(" | ".join(each) for each in bad)
    assert allowed == {each[:2] for each in found}, "a row of ALLOWED is not needed any more"


def test_rows_are_of_faults() -> None:
    """A fault that was renamed must not leave a row that nothing tests."""
    assert {name for each in ALLOWED for name in each.faults} <= {each.name for each in FAULTS}
