"""A disk that does not give one sector: every reader tells the whole batch as unreadable, once."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from tests.cli.test_repair import failing
from tests.damage.conftest import copied as copied  # noqa: PLC0414 - a fixture
from tests.damage.planted import layout
from tests.damage.planted.shape import Expected, Fault
from tests.matrix.compare import contradictions, known_places
from tests.matrix.more_faults import LOG
from tests.matrix.readers import Context, all_said

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import pytest

SECTOR_BYTES = 512


def test_readers_agree(
    golden: Callable[[str], Path],
    eoctl: Callable[..., Any],
    copied: Callable[[Fault], Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In one process: another one would read what is on the disk."""
    nothing = Fault("bad-sector", "clean", ("plain-0",), lambda _: Expected("", LOG))
    log_dir = copied(nothing)
    log = log_dir / LOG
    batch, behind = layout.batch_at(log, 3), layout.batch_at(log, 4)
    bad = batch.pos // SECTOR_BYTES * SECTOR_BYTES + 2 * SECTOR_BYTES
    assert batch.pos < bad < bad + SECTOR_BYTES < behind.pos
    for name in ("preadv", "pread"):
        wrapped = failing(getattr(os, name), log, range(bad, bad + SECTOR_BYTES))
        monkeypatch.setattr(os, name, wrapped)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0})
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    context = Context(log_dir, golden("kafka-4.3.1") / "clean", scratch, eoctl)
    said = all_said(context)
    # What a broker would cut there has to be kept first, and cannot be.
    assert said["repair --strategy as-broker"].status == 4
    assert "would empty the whole segment" in said["repair --strategy as-broker"].words
    (place,) = known_places(context, said)
    assert (place.start_pos, place.end_pos) == (batch.pos, behind.pos)
    assert {each.verdict for each in place.reported.values()} <= {"unreadable", None}
    found = list(contradictions(context, said))
    assert not found, "\n".join(" | ".join(each) for each in found)
