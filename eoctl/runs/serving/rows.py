"""What is told of each partition that is served."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from eoctl.clients.log.log_walk import DamageError
from eoctl.progress import Progress
from storage.errors import AccessError

if TYPE_CHECKING:
    from eoctl.serve.state.catalogue import Catalogue, ServedPartition

VERIFIED = "verified: headers and checksums of all batches that are offered"
READ_BYTES = 8 << 20


class ServedRow(NamedTuple):
    """A partition that is served. What is not known without reading all of it is None.

    Attributes:
        high_watermark: as checkpointed.
        last_stable_offset: where a read_committed consumer stops.
        end_offset: what is offered ends there.
        damaged_places: how many were met so far.
        notes: what is missing; not a column.
    """

    topic: str
    partition: int
    log_start_offset: int
    high_watermark: int | None
    last_stable_offset: int | None
    end_offset: int
    damaged_places: int | None
    path: str
    notes: tuple[str, ...] = ()
    is_lacking: bool = False

    @classmethod
    def columns(cls) -> tuple[str, ...]:
        """Names of what is shown."""
        return cls._fields[:-2]

    def values(self) -> tuple[Any, ...]:
        """What is shown."""
        return tuple(self)[:-2]


def partition_row(served: ServedPartition) -> ServedRow:
    """Look at a partition, at its ends only."""
    topic, number = served.key
    try:
        log = served.log
        bounds = log.bounds()
    except AccessError as exc:
        return ServedRow(
            topic=topic,
            partition=number,
            log_start_offset=-1,
            high_watermark=None,
            last_stable_offset=None,
            end_offset=-1,
            damaged_places=None,
            path=served.copies[0].partition.path,
            notes=(str(exc),),
            is_lacking=True,
        )
    remote = log.partition.remote_range
    # As with `consume` and `export`, what is remote is no part of what is here, and sound.
    notes = [] if remote is None else [f"{remote}: they are not served"]
    lacking = [*map(str, log.missing), *map(str, log.partition.problems)]
    try:
        stable = log.known_stable_offset()
    except AccessError as exc:
        stable = -1
        lacking.append(str(exc))
    lacking += map(str, log.unknown)
    return ServedRow(
        topic=topic,
        partition=number,
        log_start_offset=bounds.start_offset,
        high_watermark=bounds.high_watermark,
        last_stable_offset=None if stable < 0 else stable,
        end_offset=bounds.end_offset,
        damaged_places=log.damaged_count if log.is_verified else None,
        path=log.partition.path,
        notes=(*notes, *lacking),
        is_lacking=bool(lacking or log.damaged_count or served.is_lacking),
    )


def verify(catalogue: Catalogue) -> None:
    """Walk all that is offered, and its transactions, before anybody is given anything."""
    selected = [copy for each in catalogue.partitions() for copy in each.copies[:1]]
    total = sum(each.log_bytes() for each in selected)
    with Progress("verifying", total):
        for each in catalogue.partitions():
            try:
                each.log.verify()
            except (AccessError, DamageError) as exc:
                catalogue.tell_once(str(exc))
