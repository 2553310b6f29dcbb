"""Damage that a consumer meets in a log: what it is, and what is missing because of it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from storage.dirs.lookup import END_KINDS, is_wrong_end
from storage.errors import EXIT_FINDINGS, EXIT_SKIPPED, AccessError, EoctlError, pasted
from storage.kernels.protocol import VerdictKind
from storage.log.decoded_records import lost_base_offset

if TYPE_CHECKING:
    from storage.dirs.log_dir import StoppedState
    from storage.errors import FormatError
    from storage.kernels.protocol import ScannedBatch
    from storage.kernels.scan import Scan


class Damage(NamedTuple):
    """A stretch of the log that gives no records. Positions are half open, in bytes.

    `base_offset` to `last_offset` is the most that can be missing; None: not known on that side. A
    `last_offset` below `base_offset` says that nothing is.
    """

    path: str
    start_pos: int
    end_pos: int
    kind: str
    check_id: str
    reason: str
    base_offset: int
    last_offset: int | None = None

    def __str__(self) -> str:
        rule = f" [{self.check_id}]" if self.check_id else ""
        last = "unknown" if self.last_offset is None else self.last_offset
        offsets = f"offsets {self.base_offset} to {last}"
        if self.last_offset is not None and self.last_offset < self.base_offset:
            offsets = "no offset is missing"
        return (
            f"{self.path}: positions {self.start_pos} to {self.end_pos}: {self.kind}:"
            f" {self.reason}{rule}; {offsets}"
        )


def unreadable(path: str, end_pos: int, reason: str) -> Damage:
    """Tell of a segment that cannot be opened or listed; its offsets follow from its neighbours."""
    return Damage(
        path=path,
        start_pos=0,
        end_pos=end_pos,
        kind=VerdictKind.UNREADABLE,
        check_id="",
        reason=reason,
        base_offset=0,
    )


class DamageError(EoctlError):
    """Reading ended at damage; all records before it were given."""

    def __init__(self, damage: Damage) -> None:
        look = f"eoctl dump-segment --offsets {damage.base_offset}.. {pasted(damage.path)}"
        repair = f"eoctl repair {pasted(Path(damage.path).parent)} --strategy salvage"
        # Who consumes, copies and transforms is told the same.
        super().__init__(
            str(damage),
            next_step=f"{look}   # {repair}: what can be kept; consume --skip-corrupt goes on",
        )
        self.damage = damage
        self.path, self.pos, self.check_id = damage.path, damage.start_pos, damage.check_id
        is_unreadable = damage.kind == VerdictKind.UNREADABLE
        self.exit_status = EXIT_SKIPPED if is_unreadable else EXIT_FINDINGS


class NewVerdicts:
    """The damage that a scan has met since it was last asked.

    Attributes:
        positions: where all of it begins.
        given: by position, batches that are damaged where no checksum looks, and proven.
        ends: bytes behind the last batch that the end of the log should not have.
    """

    def __init__(self, scan: Scan, path: str, stopped: StoppedState, *, gives_proven: bool) -> None:
        """`gives_proven`: what is proven all the same is no loss."""
        self._gives_proven = gives_proven
        self.positions: set[int] = set()
        self.given: dict[int, Damage] = {}
        self.ends: list[Damage] = []
        self._stopped = stopped
        self._scan = scan
        self._path = path
        self._seen_count = 0

    def take(self) -> list[Damage]:
        """Return it, by position."""
        verdicts = self._scan.verdicts[self._seen_count :]
        self._seen_count += len(verdicts)
        found = []
        for each in verdicts:
            damage = Damage(
                path=self._path,
                start_pos=each.start_pos,
                end_pos=each.end_pos,
                kind=each.kind,
                check_id=each.check_id,
                reason=each.reason,
                base_offset=0,
            )
            if each.kind in END_KINDS:  # it is where the log ends
                if is_wrong_end(each.kind, self._stopped):
                    self.ends.append(damage)
            elif self._gives_proven and not each.is_lost:
                self.given[each.start_pos] = damage
            else:
                self.positions.add(each.start_pos)
                found.append(damage)
        return found


def content_damage(
    batch: ScannedBatch, path: str, error: FormatError | AccessError, floor_offset: int
) -> Damage:
    """Return what a batch is whose content cannot be had; the one before ends at the floor."""
    header, end_pos = batch.header, batch.pos + batch.header.batch_bytes
    kind, check_id = VerdictKind.CORRUPT, getattr(error, "check_id", "")
    if isinstance(error, AccessError):
        kind = VerdictKind.UNREADABLE
    return Damage(
        path=path,
        start_pos=batch.pos,
        end_pos=end_pos,
        kind=kind,
        check_id=check_id,
        reason=error.message,
        base_offset=lost_base_offset(header, floor_offset),
        last_offset=header.last_offset,
    )
