"""Verdicts: what readers make of each kind, and of one that they do not know yet."""

from __future__ import annotations

from storage.dirs.lookup import END_KINDS
from storage.kernels.protocol import VerdictKind
from storage.places.log_reader import ReadFinding, gone

ENDS = {VerdictKind.TORN_TAIL, VerdictKind.PREALLOCATED}
HARMLESS = {VerdictKind.OK, VerdictKind.SUSPICIOUS}


def test_what_is_not_known_to_be_harmless_is_damage() -> None:
    for kind in VerdictKind:
        assert kind.is_end == (kind in END_KINDS) == (kind in ENDS)
        assert kind.is_damage == (kind not in ENDS | HARMLESS)
    unknown = str.__new__(VerdictKind, "unknown")
    assert unknown.is_damage


def test_a_finding_is_corrupt_unless_it_has_a_status_of_its_own() -> None:
    others = {VerdictKind.UNREADABLE, VerdictKind.MISSING}
    for kind in VerdictKind:
        found = ReadFinding("0.log", 0, 1, kind=str(kind), check_id="", reason="")
        assert found.is_corrupt == (kind.is_damage and kind not in others)
    assert not gone("0.log").is_corrupt


def test_the_worst_verdict_is_shown() -> None:
    """Of several: an end that a crash leaves is less than what could not be read, or is lost."""
    assert sorted(VerdictKind, key=lambda each: each.rank) == [*VerdictKind]
    ranks = [max(each.rank for each in kinds) for kinds in (HARMLESS, ENDS)]
    assert ranks == sorted(ranks)
    assert all(each.rank > max(ranks) for each in VerdictKind if each.is_damage)
