r"""Text checkpoints: offsets per partition of a log directory, and a partition's leader epochs.

The lines of a checkpoint:

    line  content
       1  version, 0
       2  number of entries
      3-  one entry each

Every line, also the last line, ends with \n.

    file                               entry                   of
    leader-epoch-checkpoint            epoch start_offset      the partition (ascending epochs)
    replication-offset-checkpoint      topic partition offset  high watermark
    recovery-point-offset-checkpoint   topic partition offset  recovery point
    log-start-offset-checkpoint        topic partition offset  log start offset
    cleaner-offset-checkpoint          topic partition offset  first dirty offset

Fields are separated by one blank. A broker reads any run of white space. The last four files list
partitions in no order. A file is valid if and only if these rules hold:

- DIR-7: it is UTF-8 and the version is 0. Every entry has its fields, all numbers of their size.
  Line 2 is the number of entries.
- EPC-1: leader epochs and start offsets are >= 0, and both strictly increase.
- TXT-1: the file is exactly what a broker would write for its entries, each partition once. A break
  is harmless.

A file without bytes, or with the version line alone, has no entries: a broker creates the offset
checkpoints with zero bytes. A blank line at the end is a malformed entry.

A field of an entry that is no number is a `NotANumberError`. Any other fault is a plain
CorruptError. A broker treats the two differently (REC-2).
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from storage.errors import CorruptError, FormatError, UnsupportedError
from storage.formats.java_text import (
    NotANumberError,
    parse_integer,
    parse_lines,
    require_integer,
    shown,
    split_fields,
    unusual_text,
)
from storage.limits import INT32_MAX, INT64_MAX

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from storage.formats.java_text import JavaLine
    from storage.limits import Buf

CHECK_ID = "DIR-7"
VERSION = 0

OFFSET_CHECKPOINT_NAMES = (
    "replication-offset-checkpoint",
    "recovery-point-offset-checkpoint",
    "log-start-offset-checkpoint",
    "cleaner-offset-checkpoint",
)
LEADER_EPOCH_NAME = "leader-epoch-checkpoint"


class OffsetCheckpointEntry(NamedTuple):
    """An offset of one partition. The file's name gives the kind of the offset."""

    topic: str
    partition: int
    offset: int


class LeaderEpochEntry(NamedTuple):
    """A leader epoch and the first offset that was, or would be, written in it."""

    epoch: int
    start_offset: int


def parse_offset_checkpoint(buf: Buf) -> list[OffsetCheckpointEntry]:
    """Read one of the four offset checkpoints. Entries are in file order, with repetitions.

    Raises:
        UnsupportedError: another version than 0.
        NotANumberError: a partition or an offset is not a number (DIR-7).
        CorruptError: any other break of DIR-7.
    """
    entries = []
    for line, fields in _parse_entries(buf, 3):
        partition = require_integer(
            fields[1], "partition", line, max_value=INT32_MAX, check_id=CHECK_ID
        )
        offset = require_integer(fields[2], "offset", line, max_value=INT64_MAX, check_id=CHECK_ID)
        entries.append(OffsetCheckpointEntry(fields[0], partition, offset))
    return entries


def parse_leader_epochs(buf: Buf) -> list[LeaderEpochEntry]:
    """Read a leader-epoch-checkpoint. Entries are in file order and may break EPC-1.

    Raises:
        UnsupportedError: another version than 0.
        NotANumberError: an epoch or an offset is not a number (DIR-7).
        CorruptError: any other break of DIR-7.
    """
    entries = []
    for line, fields in _parse_entries(buf, 2):
        epoch = require_integer(fields[0], "epoch", line, max_value=INT32_MAX, check_id=CHECK_ID)
        offset = require_integer(
            fields[1], "start offset", line, max_value=INT64_MAX, check_id=CHECK_ID
        )
        entries.append(LeaderEpochEntry(epoch, offset))
    return entries


def encode_offset_checkpoint(
    entries: Sequence[OffsetCheckpointEntry], *, zero_bytes_if_none: bool = False
) -> bytes:
    """Return the file. Without entries it may have zero bytes, as a broker first creates it."""
    return _encode(entries, zero_bytes_if_none=zero_bytes_if_none)


def encode_leader_epochs(
    entries: Sequence[LeaderEpochEntry], *, zero_bytes_if_none: bool = False
) -> bytes:
    """Return the file. Without entries it may have zero bytes."""
    return _encode(entries, zero_bytes_if_none=zero_bytes_if_none)


def offset_checkpoint_problems(buf: Buf) -> list[FormatError]:
    """Judge an offset checkpoint alone: DIR-7 if it does not parse, else TXT-1."""
    try:
        entries = parse_offset_checkpoint(buf)
    except FormatError as error:
        return [error]
    found = unusual_text(buf, _encode(entries, zero_bytes_if_none=not buf))
    seen: set[tuple[str, int]] = set()
    for entry, line in zip(entries, parse_lines(buf, check_id=CHECK_ID)[2:], strict=True):
        is_repeated = entry[:2] in seen  # a broker takes the last entry of a partition
        if is_repeated or not entry.topic or entry.partition < 0:
            what = "partition is listed twice" if is_repeated else "no such partition can exist"
            found.append(
                CorruptError(
                    f"line {line.number}: {what}",
                    check_id="TXT-1",
                    pos=line.pos,
                    expected="a partition not yet listed",
                    found=shown(line.text),
                )
            )
            break
        seen.add(entry[:2])
    return sorted(found, key=lambda problem: problem.pos)


def leader_epoch_problems(buf: Buf) -> list[FormatError]:
    """Judge a leader-epoch-checkpoint alone: DIR-7 if it does not parse, else EPC-1 and TXT-1.

    EPC-1 has two parts (epoch, start offset). The first break of each part is returned.
    """
    try:
        entries = parse_leader_epochs(buf)
    except FormatError as error:
        return [error]
    lines = parse_lines(buf, check_id=CHECK_ID)[2:]
    found: dict[str, FormatError] = {}
    for (previous, entry), line in zip(
        pairwise([LeaderEpochEntry(-1, -1), *entries]), lines, strict=True
    ):
        for name, before, value in (
            ("epoch", previous.epoch, entry.epoch),
            ("start offset", previous.start_offset, entry.start_offset),
        ):
            if value <= max(before, -1):
                problem = CorruptError(
                    f"line {line.number}: {name} is too small",
                    check_id="EPC-1",
                    pos=line.pos,
                    expected=f">= {max(before, -1) + 1}",
                    found=str(value),
                )
                found.setdefault(name, problem)
    unusual = unusual_text(buf, _encode(entries, zero_bytes_if_none=not buf))
    return sorted([*found.values(), *unusual], key=lambda problem: problem.pos)


def _parse_entries(buf: Buf, field_count: int) -> Iterator[tuple[JavaLine, list[str]]]:
    """Yield the entries, split into fields. Errors come in the order of CheckpointFile's errors."""
    lines = parse_lines(buf, check_id=CHECK_ID)
    if not lines:
        return
    version = _parse_header_line(lines[0], "version")
    if version != VERSION:
        raise UnsupportedError(
            "version of the checkpoint is unknown",
            check_id=CHECK_ID,
            pos=0,
            expected=f"version {VERSION}",
            found=f"version {version}",
        )
    if len(lines) == 1:
        return
    count = _parse_header_line(lines[1], "number of entries")
    if count < 0:
        # Java fails here as for a field that is no number.
        raise NotANumberError(
            "line 2: number of entries is negative",
            check_id=CHECK_ID,
            pos=lines[1].pos,
            expected=">= 0",
            found=str(count),
        )
    for line in lines[2:]:
        fields = split_fields(line.text)
        if len(fields) != field_count:
            raise CorruptError(
                f"line {line.number}: malformed entry",
                check_id=CHECK_ID,
                pos=line.pos,
                expected=f"{field_count} fields",
                found=shown(line.text),
            )
        yield line, fields
    if len(lines) - 2 != count:
        raise CorruptError(
            "line 2: number of entries is wrong",
            check_id=CHECK_ID,
            pos=lines[1].pos,
            expected=f"{len(lines) - 2}, the lines that follow",
            found=str(count),
        )


def _parse_header_line(line: JavaLine, what: str) -> int:
    """Read line 1 or 2.

    Text that is no number is a format error here, unlike in a field of an entry.
    """
    value = parse_integer(line.text, max_value=INT32_MAX)
    if value is None:
        raise CorruptError(
            f"line {line.number}: {what} is not a number of 32 bits",
            check_id=CHECK_ID,
            pos=line.pos,
            expected="a decimal number",
            found=shown(line.text),
        )
    return value


def _encode(entries: Iterable[tuple[object, ...]], *, zero_bytes_if_none: bool) -> bytes:
    lines = [" ".join(map(str, entry)) for entry in entries]
    if zero_bytes_if_none and not lines:
        return b""
    return "".join(f"{line}\n" for line in (VERSION, len(lines), *lines)).encode()
