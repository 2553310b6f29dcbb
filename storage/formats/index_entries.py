"""The entries of `.index` and `.timeindex`: read when asked for, and where they end."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

if TYPE_CHECKING:
    from collections.abc import Callable
    from struct import Struct

    from storage.limits import Buf


# -- the entries of an index as a sequence that reads one when it is asked for it
#
# Looking something up takes a handful of the 262,144 that an index of 1 GiB may have; making all
# of them takes longer than reading the batches that they lead to.


Entry = TypeVar("Entry", covariant=True)  # noqa: PLC0105 - `Sequence` is so, too


class EntrySequence(Sequence[Entry], Generic[Entry]):
    """Entries of one size, back to back.

    Args:
        layout: of one.
        make: makes it of its fields.
        buf: whole entries; it must not change.
    """

    def __init__(self, layout: Struct, make: Callable[[Iterable[Any]], Entry], buf: Buf) -> None:
        self._layout = layout
        self._make = make
        self._buf = memoryview(buf)

    def __len__(self) -> int:
        """Count them."""
        return len(self._buf) // self._layout.size

    def __iter__(self) -> Iterator[Entry]:
        """Read them all."""
        return map(self._make, self._layout.iter_unpack(self._buf))

    @overload
    def __getitem__(self, place: int) -> Entry: ...

    @overload
    def __getitem__(self, place: slice) -> list[Entry]: ...

    def __getitem__(self, place: int | slice) -> Entry | list[Entry]:
        """Read one, or some."""
        places = range(len(self))[place]
        if isinstance(places, range):
            return [self[each] for each in places]
        return self._make(self._layout.unpack_from(self._buf, places * self._layout.size))

    def __eq__(self, other: object) -> bool:
        """Whether another sequence has the same entries."""
        return isinstance(other, Sequence) and [*self] == [*other]

    __hash__ = None  # type: ignore[assignment]


# -- where the entries of an index end: `.index` and `.timeindex` do not store their number
#
# A broker extends the index of the active segment to its full size and maps it into memory, so a
# live or crashed directory has megabytes of zeros behind the last entry. Both kinds share the rule
# that ends them: the first entry after entry 0 whose relative offset is 0.
# All loops over the zeros run in C: ten MiB of them take a few milliseconds.


CHUNK_BYTES = 65_536
ZEROS = bytes(CHUNK_BYTES)
WORD_BYTES = 4  # of an int32, as memoryview's native "I" has it on every platform of ours


def data_end_pos(buf: Buf) -> int:
    """Position just behind the last byte that is not zero; 0 when there is none."""
    view = memoryview(buf)
    end_pos = len(view)
    while end_pos > 0:
        start_pos = max(0, end_pos - CHUNK_BYTES)
        chunk = bytes(view[start_pos:end_pos])
        if chunk != ZEROS[: len(chunk)]:
            return start_pos + len(chunk.rstrip(b"\0"))
        end_pos = start_pos
    return 0


def first_data_pos(buf: Buf, pos: int) -> int | None:
    """Position of the first byte at or behind `pos` that is not zero, None when there is none."""
    view = memoryview(buf)
    for start_pos in range(pos, len(view), CHUNK_BYTES):
        chunk = bytes(view[start_pos : start_pos + CHUNK_BYTES])
        if chunk != ZEROS[: len(chunk)]:
            return start_pos + len(chunk) - len(chunk.lstrip(b"\0"))
    return None


def used_entry_count(buf: Buf, *, entry_bytes: int, relative_offset_pos: int) -> int:
    """Number of entries before the logical end of an index.

    Args:
        buf: the file; a fragment of an entry at its end does not count.
        entry_bytes: size of an entry, a multiple of 4.
        relative_offset_pos: place of the int32 relative offset in it, a multiple of 4.

    Returns:
        The index of the first entry i > 0 whose relative offset is 0, or the number of whole
        entries when there is none; 0 when what comes before that end is only zeros.
    """
    view = memoryview(buf)
    whole_bytes = len(view) // entry_bytes * entry_bytes
    data_bytes = data_end_pos(view[:whole_bytes])
    entry_count = -(-data_bytes // entry_bytes)
    if entry_count == 0:
        return 0
    words = view[: entry_count * entry_bytes].cast("B").cast("I")
    # Zero is zero in either byte order, so the native cast is good enough to find it.
    relative_offsets = words[relative_offset_pos // WORD_BYTES :: entry_bytes // WORD_BYTES]
    try:
        end = relative_offsets.tolist().index(0, 1)
    except ValueError:
        return entry_count
    if end == 1 and data_end_pos(view[:entry_bytes]) == 0:
        return 0
    return end
