"""Write big segments quickly: v2 batches from several idempotent producers, with their indexes.

A pool of a few MiB of batches is encoded once, plainly; the file is that pool over and over, each
time with its own offsets, sequences, timestamps and checksums. See `python -m bench.make_log -h`.
"""

from __future__ import annotations

import argparse
import random
from functools import partial
from pathlib import Path
from struct import Struct
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from crc32c import crc32c

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

MIB = 1 << 20
POOL_BYTES = 8 * MIB
INDEX_INTERVAL_BYTES = 4096
BASE_TIMESTAMP_MS = 1_700_000_000_000
FIRST_PRODUCER_ID = 1000

HEADER = Struct(">qiibIhiqqqhii")
HEADER_DTYPE = np.dtype(
    {
        "names": ["base_offset", "crc", "base_ts", "max_ts", "pid", "epoch", "base_sequence"],
        "formats": [">i8", ">u4", ">i8", ">i8", ">i8", ">i2", ">i4"],
        "offsets": [0, 17, 27, 35, 43, 51, 53],
        "itemsize": 61,
    }
)


class Content(NamedTuple):
    """One record before it is encoded."""

    key: bytes | None
    value: bytes | None
    headers: list[tuple[bytes, bytes | None]]


class Sizes(NamedTuple):
    """How large batches get: each is filled until the next record would exceed its target."""

    low_bytes: int
    high_bytes: int


SIZES = {
    "200": Sizes(200, 200),
    "1k": Sizes(1024, 1024),
    "16k": Sizes(16384, 16384),
    "mixed": Sizes(100, 65536),  # log-uniform
}


def _varint(value: int) -> bytes:
    rest = (value << 1) ^ (value >> 63)
    out = bytearray()
    while rest > 0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)


def _sized(data: bytes | None) -> bytes:
    return _varint(-1) if data is None else _varint(len(data)) + data


def _record(content: Content, timestamp_delta_ms: int, offset_delta: int) -> bytes:
    body = b"\0" + _varint(timestamp_delta_ms) + _varint(offset_delta)
    body += _sized(content.key) + _sized(content.value) + _varint(len(content.headers))
    body += b"".join(_sized(key) + _sized(value) for key, value in content.headers)
    return _varint(len(body)) + body


def _log_uniform(rng: random.Random, low: float, high: float) -> int:
    return int(low * (high / low) ** rng.random())


def uniform_content(rng: random.Random) -> Content:
    """Keys of 16 bytes and values of 86, all ASCII."""
    number = rng.randrange(10**9)
    value = b'{"id":%09d,"state":"paid","total":%08d,"text":"' % (number, number % 10**8)
    return Content(b"customer-%07d" % (number % 10**7), value.ljust(84, b"x") + b'"}', [])


WORDS = "abcdefgh ijklmnop qrstuvwx {}[]:, 0123456789"
FOREIGN = "äöüß ключ 値 naïve €"


def varied_content(rng: random.Random) -> Content:
    """Values of 0 to 2000 bytes, headers on a fifth, nulls, and a tenth that is not ASCII."""
    size_bytes = _log_uniform(rng, 1, 2001) - 1 if rng.random() < 0.98 else 0
    letters = WORDS if rng.random() < 0.9 else WORDS + FOREIGN
    text = "".join(rng.choices(letters, k=size_bytes)).encode()
    value = None if rng.random() < 0.05 else text[:size_bytes].decode("utf-8", "ignore").encode()
    key = None if rng.random() < 0.1 else b"k" * rng.randrange(3) + b"%d" % rng.randrange(10**6)
    headers: list[tuple[bytes, bytes | None]] = []
    if rng.random() < 0.2:
        names = rng.choices([b"trace", b"span-id", b"tenant", "ключ".encode()], k=rng.randint(1, 3))
        headers = [(name, b"%x" % rng.getrandbits(64)) for name in names]
    return Content(key, value, headers)


def binary_content(rng: random.Random) -> Content:
    """Values that are not text at all."""
    return Content(rng.randbytes(8), rng.randbytes(_log_uniform(rng, 8, 400)), [])


CONTENTS: dict[str, Callable[[random.Random], Content]] = {
    "uniform": uniform_content,
    "varied": varied_content,
    "binary": binary_content,
}


class Pool(NamedTuple):
    """Encoded batches back to back, and what changes from one copy of them to the next."""

    data: NDArray[np.uint8]
    pos: NDArray[np.int64]
    batch_bytes: NDArray[np.int64]
    counts: NDArray[np.int64]
    producer: NDArray[np.int64]
    timestamp_span_ms: NDArray[np.int64]


def _encode_batch(contents: list[Content], body: bytes, attributes: int) -> bytes:
    count = len(contents)
    header = (0, 49 + len(body), 0, 2, 0, attributes, count - 1, 0, 0, 0, 0, 0, count)
    return HEADER.pack(*header) + body


def _one_batch(
    rng: random.Random, sizes: Sizes, content: Callable[[random.Random], Content], codec: str
) -> tuple[bytes, int, int]:
    """Encode one batch; returns it, its record count and its last timestamp delta."""
    target = _log_uniform(rng, sizes.low_bytes, sizes.high_bytes)
    contents: list[Content] = []
    body = b""
    parts: list[bytes] = []
    used = 61
    timestamp_delta_ms = 0
    while True:
        made = content(rng)
        delta = timestamp_delta_ms + (rng.randrange(3) if contents else 0)
        body = _record(made, delta, len(contents))
        if contents and used + len(body) > target:
            break
        timestamp_delta_ms = delta
        contents.append(made)
        parts.append(body)
        used += len(body)
        if used >= target:
            break
    attributes, compress = CODECS[codec]
    return (
        _encode_batch(contents, compress(b"".join(parts)), attributes),
        len(contents),
        timestamp_delta_ms,
    )


def _lz4(data: bytes) -> bytes:
    import lz4.frame

    frame: bytes = lz4.frame.compress(data, block_linked=False, store_size=False)
    return frame


def _zstd(data: bytes) -> bytes:
    import zstandard

    return zstandard.ZstdCompressor(level=3).compress(data)


def _gzip(data: bytes) -> bytes:
    import gzip

    return gzip.compress(data, mtime=0)


CODECS: dict[str, tuple[int, Callable[[bytes], bytes]]] = {
    "none": (0, bytes),
    "gzip": (1, _gzip),
    "lz4": (3, _lz4),
    "zstd": (4, _zstd),
}


def make_pool(
    *, sizes: Sizes, values: str, codec: str, producers: int, pool_bytes: int, seed: int
) -> Pool:
    """Encode about `pool_bytes` of batches; the batch count is a multiple of `producers`."""
    rng = random.Random(seed)
    batches: list[tuple[bytes, int, int]] = []
    total = 0
    while total < pool_bytes or len(batches) % producers:
        batches.append(_one_batch(rng, sizes, CONTENTS[values], codec))
        total += len(batches[-1][0])
    batch_bytes = np.array([len(each[0]) for each in batches], np.int64)
    return Pool(
        data=np.frombuffer(b"".join(each[0] for each in batches), np.uint8),
        pos=np.cumsum(batch_bytes) - batch_bytes,
        batch_bytes=batch_bytes,
        counts=np.array([each[1] for each in batches], np.int64),
        producer=np.arange(len(batches), dtype=np.int64) % producers,
        timestamp_span_ms=np.array([each[2] for each in batches], np.int64),
    )


def copies(pool: Pool, base_offset: int) -> Iterator[tuple[NDArray[np.uint8], NDArray[np.void]]]:
    """Yield the pool again and again, as bytes and as its headers, with what must differ filled."""
    first_offset = np.cumsum(pool.counts) - pool.counts
    sequence = np.zeros_like(pool.counts)
    per_producer = np.bincount(pool.producer, pool.counts).astype(np.int64)
    for producer in range(len(per_producer)):
        mine = pool.producer == producer
        sequence[mine] = np.cumsum(pool.counts[mine]) - pool.counts[mine]
    data = pool.data.copy()
    view = data.data
    headers = np.ndarray((len(data) - 60,), HEADER_DTYPE, data, 0, (1,))
    crc_slices = list(map(slice, pool.pos + 21, pool.pos + pool.batch_bytes))
    rounds = 0
    while True:
        rows = headers[pool.pos]
        rows["base_offset"] = base_offset + first_offset
        rows["base_ts"] = BASE_TIMESTAMP_MS + (rounds * len(rows) + np.arange(len(rows))) // 4
        rows["max_ts"] = rows["base_ts"] + pool.timestamp_span_ms
        rows["pid"] = FIRST_PRODUCER_ID + pool.producer
        rows["base_sequence"] = sequence
        headers[pool.pos] = rows
        crcs = map(crc32c, map(view.__getitem__, crc_slices))
        rows["crc"] = np.fromiter(crcs, np.uint32, len(rows))
        headers[pool.pos] = rows
        yield data, rows
        base_offset += int(pool.counts.sum())
        sequence += per_producer[pool.producer]
        rounds += 1


class _Indexes:
    """What a broker (4.1 and later) writes to `.index` and `.timeindex` while it appends."""

    def __init__(self, base_offset: int) -> None:
        self.base_offset = base_offset
        self.offset_entries: list[tuple[int, int]] = []
        self.time_entries: list[tuple[int, int]] = []
        self._since_entry = 0
        self._max = (-1, base_offset)

    def add(self, pos: int, batch_bytes: int, last_offset: int, max_timestamp_ms: int) -> None:
        if max_timestamp_ms > self._max[0]:
            self._max = (max_timestamp_ms, last_offset)
        if self._since_entry > INDEX_INTERVAL_BYTES:
            self.offset_entries.append((last_offset - self.base_offset, pos))
            self.add_time()
            self._since_entry = 0
        self._since_entry += batch_bytes

    def add_time(self) -> None:
        timestamp_ms, offset = self._max
        if not self.time_entries or timestamp_ms > self.time_entries[-1][0]:
            self.time_entries.append((timestamp_ms, offset - self.base_offset))

    def write(self, path: Path) -> None:
        self.add_time()
        path.with_suffix(".index").write_bytes(np.array(self.offset_entries, ">i4").tobytes())
        pack = Struct(">qi").pack
        path.with_suffix(".timeindex").write_bytes(
            b"".join(pack(timestamp, offset) for timestamp, offset in self.time_entries)
        )


def make_segment(
    directory: Path,
    *,
    total_bytes: int,
    size: str = "1k",
    values: str = "uniform",
    codec: str = "none",
    producers: int = 8,
    base_offset: int = 0,
    seed: int = 1,
) -> Path:
    """Write one closed segment of about `total_bytes` with its indexes; returns the `.log`."""
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"{base_offset:020d}.log"
    pool_bytes = min(POOL_BYTES, total_bytes)
    encode = partial(make_pool, sizes=SIZES[size], values=values, codec=codec, seed=seed)
    pool = encode(producers=producers, pool_bytes=pool_bytes)
    indexes = _Indexes(base_offset)
    written = 0
    with path.open("wb") as log:
        for data, rows in copies(pool, base_offset):
            keep = int(np.searchsorted(written + pool.pos, total_bytes))
            end = int((pool.pos + pool.batch_bytes)[keep - 1])
            log.write(data[:end].data)
            columns = (
                written + pool.pos,
                pool.batch_bytes,
                rows["base_offset"] + pool.counts - 1,
                rows["max_ts"],
            )
            for row in zip(*(column[:keep].tolist() for column in columns), strict=True):
                indexes.add(*row)
            written += end
            if written >= total_bytes:
                break
    indexes.write(path)
    return path


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--mib", type=int, default=512, help="size of the segment")
    parser.add_argument("--size", choices=sorted(SIZES), default="1k", help="size of batches")
    parser.add_argument("--values", choices=sorted(CONTENTS), default="uniform")
    parser.add_argument("--codec", choices=sorted(CODECS), default="none")
    parser.add_argument("--producers", type=int, default=8)
    chosen = parser.parse_args()
    path = make_segment(
        chosen.directory,
        total_bytes=chosen.mib * MIB,
        size=chosen.size,
        values=chosen.values,
        codec=chosen.codec,
        producers=chosen.producers,
    )
    print(path)


if __name__ == "__main__":
    main()
