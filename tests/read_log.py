"""What a client would get of a partition directory, found plainly: every record, then markers."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from storage.formats.control_record import ControlRecordType, parse_control_key
from storage.log.segment import open_segment

if TYPE_CHECKING:
    from pathlib import Path

    from storage.log.segment import LogRecord


class ReadLog(NamedTuple):
    """All data records in the order of the log, those of them that count, and what is undecided.

    `committed` are those outside of transactions, and those whose producer's next marker commits.
    """

    records: list[LogRecord]
    committed: list[LogRecord]
    undecided: list[LogRecord]


def read_log(directory: Path) -> ReadLog:
    """Read all `.log` files of a partition; there must be nothing in them but whole batches."""
    records: list[LogRecord] = []
    is_committed: dict[int, bool] = {}  # by offset
    waiting: dict[int, list[int]] = {}  # offsets by producer id
    for path in sorted(directory.glob("*.log")):
        with open_segment(path) as segment:
            scan = segment.scan()
            for batch in scan:
                header = batch.header
                found = list(segment.records(batch))
                if header.is_control:
                    if not found:  # what a cleaner has left of a marker
                        continue
                    is_commit = parse_control_key(found[0].key).type == ControlRecordType.COMMIT
                    for offset in waiting.pop(header.producer_id, ()):
                        is_committed[offset] = is_commit
                    continue
                records += found
                if header.is_transactional:
                    waiting.setdefault(header.producer_id, []).extend(e.offset for e in found)
                else:
                    is_committed.update((each.offset, True) for each in found)
            assert not scan.verdicts, (path, scan.verdicts)
    return ReadLog(
        records,
        [each for each in records if is_committed.get(each.offset)],
        [each for each in records if each.offset not in is_committed],
    )
