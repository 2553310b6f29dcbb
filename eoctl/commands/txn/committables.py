"""Transactions whose commit was decided elsewhere, from a file.

JSON Lines  {"transactional_id": "sink-0-7", "producer_id": 4001, "producer_epoch": 3}
CSV         sink-0-7,4001,3                    after an optional header with these three names
Flink       the output of its KafkaCommittableSerializer, concatenated:

            pos  width  type    field
              0      2  int16   epoch
              2      8  int64   producer id
             10      2  uint16  bytes of the transactional id
             12         bytes   transactional id, in Java's modified UTF-8

            or each within the envelope of SimpleVersionedSerialization, as in a checkpoint:
            int32 version (1), int32 bytes, and the above.

A file with a zero byte in its first ten is Flink's. The epoch or the producer id has a zero byte,
and text has none. All integers are big-endian.
"""

from __future__ import annotations

import csv
import json
import re
from collections import Counter
from pathlib import Path
from struct import Struct
from typing import TYPE_CHECKING, Any

from recovery.transactions.abort import Committable
from storage.errors import AccessError, UsageError
from storage.limits import INT64_MAX
from storage.producers.producer_state import MAX_PRODUCER_EPOCH

if TYPE_CHECKING:
    from collections.abc import Iterator


HEAD = Struct(">hqH")
HEAD_BYTES = 12
VERSIONED = Struct(">ii")
VERSIONED_BYTES = 8
VERSION = 1  # of KafkaCommittableSerializer
MAX_FILE_BYTES = 64 << 20
NAMES = Committable._fields
_ZERO_WITHIN_BYTES = 10
_WHOLE = re.compile(r"-?[0-9]+")  # Python accepts 4_0 for 40, and digits of all scripts


def read_committables(path: str) -> tuple[Committable, ...]:
    """Read all transactions, in the order of the file.

    Raises:
        UsageError: something in it is no transaction, or there is none.
        AccessError: the file cannot be read.
    """
    try:
        with Path(path).open("rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
    except OSError as exc:
        raise AccessError(exc, path) from exc
    if len(data) > MAX_FILE_BYTES:
        raise UsageError(f"{path}: has more than {MAX_FILE_BYTES >> 20} MiB: no such file")
    if b"\0" in data[:_ZERO_WITHIN_BYTES]:
        found = _parse_flink(data, path)
    else:
        found = [*_parse_text(data, path)]
    if not found:
        raise UsageError(f"{path}: there is no transaction in it", next_step=_how())
    found = [*dict.fromkeys(found)]
    names = Counter(each.transactional_id for each in found)
    ((name, count),) = names.most_common(1)
    if count > 1:
        raise UsageError(
            f"{path}: {name} is given twice: a transactional id has one transaction at a time",
            next_step="the transactions of one checkpoint",
        )
    return tuple(found)


def require_committable(wanted: Committable, where: str) -> Committable:
    """Refuse a transaction that no coordinator could have produced.

    Raises:
        UsageError: with `where` it was found.
    """
    if not wanted.transactional_id:
        raise UsageError(f"{where}: the transactional id is empty")
    if not 0 <= wanted.producer_id <= INT64_MAX:
        raise UsageError(f"{where}: {wanted.producer_id} is no producer id")
    if not 0 <= wanted.producer_epoch <= MAX_PRODUCER_EPOCH:
        raise UsageError(f"{where}: {wanted.producer_epoch} is no producer epoch")
    return wanted


def _how() -> str:
    return f"JSON Lines with {', '.join(NAMES)}; or CSV with these; or Flink's KafkaCommittable"


# --- text -----------------------------------------------------------------------------------------


def _parse_text(data: bytes, path: str) -> Iterator[Committable]:
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as exc:
        raise UsageError(
            f"{path}: position {exc.start}: is no text, and no committable of Flink",
            next_step=_how(),
        ) from exc
    lines = text.split("\n")
    for number, line in enumerate(lines, 1):
        where = f"{path}: line {number}"
        if not line.strip():
            continue
        parsed = _of_json(line, where) if line.lstrip()[0] == "{" else _of_csv(line, where)
        if parsed is not None:
            yield require_committable(parsed, where)


def _of_json(line: str, where: str) -> Committable:
    try:
        value = json.loads(line, object_pairs_hook=_once)
    except (ValueError, RecursionError) as exc:
        raise UsageError(f"{where}: no JSON: {exc}") from exc
    missing = [name for name in NAMES if name not in value]
    if missing:
        raise UsageError(f"{where}: lacks {', '.join(missing)}", next_step=_how())
    name, *numbers = (value[each] for each in NAMES)
    if not isinstance(name, str) or not all(type(each) is int for each in numbers):
        raise UsageError(
            f"{where}: a transactional_id is a string, the others are whole numbers",
            next_step=_how(),
        )
    return Committable(name, *numbers)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object after checking that its names are unique. Raises ValueError."""
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a name occurs twice")
    return found


def _of_csv(line: str, where: str) -> Committable | None:
    try:
        fields: list[Any] = next(csv.reader([line.rstrip("\r")], skipinitialspace=True))
        if tuple(fields) == NAMES:
            return None
        name, producer_id, epoch = fields
        return Committable(name, _whole(producer_id), _whole(epoch))
    except (ValueError, csv.Error) as exc:
        raise UsageError(
            f"{where}: are not the three fields {','.join(NAMES)}", next_step=_how()
        ) from exc


def _whole(text: str) -> int:
    """Parse a number. Raises ValueError."""
    if _WHOLE.fullmatch(text.strip()) is None:
        raise ValueError(text)
    return int(text)


# --- Flink ----------------------------------------------------------------------------------------


def _parse_flink(data: bytes, path: str) -> list[Committable]:
    """Parse plain or versioned committables. Only one of the two lengths fits."""
    errors = []
    for parse in (_versioned, _plain):
        try:
            return [*parse(data, path)]
        except UsageError as exc:
            errors.append(exc)
    is_versioned = data[: VERSIONED.size // 2] == VERSION.to_bytes(4, "big")
    raise errors[0 if is_versioned else 1]


def _versioned(data: bytes, path: str) -> Iterator[Committable]:
    pos = 0
    while pos < len(data):
        if len(data) - pos < VERSIONED_BYTES:
            raise _broken(path, pos, "ends within a committable")
        version, size_bytes = VERSIONED.unpack_from(data, pos)
        pos += VERSIONED_BYTES
        if version != VERSION:
            raise _broken(path, pos - VERSIONED_BYTES, f"version {version}, known is {VERSION}")
        if not 0 <= size_bytes <= len(data) - pos:
            raise _broken(path, pos, f"{size_bytes} bytes, {len(data) - pos} are left")
        found, end_pos = _one(data, pos, path)
        if end_pos != pos + size_bytes:
            raise _broken(path, pos, f"a committable of {end_pos - pos} bytes, not {size_bytes}")
        yield found
        pos = end_pos


def _plain(data: bytes, path: str) -> Iterator[Committable]:
    pos = 0
    while pos < len(data):
        found, pos = _one(data, pos, path)
        yield found


def _one(data: bytes, pos: int, path: str) -> tuple[Committable, int]:
    if len(data) - pos < HEAD_BYTES:
        raise _broken(path, pos, "ends within a committable")
    epoch, producer_id, size_bytes = HEAD.unpack_from(data, pos)
    start, end_pos = pos + HEAD_BYTES, pos + HEAD_BYTES + size_bytes
    if end_pos > len(data):
        raise _broken(path, pos, f"a transactional id of {size_bytes} bytes, and then it ends")
    try:
        name = _modified_utf8(data[start:end_pos])
    except UnicodeError as exc:
        raise _broken(path, start, f"no transactional id: {exc}") from exc
    found = Committable(name, producer_id, epoch)
    return require_committable(found, f"{path}: position {pos}"), end_pos


def _modified_utf8(data: bytes) -> str:
    """Decode DataOutputStream.writeUTF's output: U+0000 in two bytes, separate surrogates.

    Raises:
        UnicodeError: it is not modified UTF-8.
    """
    if any(each >= 0xF0 for each in data) or b"\0" in data:
        raise UnicodeError("bytes that Java does not write")
    with_surrogates = data.replace(b"\xc0\x80", b"\0").decode("utf-8", "surrogatepass")
    return with_surrogates.encode("utf-16-le", "surrogatepass").decode("utf-16-le")


def _broken(path: str, pos: int, what: str) -> UsageError:
    return UsageError(f"{path}: position {pos}: {what}", next_step=_how())
