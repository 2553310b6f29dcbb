"""Places in a segment, found in bulk as one batch after the other."""

from __future__ import annotations

import tempfile
from pathlib import Path
from unittest.mock import patch

from hypothesis import given, settings
from hypothesis import strategies as st

from storage.dirs import lookup
from storage.dirs.lookup import find_end
from storage.log.segment import open_segment
from tests.made_logs import damaged_logs, with_right_checksums


@given(data=damaged_logs(), right=st.booleans(), is_active=st.booleans())
@settings(max_examples=80)
def test_the_end_of_a_large_segment_is_that_of_a_small_one(
    data: bytes, right: bool, is_active: bool
) -> None:
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, f"{0:020}.log")
        path.write_bytes(with_right_checksums(data) if right else data)
        with open_segment(path) as segment:
            one_by_one = find_end(segment, (), is_active=is_active)
            with patch.object(lookup, "BULK_BYTES", 0):
                assert find_end(segment, (), is_active=is_active) == one_by_one
