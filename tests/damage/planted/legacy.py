"""Faults in message sets of formats v0 and v1: BAT-1 to BAT-3, and BAT-17."""

from __future__ import annotations

import gzip
import struct
import zlib
from typing import TYPE_CHECKING

from tests.damage.planted import layout
from tests.damage.planted.shape import Expected, Faults

if TYPE_CHECKING:
    from pathlib import Path

FAULTS = Faults()
LOG = "00000000000000000000.log"
NONE, GZIP = f"v1-none-0/{LOG}", f"v1-gzip-0/{LOG}"


def _messages(data: bytes | bytearray) -> list[tuple[int, int]]:
    """(pos, size) of every message of an undamaged file."""
    found = []
    pos = 0
    while pos < len(data):
        size = struct.unpack_from(">i", data, pos + 8)[0] + 12
        found.append((pos, size))
        pos += size
    assert pos == len(data)
    return found


def _sealed(message: bytes) -> bytes:
    return message[:12] + struct.pack(">I", zlib.crc32(message[16:])) + message[16:]


def _replace_last(log: Path, message: bytes) -> int:
    """Put another message, of any size, in the place of the last one. Returns its position."""
    data = log.read_bytes()
    pos, _ = _messages(data)[-1]
    layout.write(log, data[:pos] + message)
    return pos


def _inner_of_last(log: Path) -> tuple[bytes, bytearray]:
    """(wrapper up to its value's length, inner messages) of the last wrapper of v1-gzip-0."""
    data = log.read_bytes()
    pos, size = _messages(data)[-1]
    assert struct.unpack_from(">i", data, pos + 26)[0] == -1  # the key is null
    return data[pos : pos + 30], bytearray(gzip.decompress(data[pos + 34 : pos + size]))


def _wrapped(head: bytes, value: bytes) -> bytes:
    raw = head[:8] + struct.pack(">i", 22 + len(value)) + head[12:]
    return _sealed(raw + struct.pack(">i", len(value)) + value)


@FAULTS.plants("legacy", "v0-none-0")
def bit_in_a_v0_message(log_dir: Path) -> Expected:
    log = log_dir / "v0-none-0" / LOG
    pos, size = _messages(log.read_bytes())[7]
    layout.flip(log, pos + size - 1)
    return Expected("BAT-1", f"v0-none-0/{LOG}", pos, "error")


@FAULTS.plants("legacy", "v1-none-0")
def v1_length_too_small(log_dir: Path) -> Expected:
    pos, _ = _messages((log_dir / NONE).read_bytes())[7]
    layout.patch(log_dir / NONE, pos + 8, struct.pack(">i", 5))
    return Expected("BAT-2", NONE, pos, "error")


@FAULTS.plants("legacy", "v1-none-0")
def v1_offset_repeated(log_dir: Path) -> Expected:
    """The checksum does not cover it."""
    pos, _ = _messages((log_dir / NONE).read_bytes())[7]
    layout.patch(log_dir / NONE, pos, struct.pack(">q", 6))
    return Expected("BAT-3", NONE, pos, "error")


@FAULTS.plants("legacy", "v1-gzip-0", deep=True)
def wrapper_with_key(log_dir: Path) -> Expected:
    """An empty key is not a null one. Readers do not look at it."""
    head, inner = _inner_of_last(log_dir / GZIP)
    pos = _replace_last(
        log_dir / GZIP, _wrapped(head[:26] + bytes(4), gzip.compress(inner, mtime=0))
    )
    return Expected("BAT-17", GZIP, pos, "warning")


@FAULTS.plants("legacy", "v1-gzip-0", deep=True)
def wrapper_not_decompressible(log_dir: Path) -> Expected:
    head, _ = _inner_of_last(log_dir / GZIP)
    pos = _replace_last(log_dir / GZIP, _wrapped(head, b"\xee" * 200))
    return Expected("BAT-17", GZIP, pos, "error")


@FAULTS.plants("legacy", "v1-gzip-0", deep=True)
def inner_checksum_wrong(log_dir: Path) -> Expected:
    head, inner = _inner_of_last(log_dir / GZIP)
    pos, _ = _messages(inner)[3]
    inner[pos + 15] ^= 1
    return Expected(
        "BAT-17", GZIP, _replace_last(log_dir / GZIP, _wrapped(head, gzip.compress(inner, mtime=0)))
    )


@FAULTS.plants("legacy", "v1-gzip-0", deep=True)
def inner_offsets_unsound(log_dir: Path) -> Expected:
    """The second relative offset is the first one again."""
    head, inner = _inner_of_last(log_dir / GZIP)
    pos, _ = _messages(inner)[1]
    inner[pos : pos + 8] = bytes(8)
    return Expected(
        "BAT-17", GZIP, _replace_last(log_dir / GZIP, _wrapped(head, gzip.compress(inner, mtime=0)))
    )


@FAULTS.plants("legacy", "v1-gzip-0", deep=True)
def wrapper_without_messages(log_dir: Path) -> Expected:
    head, _ = _inner_of_last(log_dir / GZIP)
    pos = _replace_last(log_dir / GZIP, _wrapped(head, gzip.compress(b"", mtime=0)))
    return Expected("BAT-17", GZIP, pos, "error")
