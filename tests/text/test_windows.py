"""What numpy decodes many batches at a time is printed as what is decoded one by one."""

from __future__ import annotations

import tempfile
from pathlib import Path
from unittest.mock import patch

from hypothesis import given, settings
from hypothesis import strategies as st

from eoctl.dump import log_text
from storage.kernels import numpy_kernel, record_table
from tests.drawn import examples
from tests.in_process import called, streams_in
from tests.made_logs import damaged_logs, with_right_checksums

SEGMENT_NAME = f"{0:020}.log"
MODES: tuple[tuple[str, ...], ...] = (
    (),
    ("--deep-iteration",),
    ("--print-data-log",),
    ("--print-data-log", "--skip-record-metadata"),
)


def said(path: Path, kernel: str, options: tuple[str, ...]) -> tuple[int, bytes, bytes]:
    out, err = path.with_name("out"), path.with_name("err")
    with patch.dict("os.environ", {"EOCTL_KERNEL": kernel}), streams_in(out, err):
        status = called(["dump-segment", *options, str(path)])
    return status, out.read_bytes(), err.read_bytes()


@given(
    data=damaged_logs(),
    options=st.sampled_from(MODES),
    has_right_checksums=st.booleans(),
    is_in_pieces=st.booleans(),
)
@settings(max_examples=examples(60))
def test_damaged_logs(
    data: bytes, options: tuple[str, ...], has_right_checksums: bool, is_in_pieces: bool
) -> None:
    source, records, window = (300, 3, 600) if is_in_pieces else (1 << 20, 65_536, 1 << 20)
    with (
        tempfile.TemporaryDirectory() as directory,
        patch.dict(log_text.BULK_MIN_BYTES, {"numpy": 1}),
        patch.multiple(record_table, MAX_SOURCE_BYTES=source, PIECE_RECORDS=records),
        patch.multiple(numpy_kernel, WINDOW_BYTES=window),
    ):
        path = Path(directory, "t-0", SEGMENT_NAME)
        path.parent.mkdir()
        path.write_bytes(with_right_checksums(data) if has_right_checksums else data)
        assert said(path, "numpy", options) == said(path, "pure", options)
