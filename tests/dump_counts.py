"""What spark-audit must count, from kafka-dump-log's words; imports nothing of ours.

A line per batch begins with `baseOffset:` (v2) or `offset:` (v0, v1), a line per record with `|`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

INTERNAL_TOPICS = {
    "__consumer_offsets",
    "__transaction_state",
    "__share_group_state",
    "__cluster_metadata",
}
BATCH = re.compile(
    rb"baseOffset: (?P<base>\d+) lastOffset: (?P<last>\d+) count: (?P<count>\d+) "
    rb"baseSequence: (?P<sequence>-?\d+) lastSequence: -?\d+ producerId: (?P<pid>-?\d+) "
    rb"producerEpoch: (?P<epoch>-?\d+) .*isTransactional: (?P<txn>\w+) isControl: (?P<control>\w+) "
    rb".* size: (?P<size>\d+) magic: 2 .*isvalid: true"
)
MESSAGE = re.compile(
    rb"offset: \d+ position: \d+ .* size: (?P<size>\d+) magic: [01] .*isvalid: true"
)
MARKER = re.compile(rb"\| offset: \d+ .* endTxnMarker: (COMMIT|ABORT) ")


def counts_of(dump_dir: Path) -> dict[str, int]:
    """Count over the dumps of one partition's segments."""
    batches: list[dict[str, Any]] = []
    for path in sorted(dump_dir.glob("*.log.txt")):
        for line in path.read_bytes().split(b"\n"):
            if match := BATCH.match(line):
                values = match.groupdict()
                batch: dict[str, Any] = {
                    name: int(values[name])
                    for name in ("base", "last", "count", "sequence", "pid", "epoch", "size")
                }
                batch["txn"], batch["control"] = (
                    values["txn"] == b"true",
                    values["control"] == b"true",
                )
                batches.append({**batch, "marker": b"", "lines": 0})
            elif match := MESSAGE.match(line):
                batches.append({"size": int(match["size"]), "lines": 0})
            elif line.startswith(b"| offset: "):
                batches[-1]["lines"] += 1
                if match := MARKER.match(line):
                    batches[-1]["marker"] = match[1]
    v2 = [each for each in batches if "pid" in each]
    assert all(each["lines"] == each["count"] for each in v2)
    topic = dump_dir.name.rpartition("-")[0]
    return {
        "batches": len(batches),
        "records": sum(each["lines"] for each in batches),
        "bytes": sum(each["size"] for each in batches),
        "control_batches": sum(each["control"] for each in v2),
        "transactional_batches": sum(each["txn"] and not each["control"] for each in v2),
        "aborted_batches": _aborted(v2),
        "duplicate_batches": 0 if topic in INTERNAL_TOPICS else _duplicates(v2),
        **_transactions(v2),
        "corrupt_batches": 0,
    }


def _aborted(batches: list[dict[str, Any]]) -> int:
    """Backwards: the next marker of each producer is known when its batches are met."""
    next_marker: dict[int, bytes] = {}
    count = 0
    for each in reversed(batches):
        if each["marker"] and each["pid"] >= 0:
            next_marker[each["pid"]] = each["marker"]
        elif each["txn"] and not each["control"]:
            count += next_marker.get(each["pid"]) == b"ABORT"
    return count


def _transactions(batches: list[dict[str, Any]]) -> dict[str, int]:
    ongoing: set[int] = set()
    ended = {b"COMMIT": 0, b"ABORT": 0}
    for each in batches:
        if each["marker"] and each["pid"] in ongoing:
            ongoing.remove(each["pid"])
            ended[each["marker"]] += 1
        elif each["txn"] and not each["control"]:
            ongoing.add(each["pid"])
    return {
        "open_transactions": len(ongoing),
        "committed_transactions": ended[b"COMMIT"],
        "aborted_transactions": ended[b"ABORT"],
    }


def _duplicates(batches: list[dict[str, Any]]) -> int:
    seen: dict[tuple[int, int], set[int]] = {}
    count = 0
    for each in batches:
        if each["control"] or each["pid"] < 0 or each["sequence"] < 0:
            continue
        numbers = range(each["sequence"], each["sequence"] + each["last"] - each["base"] + 1)
        sequences = {number % 2**31 for number in numbers}
        known = seen.setdefault((each["pid"], each["epoch"]), set())
        count += not known.isdisjoint(sequences)
        known |= sequences
    return count
