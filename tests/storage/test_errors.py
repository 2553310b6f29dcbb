"""The error tree: statuses, fields, words, and that errors travel between processes."""

from __future__ import annotations

import errno
import pickle

import pytest

from storage.errors import (
    AccessError,
    CorruptError,
    EoctlError,
    RefusedError,
    TruncatedError,
    UsageError,
)
from storage.producers.producer_state import AppendError

ERRORS = [
    UsageError("no", next_step="yes"),
    AccessError(PermissionError(errno.EACCES, "Permission denied", "a"), next_step="sudo"),
    RefusedError("held"),
    CorruptError("bad", check_id="BAT-1", pos=3, expected="x", found="y").located("f", 10),
    TruncatedError("batch", check_id="BAT-2", pos=0, needed_bytes=61, available_bytes=-3),
    AppendError("INVALID_TXN_STATE", "why", producer_id=7, offset=9),
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_errors_travel_whole(error: EoctlError) -> None:
    """Class, text and every field survive."""
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is type(error)
    assert str(copy) == str(error)
    assert vars(copy) == vars(error)
    assert copy.exit_status == error.exit_status


def test_a_format_error_says_where_and_what() -> None:
    """Path, position in the file, rule, expectation."""
    text = str(
        CorruptError("bad", check_id="BAT-1", pos=3, expected="x", found="y").located("f", 9)
    )
    assert text == "f: position 12: bad [BAT-1] (expected x, found y)"
    assert "found 0 bytes" in str(ERRORS[4])
