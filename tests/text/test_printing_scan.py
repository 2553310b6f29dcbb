"""The native kernel prints what the plain functions say, however its pieces and threads fall."""

from __future__ import annotations

import errno
import os
import random
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eoctl.dump import log_text
from eoctl.dump.log_text import PrintingScan, PrintTo
from storage.files import positioned_file
from storage.files.positioned_file import LogCount, PositionedFile
from storage.formats.compression import Codec, compress
from storage.formats.java_text import kafka_text
from storage.formats.record import Record, encode_record
from storage.formats.record_batch import BatchHeader, encode_batch
from storage.kernels.kernel_choice import load_native
from storage.log.segment import Segment, open_segment
from tests.drawn import examples
from tests.made_logs import damaged_logs, logs, with_right_checksums
from tests.text.native_text import say_natively
from tests.text.plain_text import MODES, say_plainly

if TYPE_CHECKING:
    from collections.abc import Callable

    from storage.kernels.kernel_choice import Native

pytestmark = pytest.mark.native

SEGMENT_NAME = f"{0:020}.log"
MANY = 20_000  # more than the kernel writes at once


@pytest.fixture(autouse=True)
def native(monkeypatch: pytest.MonkeyPatch) -> Native:
    """The kernel, which has to print small logs too."""
    monkeypatch.setenv("EOCTL_KERNEL", "native")
    monkeypatch.setattr(log_text, "MIN_BYTES", 1)
    found = load_native()
    assert found is not None
    return found


def check_equal(
    data: bytes, modes: list[dict[str, bool]], threads: int = 1, **options: Any
) -> None:
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, SEGMENT_NAME)
        path.write_bytes(data)
        with open_segment(path) as segment:
            for mode in modes:
                plainly = say_plainly(segment, **mode, **options)
                assert say_natively(segment, threads=threads, **mode, **options) == plainly


@pytest.mark.share(2)
@pytest.mark.parametrize(
    "name", ["kafka-4.3.1/crash", "kafka-4.3.1/hard", "kafka-4.3.1/tv2", "kafka-0.10.2-legacy"]
)
def test_real_logs(golden: Callable[[str], Path], name: str) -> None:
    archive, _, state = name.partition("/")
    seen = 0
    for path in sorted((golden(archive) / state).rglob("*.log")):
        with open_segment(path) as segment:
            plainly = say_plainly(segment, resume=False, **MODES[2])
            assert say_natively(segment, resume=False, threads=1, **MODES[2]) == plainly, path
            seen += bool(plainly.text)
    assert seen >= 8


def test_one_line_is_what_kafka_says(golden: Callable[[str], Path]) -> None:
    text = (golden("kafka-4.3.1.dump") / f"crash/plain-0/{SEGMENT_NAME}.txt").read_bytes()
    with open_segment(golden("kafka-4.3.1") / f"crash/plain-0/{SEGMENT_NAME}") as segment:
        said = say_natively(segment, resume=True, threads=1, **MODES[2])
    assert said.text == b"".join(text.splitlines(keepends=True)[2 : 2 + said.text.count(b"\n")])


threads = st.integers(1, 3)
pieces = st.sampled_from([60, 200, 700, 4096])


@given(data=logs(), threads=threads, piece_bytes=pieces)
@settings(max_examples=examples(60))
def test_healthy_logs(data: bytes, threads: int, piece_bytes: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(log_text, "KERNEL_PIECE_BYTES", piece_bytes)
        check_equal(data, MODES, threads, resume=False)


@given(
    data=damaged_logs(),
    resume=st.booleans(),
    right=st.booleans(),
    threads=threads,
    piece_bytes=pieces,
    careful_bytes=st.sampled_from([1, 300]),
)
@settings(max_examples=examples(200))
def test_damaged_logs(
    data: bytes, resume: bool, right: bool, threads: int, piece_bytes: int, careful_bytes: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(log_text, "KERNEL_PIECE_BYTES", piece_bytes)
        patch.setattr(log_text, "MIN_BYTES", careful_bytes)
        check_equal(with_right_checksums(data) if right else data, MODES, threads, resume=resume)


@given(data=logs(), limit=st.integers(1, 400))
@settings(max_examples=examples(30))
def test_a_limit_for_decompressed_batches_is_kept(data: bytes, limit: int) -> None:
    check_equal(data, [MODES[2]], resume=False, max_batch_bytes=limit)


def batch_of(
    base_offset: int, count: int, *, codec: int = 0, is_cut: bool = False, first_delta: int = 0
) -> bytes:
    """A batch of many small records, of which the last may say that it is longer than it is."""
    records = [
        encode_record(Record(0, n, first_delta + n, None, b"v%d" % n, ())) for n in range(count)
    ]
    if is_cut:
        records[-1] = b"\x7e" + records[-1][1:]
    header = BatchHeader(
        base_offset=base_offset,
        batch_length=0,
        partition_leader_epoch=0,
        magic=2,
        crc=0,
        attributes=codec,
        last_offset_delta=count - 1,
        base_timestamp_ms=1_700_000_000_000,
        max_timestamp_ms=1_700_000_000_000 + count,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        records_count=count,
    )
    return encode_batch(header, compress(codec, b"".join(records)))


@pytest.mark.share(1)
@pytest.mark.parametrize("codec", Codec)
def test_a_batch_of_very_many_records(codec: Codec) -> None:
    """Its lines are written before all are made; the batches around it are in place."""
    parts = batch_of(0, 3), batch_of(3, MANY, codec=codec), batch_of(3 + MANY, 2)
    for threads in (1, 2):
        check_equal(b"".join(parts), [MODES[2]], threads, resume=True)


def test_very_many_records_of_which_the_last_is_bad() -> None:
    parts = batch_of(0, 3), batch_of(3, MANY, is_cut=True), batch_of(3 + MANY, 2)
    check_equal(b"".join(parts), [MODES[2]], resume=True)


def test_what_was_printed_and_is_doubted_is_not_printed_again() -> None:
    """What lies behind damage contradicts the offsets of two batches, which stand in the text."""
    before = b"".join(batch_of(offset, 1) for offset in range(150, 160))
    raised, doubted = batch_of(1 << 38, 1), batch_of(161, 1) + batch_of(162, 1)
    behind = b"".join(batch_of(offset, 1) for offset in range(160, 170))
    check_equal(before + raised + doubted + b"\x7f" * 40 + behind, MODES, resume=True)


def test_a_doubt_is_kept_though_the_kernel_could_go_on() -> None:
    """Found by fuzzing: a batch for the plain scan, and one that contradicts what lies behind."""
    check_equal(DOUBTED, MODES, resume=True, max_batch_bytes=300)


DOUBTED = bytes.fromhex(
    "0000000000000000000000920000000002d213fa3c001400000000000001a1fbfca140000001a1fbfca14000"
    "000000000000230000000000000000000128b52ffd0058c5020022071516c02507bffeffff2080cc4c0dfc65"
    "66666662950996ec82460fd343655a76a4b1943c3f0e3aca76b54c6de6975f5ba4839f6ff1d5097ad3ec8dd1"
    "32c9fda77c4f298ec4a4c574cfe51ccc2e28082400104208830000000000000000220000004200000000021f"
    "e1b76d003000000000000001a1fc0aaee5000001a1fc0aaee500000000000000260000ffffffff0000000120"
    "00000008000000000c000000000000000000000000000000050000006ef8ad9ca30002f6c4ce2b0010000000"
    "00000001a1fbfca148000001a1fbfca14800000000000000830000000000000000000178000000046b316838"
    "6136303964666662313831656238623537653565623830393436303934363039343630393436386131323765"
    "30656631653036000000000002000001a1fbfca151000001a1"
)


def test_an_offset_beyond_all_that_can_be() -> None:
    """The plain scan gives its records, whose offsets have more than 64 bits."""
    healthy = b"".join(batch_of(offset, 1) for offset in range(20))
    for beyond in (batch_of(2**63 - 2, 5), batch_of(-(2**63), 5, first_delta=-9)):
        for log in (beyond + healthy, healthy + beyond + healthy, beyond * 2 + healthy):
            check_equal(log, MODES, resume=True)


def test_a_writer_that_fails_ends_the_work(golden: Callable[[str], Path], native: Native) -> None:
    def closed(_: bytes) -> None:
        raise BrokenPipeError

    path = golden("kafka-4.3.1") / f"crash/plain-0/{SEGMENT_NAME}"
    for threads in (1, 2):
        print_to = PrintTo(
            records=None,
            max_batch_bytes=1 << 20,
            threads=threads,
            write=closed,
            before=lambda: -1,
            after=lambda *_: None,
        )
        with open_segment(path) as segment, pytest.raises(BrokenPipeError):
            list(PrintingScan(segment, native, print_to))


def test_what_cannot_be_read_is_left_to_the_plain_scan(golden: Callable[[str], Path]) -> None:
    """A file whose reads are not the operating system's own is never read behind its back."""

    def bad_sector(fd: int, view: memoryview, pos: int) -> int:
        if pos <= 1024 < pos + len(view):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return os.preadv(fd, [view], pos)

    path = golden("kafka-4.3.1") / f"crash/plain-0/{SEGMENT_NAME}"
    segment = Segment(PositionedFile(path, pread=bad_sector), 0)
    with segment:
        said = say_natively(segment, resume=True, threads=1, **MODES[2])
        assert [each.kind for each in said.verdicts] == ["unreadable"]
        assert said == say_plainly(segment, resume=True, **MODES[2])


def test_progress_counts_what_the_kernel_reads(golden: Callable[[str], Path]) -> None:
    path, count = golden("kafka-4.3.1") / f"crash/plain-0/{SEGMENT_NAME}", LogCount()
    positioned_file.watch(count)
    try:
        with open_segment(path) as segment:
            say_natively(segment, resume=True, threads=1, **MODES[0])
    finally:
        positioned_file.watch(None)
    assert count.count_bytes == path.stat().st_size


# --- text


PARTS = [
    bytes([each])
    for each in b"A\x7f\x80\x8f\x90\x9f\xa0\xbf\xc0\xc2\xdf\xe0\xe1\xec\xed\xee\xef\xf0\xf1\xf3\xf4\xf5\xff"
]


def test_malformed_text_is_replaced_as_java_does(native: Native) -> None:
    """All strings of one and two of the bytes that matter, and a share of the longer ones."""
    chosen = random.Random(int(os.environ["EOCTL_SEED"]))
    short = [one + two for one in (b"", *PARTS) for two in (b"", *PARTS)]
    long = [b"".join(chosen.choices(PARTS, k=chosen.randrange(3, 12))) for _ in range(20_000)]
    others = [chosen.randbytes(chosen.randrange(40)) for _ in range(5_000)]
    for data in (*short, *long, *others):
        assert native.kafka_text(data) == kafka_text(data).encode(), data.hex()
