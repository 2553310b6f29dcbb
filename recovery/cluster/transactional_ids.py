"""Which transactional.id a producer id belongs to, from the coordinator's log.

All records of `__transaction_state` count, not only the last one of each id: a transactional.id has
had other producer ids before (an epoch that is used up brings a new one, TXN-7).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from storage.errors import AccessError, FormatError
from storage.file_names import TRANSACTION_STATE_TOPIC
from storage.formats.transaction_state import parse_record
from storage.places.find import open_place

if TYPE_CHECKING:
    from collections.abc import Iterable

    from storage.kernels.protocol import ScannedBatch
    from storage.log.segment import Segment
    from storage.places.listing import SegmentPlace


def read_transactional_ids(places: Iterable[SegmentPlace]) -> tuple[dict[int, str], list[str]]:
    """Return transactional ids by producer id, and what could not be read.

    Args:
        places: segments; those of other topics are passed over. Later records win.
    """
    ids: dict[int, str] = {}
    problems: list[str] = []
    for place in places:
        if place.topic != TRANSACTION_STATE_TOPIC:
            continue
        try:
            with open_place(place) as segment:
                for batch in segment.scan(is_active=place.is_active):
                    if batch.crc_ok and not batch.header.is_control:
                        _take_batch(segment, batch, ids, problems)
        except AccessError as exc:
            problems.append(str(exc))
    return ids, problems


def _take_batch(
    segment: Segment, batch: ScannedBatch, ids: dict[int, str], problems: list[str]
) -> None:
    try:
        for record in segment.records(batch):
            if record.key is None or record.value is None:
                continue
            transactional_id, state = parse_record(record.key, record.value)
            if state is None:
                continue
            known = (state.previous_producer_id, state.next_producer_id, state.producer_id)
            ids.update((each, transactional_id) for each in known if each >= 0)
    except (FormatError, AccessError) as exc:
        problems.append(f"{segment.path}: position {batch.pos}: {exc}")
