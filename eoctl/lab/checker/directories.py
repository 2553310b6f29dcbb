"""Replicas on disk: their values, agreement (replicas-differ), completeness and damage.

`recovery.replicas` compares replicas by offsets, leader epoch, size and checksum of each batch.
Below the high watermark of both, two replicas must always agree. After the heal, each replica must
have all records below the high watermark. A broker's recorded high watermark lags behind. Without a
recorded high watermark, the whole log counts after the heal, and nothing before.
"""

from __future__ import annotations

from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from eoctl.lab.checker.histories import NO_OFFSET
from eoctl.lab.checker.values import ReplicaValues
from recovery.checks.partition_check import CheckOptions
from recovery.fsck.one_pass import CheckJob, check_one
from recovery.replicas.compare import ReplicaLog, compare_replicas, read_replica
from recovery.rules.findings import Severity
from storage.dirs.discovery import Selected
from storage.dirs.log_dir import PartitionDir, read_log_dir
from storage.dirs.partition import Partition
from storage.errors import FormatError
from storage.file_names import parse_partition_name
from storage.log.segment import open_segment

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from eoctl.lab.checker.histories import PartitionColumns
    from eoctl.lab.checker.rules import FoundLines
    from storage.kernels.protocol import ScannedBatch
    from storage.log.segment import Segment

    Ints = NDArray[np.int64]
    # Base offset, last offset and checksum of a batch -> offsets and hashes of its values, and the
    # error that ended the read.
    _Known = dict[tuple[int, int, int], tuple[Ints, Ints, str]]


class ReplicaContent(NamedTuple):
    """One replica, read from end to end.

    Attributes:
        log: its batches.
        values: of its data.
        unread: batches whose records cannot be read, in words.
    """

    name: str
    log: ReplicaLog
    values: ReplicaValues
    unread: tuple[str, ...]

    def text_at(self, offset: int) -> str | None:
        """Return the value at an offset, None for a missing or unreadable value."""
        for segment, batch in _batches(self.log.partition):
            if batch.header.base_offset <= offset <= batch.header.last_offset:
                try:
                    for record in segment.records(batch):
                        if record.offset == offset:
                            return _text(record.value)
                except FormatError:
                    return None
        return None


def read_contents(paths: Iterable[tuple[str, str]]) -> list[ReplicaContent]:
    """Read replicas, given by name and directory. A batch that two replicas share is read once.

    Raises:
        RefusedError, AccessError: a replica cannot be read.
    """
    known: _Known = {}
    return [_read(name, path, known) for name, path in paths]


def _read(name: str, path: str, known: _Known) -> ReplicaContent:
    partition = Partition.of(_selected(path))
    offsets: list[Ints] = []
    hashes: list[Ints] = []
    unread: list[str] = []
    for segment, batch in _batches(partition):
        header = batch.header
        if header.is_control or not batch.crc_ok:
            continue
        key = (header.base_offset, header.last_offset, header.crc)
        found = known.get(key)
        if found is None:
            found = known[key] = _values(segment, batch)
        offsets.append(found[0])
        hashes.append(found[1])
        if found[2]:
            unread.append(f"offset {header.base_offset}: {found[2]}")
    empty = np.empty(0, np.int64)
    return ReplicaContent(
        name=name,
        log=read_replica(partition),
        values=ReplicaValues(
            name, np.concatenate((empty, *offsets)), np.concatenate((empty, *hashes))
        ),
        unread=(*unread,),
    )


def _selected(path: str) -> Selected:
    parsed = parse_partition_name(Path(path).name)
    assert parsed is not None
    return Selected(PartitionDir(path, parsed), read_log_dir(Path(path).parent))


def _batches(partition: Partition) -> Iterator[tuple[Segment, ScannedBatch]]:
    for files in partition.segments:
        with open_segment(files.log.path, base_offset=files.base_offset) as segment:
            for batch in segment.scan(**partition.bounds(files)):
                yield segment, batch


def _values(segment: Segment, batch: ScannedBatch) -> tuple[Ints, Ints, str]:
    """Return offsets and hashes of the values of a batch, and the error that ended the read."""
    offsets: list[int] = []
    hashes: list[int] = []
    why = ""
    try:
        for record in segment.records(batch):
            text = _text(record.value)
            if text is not None:
                offsets.append(record.offset)
                hashes.append(hash(text))
    except FormatError as error:
        why = str(error)
    return np.array(offsets, np.int64), np.array(hashes, np.int64), why


def _text(value: bytes | memoryview | None) -> str | None:
    return None if value is None else bytes(value).decode(errors="replace")


def compare_contents(
    found: FoundLines, partition: str, replicas: Sequence[ReplicaContent], *, is_healed: bool
) -> None:
    """Compare each pair of replicas."""
    for one, other in combinations(replicas, 2):
        different = compare_replicas(one.log, other.log).divergence_offset
        limits = []
        for each in (one.log, other.log):
            unknown = each.end_offset if is_healed else 0
            limits.append(unknown if each.high_watermark is None else each.high_watermark)
        if different is not None and different < min(limits):
            found.add("replicas-differ", partition, different, (), details=(one.name, other.name))


def lag_of(
    found: FoundLines, columns: PartitionColumns, replicas: Sequence[ReplicaContent], healed: int
) -> None:
    """Report replicas that end below the high watermark. `healed` is the line of the heal.

    A recorded high watermark above the end of its replica counts as that end, as for a broker that
    starts.
    """
    marks = [
        (min(each.log.high_watermark, each.log.end_offset), 0)
        for each in replicas
        if each.log.high_watermark is not None
    ]
    end = columns.last_end
    if end is not None and end.line > healed:
        marks.append((end.end_offset, end.line))
    high_watermark, line = max(marks, default=(0, 0))
    for each in replicas:
        end_offset = each.log.end_offset
        if end_offset < high_watermark:
            found.add(
                "replica-lags",
                columns.name,
                end_offset,
                (healed, line),
                details=(each.name, end_offset, high_watermark),
            )


def damage_of(found: FoundLines, partition: str, replicas: Sequence[ReplicaContent]) -> None:
    """Report the errors of `eoctl check`."""
    for each in replicas:
        result = check_one(CheckJob(_selected(each.log.path), None, CheckOptions(now_ms=0)))
        errors = [one for one in result.findings if one.severity is Severity.ERROR]
        reported = [(one.base_offset, f"{one.check_id}: {one.message}") for one in errors]
        reported += [(None, one) for one in (*result.problems, *each.unread)]
        for offset, words in reported:
            at = NO_OFFSET if offset is None else offset
            found.add("damaged-replica", partition, at, (), details=(each.log.path, words))
