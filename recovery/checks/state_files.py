"""`.snapshot` and `.txnindex` files by themselves: SNP-1, SNP-2, SNP-5, TXI-1, TXI-2, TXI-7."""

from __future__ import annotations

from typing import TYPE_CHECKING

from recovery.rules.findings import Severity
from storage.formats import producer_snapshot, txn_index

if TYPE_CHECKING:
    from recovery.checks.grounds.circumstances import Circumstances
    from recovery.checks.grounds.collector import Collector
    from storage.dirs.partition import Partition
    from storage.dirs.partition_files import SegmentFiles
    from storage.formats.producer_snapshot import ProducerEntry
    from storage.formats.txn_index import AbortedTxn


def check_snapshots(
    partition: Partition, circumstances: Circumstances, collector: Collector
) -> dict[int, tuple[list[ProducerEntry], str]]:
    """Judge each snapshot alone; returns those that parse, with their paths, by offset."""
    found: dict[int, tuple[list[ProducerEntry], str]] = {}
    bases = {each.base_offset for each in partition.segments}
    last_base = max(bases, default=0)
    for file in partition.files.snapshots:
        data, offset = partition.read_file(file), file.name.offset
        if data is None or offset is None:
            continue
        problems = producer_snapshot.problems(data, offset)
        for problem in problems:
            action = "deletes it, and reads more of the log" if problem.check_id == "SNP-1" else ""
            collector.add_error(problem, path=file.path, broker_action=action)
        if not any(each.check_id == "SNP-1" for each in problems):
            found[offset] = producer_snapshot.parse_snapshot(data), file.path
        if offset not in bases and offset < last_base and not circumstances.is_compacted:
            collector.add(
                "SNP-2",
                file.path,
                "no segment begins at its offset",
                broker_action="deletes it",
            )
    return found


def read_txn_index(
    partition: Partition,
    files: SegmentFiles,
    circumstances: Circumstances,
    collector: Collector,
) -> list[AbortedTxn]:
    """Judge a `.txnindex` alone; returns its whole entries, good or not."""
    data = partition.read_file(files.txn_index)
    if data is None or files.txn_index is None:
        return []
    bases = [each.base_offset for each in partition.segments]
    next_base = min((each for each in bases if each > files.base_offset), default=None)
    severity = Severity.NOTE if circumstances.is_recovered(files) else None
    for problem in txn_index.problems(data, files.base_offset, next_base):
        collector.add_error(problem, path=files.txn_index.path, severity=severity)
    return txn_index.parse_entries(data)
