"""Wrappers of v0 and v1 whose checksums are right and whose inner offsets are not."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from storage.formats.compression import Codec, compress
from storage.formats.legacy_message import MAGIC_V0, Message, encode_message, with_crc
from tests.copying import Copy, contents
from tests.read_log import read_log
from tests.writing import make_log_dir

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from tests.running import Outcome

    Eoctl = Callable[..., Outcome]

# Inner offsets of the second wrapper, absolute; the first one ends at offset 2, this one at 5.
WRONG = {
    "one again": (2, 4, 5),
    "below all": (-3, -2, 5),
    "backwards": (5, 4, 5),
    "the same twice": (3, 3, 5),
    "above the wrapper's": (3, 104, 5),
}


def message(magic: int, offset: int, value: bytes, codec: Codec = Codec.NONE) -> bytes:
    timestamp_ms = 1000 if magic else -1
    return encode_message(with_crc(Message(offset, 0, magic, codec, timestamp_ms, None, value)))


def wrapper(magic: int, offsets: Sequence[int]) -> bytes:
    last = offsets[-1]
    # The last one of a v1 wrapper tells where the others are.
    base = 0 if magic == MAGIC_V0 else offsets[0]
    inner = [message(magic, each - base, b"value %d" % each) for each in offsets]
    body = compress(Codec.GZIP, b"".join(inner), magic=magic)
    return message(magic, last, body, Codec.GZIP)


def write(root: Path, *wrappers: bytes) -> Path:
    directory = make_log_dir(root / "source") / "t-0"
    directory.mkdir()
    (directory / f"{0:020d}.log").write_bytes(b"".join(wrappers))
    return directory


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("offsets", WRONG.values(), ids=WRONG)
def test_offsets_that_do_not_ascend_are_damage(
    offsets: tuple[int, ...], magic: int, eoctl: Eoctl, tmp_path: Path
) -> None:
    """No record is passed over as if it had been given; a copy never ends with "equal"."""
    source = write(
        tmp_path,
        wrapper(magic, (0, 1, 2)),
        wrapper(magic, offsets),
        wrapper(magic, (6, 7)),
    )
    outcome = eoctl("consume", source)
    assert outcome.status == 1
    assert outcome.text.split() == ["value", "0", "value", "1", "value", "2"]
    assert "BAT-17" in outcome.errors
    skipped = eoctl("consume", source, "--skip-corrupt")
    assert skipped.status == 5
    assert skipped.text.splitlines() == [f"value {n}" for n in (0, 1, 2, 6, 7)]
    made = Copy(eoctl, source, make_log_dir(tmp_path / "target") / "u-0")
    made.refused("BAT-17", status=1)
    assert len(read_log(made.destination).records) == 3


@pytest.mark.parametrize("magic", [0, 1])
def test_offsets_with_gaps_are_none(magic: int, eoctl: Eoctl, tmp_path: Path) -> None:
    """A cleaner leaves them; and reading may begin inside of a wrapper."""
    source = write(tmp_path, wrapper(magic, (0, 2)), wrapper(magic, (4, 7, 9)))
    made = Copy(eoctl, source, make_log_dir(tmp_path / "target") / "u-0")
    assert made.report()["compared"] == "equal"
    assert contents(read_log(made.destination).records) == contents(read_log(source).records)
    assert eoctl("consume", source, "--from", "7").text.splitlines() == ["value 7", "value 9"]
