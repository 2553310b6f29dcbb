"""Which findings are only consequences of others, such as an index that leads beyond a cut log.

A log that is damaged or ends early leaves indexes, snapshots, epochs and checkpoints behind that do
not fit it any more. They say nothing new, and are put right with it. What is missing of what was
acknowledged (OFS-3) stays by itself: that is a loss, not a trace of one.
"""

from __future__ import annotations

from bisect import bisect_left
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from recovery.rules.findings import Severity
from storage.file_names import FileKind, classify

if TYPE_CHECKING:
    from collections.abc import Iterable

    from recovery.rules.findings import Finding

# A log that is damaged, or ends before what lies around it.
CAUSES = frozenset(
    {"SEG-5", "SEG-6", "BAT-1", "BAT-2", "BAT-3", "OFS-1", "OFS-3", "SEG-4", "SEG-11"}
)
# What then does not fit: entries beyond the log, snapshots and checkpoints of its old end.
CONSEQUENCES = frozenset(
    {
        *("IDX-3", "IDX-4", "TIM-2", "TIM-3", "TIM-4", "TXI-2", "TXI-3", "TXI-7"),
        *("SNP-2", "SNP-3", "SNP-4", "SNP-6", "EPC-2", "OFS-2", "OFS-6"),
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
    known = {directory: _Causes(found) for directory, found in causes.items()}
    folded: dict[int, list[Finding]] = {}
    roots = []
    for directory, each in listed:
        of_directory = known.get(directory) if each.check_id in CONSEQUENCES else None
        cause = None if of_directory is None else of_directory.nearest(each)
        if cause is None:
            roots.append(PlacedFinding(directory, each))
        else:
            folded.setdefault(id(cause), []).append(each)
    roots.sort(key=lambda each: -each.finding.severity.rank)
    return [
        Folded(each.finding, each.directory, tuple(folded.get(id(each.finding), ())))
        for each in roots
    ]


class _Causes:
    """The causes of one directory: of many thousands, too, the nearest is found at once."""

    def __init__(self, found: Iterable[Finding]) -> None:
        # Damage before what is missing, and the nearest of it first.
        ordered = sorted(found, key=lambda one: (one.check_id == "OFS-3", -(one.base_offset or 0)))
        self._ordered = [(one, segment_of(one.path)) for one in ordered]
        self._negated = [-(one.base_offset or 0) for one in ordered if one.check_id != "OFS-3"]
        self._known: dict[tuple[int | None, int | None], Finding | None] = {}

    def nearest(self, finding: Finding) -> Finding | None:
        """The nearest one because of which a finding of the same partition can be there.

        None if all are of offsets above, or of a segment behind.
        """
        offset = finding.base_offset if finding.base_offset is not None else finding.last_offset
        place = segment_of(finding.path), offset
        if place not in self._known:
            self._known[place] = self._find(*place)
        return self._known[place]

    def _find(self, segment: int | None, offset: int | None) -> Finding | None:
        # What lies above the offset is passed over without a look.
        start = 0 if offset is None else bisect_left(self._negated, -offset)
        for cause, damaged in islice(self._ordered, start, None):
            base = cause.base_offset
            is_behind = segment is not None and damaged is not None and segment < damaged
            if not is_behind and (offset is None or base is None or offset >= base):
                return cause
        return None


def segment_of(path: str) -> int | None:
    """Base offset of the segment that a file belongs to by its name; None: to none."""
    name = classify(Path(path).name)
    if name.kind in {FileKind.LOG, FileKind.INDEX, FileKind.TIMEINDEX, FileKind.TXNINDEX}:
        return name.offset
    return None
