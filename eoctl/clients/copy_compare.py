"""Whether the destination has what the source has: read once more from both logs, batch by batch.

Where the bytes of the records are equal they are compared as bytes, else record by record.
"""

from __future__ import annotations

from enum import StrEnum
from itertools import zip_longest
from typing import TYPE_CHECKING, NamedTuple

from eoctl.clients.copied_batch import difference
from storage.errors import AccessError

if TYPE_CHECKING:
    from collections.abc import Collection

    from eoctl.clients.batch_consumer import BatchConsumer
    from eoctl.clients.copy_resume import Destination


class Outcome(StrEnum):
    """How a comparison came out."""

    EQUAL = "equal"
    DIFFERENT = "different"
    UNKNOWN = "unknown"  # one of the logs has lost what was to be compared


class Compared(NamedTuple):
    """What was compared: `records` and `batches` are equal; `words` tell of what is not."""

    outcome: Outcome
    records: int = 0
    batches: int = 0
    words: str = ""


class Range(NamedTuple):
    """Offsets of the source, half open, and where the destination has them."""

    start_offset: int
    end_offset: int
    copy_start_offset: int


def compare(
    source: BatchConsumer, destination: Destination, part: Range, producer_ids: Collection[int]
) -> Compared:
    """Compare a part of the source with its copy.

    Args:
        source: at the isolation level of the copy.
        destination: closed.
        part: what is compared.
        producer_ids: of the copier.

    Raises:
        DamageError, FormatError: one of them does not decode.
    """
    batches = records = 0
    source.partition.refresh()
    gone = _gone(source, destination, part)
    if gone:
        return Compared(Outcome.UNKNOWN, words=gone)
    copies = (
        each
        for each in destination.batches(part.copy_start_offset)
        if each.header.producer_id in producer_ids
    )
    originals = source.batches_again(part.start_offset, part.end_offset)
    try:
        for original, copy in zip_longest(originals, copies):
            if original is None:
                offset = copy.header.base_offset
                words = f"the destination has a batch at offset {offset} that the source has not"
            elif copy is None:
                offset = original.header.base_offset
                words = f"the destination lacks the batch at offset {offset} of the source"
            else:
                words = difference(original, copy, has_own_times=destination.has_own_times)
                if words:
                    words = (
                        f"{original.segment.path}: position {original.batch.pos}:"
                        f" {copy.segment.path}: position {copy.batch.pos}: {words}"
                    )
            if words:
                return Compared(Outcome.DIFFERENT, records, batches, words)
            batches += 1
            records += original.records_count
    except AccessError as exc:
        return Compared(Outcome.UNKNOWN, records, batches, str(exc))
    return Compared(Outcome.EQUAL, records, batches)


def _gone(source: BatchConsumer, destination: Destination, part: Range) -> str:
    log_start_offset = source.partition.log_start_offset or 0
    if part.start_offset < min(log_start_offset, part.end_offset):
        return f"the log of the source starts at offset {log_start_offset} now"
    if part.copy_start_offset < min(destination.start_offset, destination.end_offset):
        return f"the log of the destination starts at offset {destination.start_offset} now"
    return ""
