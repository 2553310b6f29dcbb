"""The native kernel: it says what the plain functions say, and no bytes and no numbers make it fail."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import numpy as np

from eoctl.dump import log_text
from storage.formats.java_text import kafka_text
from storage.kernels import native_kernel, numpy_kernel
from storage.kernels.kernel_choice import native_module
from storage.kernels.layouts import empty_table
from tests.text.native_text import say_natively
from tests.text.plain_text import MODES, say_plainly

from .engine import Target
from .mutations import repair_log
from .segment_targets import chance, log_seeds, segment_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from storage.kernels.kernel_choice import Native

# What a caller may do wrong; anything else would be a panic.
REFUSED = (OverflowError, ValueError, TypeError)
PIECES_BYTES = (61, 100, 700, 4096, 256 << 10)


def _printed(data: bytes) -> None:
    """A log is printed as the plain functions print it, in pieces of any size, by any threads."""
    rnd = chance(data)
    mode: dict[str, Any] = {**rnd.choice(MODES), "resume": rnd.random() < 0.6}
    mode["max_batch_bytes"] = rnd.choice((1 << 20, 1 << 20, 300))
    old = log_text.MIN_BYTES, log_text.KERNEL_PIECE_BYTES
    log_text.MIN_BYTES = rnd.choice((1, 1, 300))
    log_text.KERNEL_PIECE_BYTES = rnd.choice(PIECES_BYTES)
    try:
        with segment_of(data) as segment:
            natively = say_natively(segment, threads=rnd.choice((1, 2, 3)), **mode)
            assert natively == say_plainly(segment, **mode)
    finally:
        log_text.MIN_BYTES, log_text.KERNEL_PIECE_BYTES = old


def _headers(data: bytes) -> None:
    """Headers without bodies are those of the plain scan, in stretches and pieces of any size."""
    rnd = chance(data)
    sizes: dict[str, Any] = {"WINDOW_BYTES": rnd.choice((100, 700, 5000)), "CAREFUL_BYTES": 70}
    read_sizes: dict[str, Any] = {"STRETCH_BYTES": rnd.choice((300, 2000))}
    read_sizes["PIECE_BYTES"] = rnd.choice(PIECES_BYTES)
    resume = rnd.random() < 0.6
    with (
        patch.multiple(numpy_kernel, **sizes),
        patch.multiple(native_kernel, **read_sizes),
        segment_of(data) as segment,
    ):
        plain = segment.scan(resume=resume)
        rows = numpy_kernel.table_of(plain)
        scan = numpy_kernel.scan_tables(segment, threads=rnd.choice((1, 2, 3)), resume=resume)
        found = [np.concatenate(column) for column in zip(empty_table(), *scan, strict=True)]
        assert [each.tolist() for each in found] == [each.tolist() for each in rows]
        assert scan.verdicts == plain.verdicts


def _called(data: bytes) -> None:
    """Any bytes with any numbers give a result or an error that is the caller's."""
    native = native_module()
    assert native is not None
    rnd = chance(data)
    view = memoryview(data)
    assert native.kafka_text(data) == kafka_text(data).encode()
    neighbours = _number(rnd), _number(rnd), _number(rnd), -1
    _call(lambda: native.scan_window(view, _number(rnd), neighbours, verify_crc=False))
    with segment_of(data) as segment:
        _call(
            lambda: native.read_headers(
                segment.path,
                start=(_number(rnd, len(data)), _number(rnd), -1),
                walk_to_pos=_number(rnd, len(data)),
                end_pos=_number(rnd, len(data)),
                limits=(_number(rnd), _number(rnd)),
                verify_crc=False,
                threads=rnd.randrange(4),
                piece_bytes=rnd.choice(PIECES_BYTES),
            )
        )
    starts = np.array([_number(rnd, len(data)) for _ in range(rnd.randrange(9))], np.int64)
    limits = rnd.choice((1 << 20, 100)), rnd.choice((1 << 20, 100))
    _call(
        lambda: native.decode_records(
            view,
            _number(rnd),
            starts,
            is_compressed=rnd.random() < 0.5,
            max_batch_bytes=limits[0],
            max_source_bytes=limits[1],
        )
    )
    _written(native, data, rnd)
    source = np.frombuffer(data, np.uint8)
    rows = rnd.randrange(6)
    columns = [
        np.array([_number(rnd, len(data)) for _ in range(rows)], np.int64) for _ in range(12)
    ]
    named = "value", source, columns[0], columns[1]
    lines = [
        ("n", columns[2]),
        (["a", "b"], columns[3]),
        named,
        ("h", columns[4], (named, ("key", source, columns[5], columns[6]))),
    ]
    for write in (
        lambda: native.json_lines(source, columns, "null", is_base64=rnd.random() < 0.5),
        lambda: native.object_lines(
            rnd.sample(lines, rnd.randrange(5)), rows + rnd.randrange(2), is_text=rnd.random() < 0.5
        ),
    ):
        try:
            _call(write)
        except RuntimeError as error:
            assert str(error) == "columns that do not fit"  # noqa: PT017 - a panic is one too


def _written(native: Native, data: bytes, rnd: Random) -> None:
    values = data.split(b"\0")
    stamp = _number(rnd), 1, _number(rnd), 2, rnd.choice((-1, 0, 2**31 - 1))
    sizes = np.array([_number(rnd, len(data)) for _ in range(rnd.randrange(4))], np.int64)
    batches = [(rnd.randrange(300), rnd.randrange(4)) for _ in range(rnd.randrange(3))]
    bounds = _number(rnd, len(values)), _number(rnd, len(values))
    most = rnd.randrange(2000), rnd.randrange(9)
    _call(
        lambda: native.cut_values(
            values, bounds, rnd.randrange(9), batch_bytes=most[0], batch_records=most[1]
        )
    )
    for refused, write in (
        (
            ("values that do not fill the batches",),
            lambda: native.encode_values(
                values,
                rnd.randrange(3),
                batches,
                stamp,
                timestamp_ms=_number(rnd),
                is_transactional=rnd.random() < 0.5,
            ),
        ),
        (
            ("sizes that are not those of the batches",),
            lambda: native.stamp_batches(memoryview(data), sizes, stamp),
        ),
    ):
        try:
            _call(write)
        except RuntimeError as error:
            assert str(error) in refused  # noqa: PT017 - a panic is one too
        except IndexError:
            continue


def _number(rnd: Random, size: int = 0) -> int:
    if size and rnd.random() < 0.7:
        return rnd.randrange(size)
    return rnd.choice((0, 1, -1, 5, 2**31, 2**62, 2**63 - 1, -(2**63)))


def _call(work: Callable[[], object]) -> None:
    try:
        work()
    except REFUSED:
        return


TARGETS = (
    []
    if native_module() is None
    else [
        Target("native_printed", _printed, log_seeds, 300, repair_log),
        Target("native_headers", _headers, log_seeds, 300, repair_log),
        Target("native_called", _called, log_seeds, 300, repair_log),
    ]
)
