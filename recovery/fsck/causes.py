"""Which findings are only consequences of others, such as an index that leads beyond a cut log.

A log that is damaged or ends early leaves indexes, snapshots, epochs and checkpoints behind that do
not fit it any more. They say nothing new, and are put right with it. What is missing of what was
acknowledged (OFS-3) stays by itself: that is a loss, not a trace of one.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from recovery.rules.findings import Severity
from storage.file_names import FileKind, classify

if TYPE_CHECKING:
    from collections.abc import Iterable

    from recovery.rules.findings import Finding

# A log that is damaged, or ends before what lies around it.
CAUSES = frozenset({"SEG-5", "SEG-6", "BAT-1", "BAT-2", "BAT-3", "OFS-1", "OFS-3"})
# What then does not fit: entries beyond the log, snapshots and checkpoints of its old end.
CONSEQUENCES = frozenset(
    {
        *("IDX-3", "IDX-4", "TIM-2", "TIM-3", "TIM-4", "TXI-2", "TXI-3", "TXI-7"),
        *("SNP-2", "SNP-3", "SNP-4", "SNP-6", "EPC-2", "OFS-2", "OFS-6", "SEG-4"),
        *("PRD-1", "TXO-2"),
    }
)


class PlacedFinding(NamedTuple):
    """A finding, and the partition directory that was checked; "" for one of a log dir."""

    directory: str
    finding: Finding


class Folded(NamedTuple):
    """A finding, its directory as above, and what follows from it, in the order of finding."""

    finding: Finding
    directory: str
    consequences: tuple[Finding, ...] = ()


def fold(findings: Iterable[PlacedFinding]) -> list[Folded]:
    """Put consequences under their cause; the gravest first, else in the order given."""
    listed = list(findings)
    causes: dict[str, list[Finding]] = {}
    for directory, each in listed:
        if each.check_id in CAUSES and each.severity is not Severity.NOTE:
            causes.setdefault(directory, []).append(each)
    folded: dict[int, list[Finding]] = {}
    roots = []
    for directory, each in listed:
        known = causes.get(directory, ()) if each.check_id in CONSEQUENCES else ()
        cause = next((one for one in _nearest_first(known) if follows(each, one)), None)
        if cause is None:
            roots.append(PlacedFinding(directory, each))
        else:
            folded.setdefault(id(cause), []).append(each)
    roots.sort(key=lambda each: -each.finding.severity.rank)
    return [
        Folded(each.finding, each.directory, tuple(folded.get(id(each.finding), ())))
        for each in roots
    ]


def follows(finding: Finding, cause: Finding) -> bool:
    """Whether a finding of the same partition can be there because of a cause.

    Not if it is of offsets below, or of a segment before.
    """
    if finding.check_id not in CONSEQUENCES or cause.check_id not in CAUSES:
        return False
    segment, damaged = segment_of(finding.path), segment_of(cause.path)
    if segment is not None and damaged is not None and segment < damaged:
        return False
    offset = finding.base_offset if finding.base_offset is not None else finding.last_offset
    return offset is None or cause.base_offset is None or offset >= cause.base_offset


def segment_of(path: str) -> int | None:
    """Base offset of the segment that a file belongs to by its name; None: to none."""
    name = classify(Path(path).name)
    if name.kind in {FileKind.LOG, FileKind.INDEX, FileKind.TIMEINDEX, FileKind.TXNINDEX}:
        return name.offset
    return None


def _nearest_first(causes: Iterable[Finding]) -> list[Finding]:
    """Damage before what is missing, and the nearest of it first."""
    return sorted(causes, key=lambda each: (each.check_id == "OFS-3", -(each.base_offset or 0)))
