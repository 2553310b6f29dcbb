"""Bad stretches of `.log` files: where they are, and between which offsets."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from storage.errors import AccessError
from storage.kernels.protocol import VerdictKind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from storage.errors import FormatError
    from storage.kernels.protocol import HeaderTable, Verdict

GONE = "gone"  # the kind of what is no damage: retention has removed the file meanwhile
MAX_DAMAGES_COUNT = 1000  # of one file that are kept; all are counted


class Damage(NamedTuple):
    """One bad stretch, or a batch whose content does not decode. Positions are half open.

    Attributes:
        kind: a VerdictKind, or GONE.
        offset_before: last offset of the good batch before it in the file; -1: there is none.
        offset_after: base offset of the good batch behind it; -1: there is none.
    """

    path: str
    kind: str
    check_id: str
    start_pos: int
    end_pos: int
    offset_before: int
    offset_after: int
    reason: str

    @property
    def is_corrupt(self) -> bool:
        """It is damage; a torn tail of the last segment is none."""
        return self.kind == VerdictKind.CORRUPT

    @property
    def is_unreadable(self) -> bool:
        """The operating system refused it."""
        return self.kind == VerdictKind.UNREADABLE

    def __str__(self) -> str:
        if self.kind == GONE:
            return f"{self.path}: {self.reason}"
        check_id = f" [{self.check_id}]" if self.check_id else ""
        return (
            f"{self.path}: positions {self.start_pos} to {self.end_pos}: "
            f"{self.kind}: {self.reason}{check_id}"
        )


class DamageList:
    """Collects the damage of one file while its batches go by.

    Attributes:
        count: all that was met.
        first: the first of them, by position.
    """

    def __init__(self, path: str) -> None:
        self.count = 0
        self._path = path
        self._found: list[Damage] = []
        self._verdicts_count = 0
        self._last_good = (-1, -1)  # end position, last offset

    @property
    def first(self) -> list[Damage]:
        """Those that are kept, in order."""
        return sorted(self._found, key=lambda each: (each.start_pos, each.end_pos))

    def take_verdicts(self, verdicts: Sequence[Verdict]) -> None:
        """Take what a scan has said so far; what was taken before is not taken again."""
        for verdict in verdicts[self._verdicts_count :]:
            kind, start_pos, end_pos, check_id, reason, _ = verdict
            self._add(kind, start_pos, end_pos, check_id, reason)
        self._verdicts_count = len(verdicts)

    def add_error(self, error: FormatError | AccessError, pos: int, batch_bytes: int) -> None:
        """Take a batch that is whole and whose content is not, or a file that does not open."""
        if isinstance(error, AccessError):
            reason = error.message.removeprefix(f"{error.path}: ")
            self._add(VerdictKind.UNREADABLE, pos, pos + batch_bytes, "", reason)
            return
        reason = error.message
        if error.expected or error.found:
            reason += f" (expected {error.expected}, found {error.found})"
        self._add(VerdictKind.CORRUPT, pos, pos + batch_bytes, error.check_id, reason)

    def see(self, table: HeaderTable) -> None:
        """Take note of the next batches, to tell the offsets around damage."""
        good = np.flatnonzero(table.crc_ok)
        if not good.size:
            return
        pos, end_pos = table.pos[good], table.pos[good] + table.batch_bytes[good]
        for place, damage in enumerate(self._found):
            if damage.offset_after >= 0:
                continue
            before = int(np.searchsorted(end_pos, damage.start_pos, "right"))
            after = int(np.searchsorted(pos, damage.end_pos))
            offset_before, offset_after = damage.offset_before, -1
            if before:
                offset_before = int(table.last_offset[good[before - 1]])
            if after < len(good):
                offset_after = int(table.base_offset[good[after]])
            self._found[place] = damage._replace(
                offset_before=offset_before, offset_after=offset_after
            )
        self._last_good = (int(end_pos[-1]), int(table.last_offset[good[-1]]))

    def _add(self, kind: str, start_pos: int, end_pos: int, check_id: str, reason: str) -> None:
        self.count += 1
        if len(self._found) < MAX_DAMAGES_COUNT:
            last_end_pos, last_offset = self._last_good
            before = last_offset if 0 <= last_end_pos <= start_pos else -1
            self._found.append(
                Damage(self._path, str(kind), check_id, start_pos, end_pos, before, -1, reason)
            )
