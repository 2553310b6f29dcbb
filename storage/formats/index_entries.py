"""The entries of `.index` and `.timeindex`, read on access, and their logical end."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

if TYPE_CHECKING:
    from collections.abc import Callable
    from struct import Struct

    from storage.limits import Buf


# -- the entries of an index as a sequence that reads an entry on access.
#
# An index of 1 GiB may have 262,144 entries, and a lookup needs a few of them. Reading them all
# takes longer than reading the batches at their positions.


Entry = TypeVar("Entry", covariant=True)  # noqa: PLC0105 - `Sequence` is so, too


class EntrySequence(Sequence[Entry], Generic[Entry]):
    """Entries of one size, back to back.

    Args:
        layout: of an entry.
        make: makes an entry from its fields.
        buf: whole entries. It must not change.
    """

    def __init__(self, layout: Struct, make: Callable[[Iterable[Any]], Entry], buf: Buf) -> None:
        self._layout = layout
        self._make = make
        self._buf = memoryview(buf)

    def __len__(self) -> int:
        """Return the number of entries."""
        return len(self._buf) // self._layout.size

    def __iter__(self) -> Iterator[Entry]:
        """Yield all entries."""
        return map(self._make, self._layout.iter_unpack(self._buf))

    @overload
    def __getitem__(self, place: int) -> Entry: ...

    @overload
    def __getitem__(self, place: slice) -> list[Entry]: ...

    def __getitem__(self, place: int | slice) -> Entry | list[Entry]:
        """Return one entry, or the entries of a slice."""
        places = range(len(self))[place]
        if isinstance(places, range):
            return [self[each] for each in places]
        return self._make(self._layout.unpack_from(self._buf, places * self._layout.size))

    def __eq__(self, other: object) -> bool:
        """Return whether another sequence has the same entries."""
        return isinstance(other, Sequence) and [*self] == [*other]

    __hash__ = None  # type: ignore[assignment]


# -- the end of the entries of an index: `.index` and `.timeindex` do not store their number.
#
# A broker extends the index of the active segment to its full size and maps it into memory. So a
# live or crashed directory has megabytes of zeros behind the last entry. One rule gives the end of
# both: the first entry after entry 0 whose relative offset is 0. All loops over the zeros run in C.
# Ten MiB take a few milliseconds.


CHUNK_BYTES = 65_536
ZEROS = bytes(CHUNK_BYTES)
WORD_BYTES = 4  # of an int32, which is memoryview's native "I" on every platform we support


def data_end_pos(buf: Buf) -> int:
    """Return the position after the last byte that is not zero, or 0."""
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
    """Return the position of the first byte at or behind `pos` that is not zero, or None."""
    view = memoryview(buf)
    for start_pos in range(pos, len(view), CHUNK_BYTES):
        chunk = bytes(view[start_pos : start_pos + CHUNK_BYTES])
        if chunk != ZEROS[: len(chunk)]:
            return start_pos + len(chunk) - len(chunk.lstrip(b"\0"))
    return None


def used_entry_count(buf: Buf, *, entry_bytes: int, relative_offset_pos: int) -> int:
    """Return the number of entries before the logical end of an index.

    Args:
        buf: the file. A fragment of an entry at its end does not count.
        entry_bytes: size of an entry, a multiple of 4.
        relative_offset_pos: place of the int32 relative offset in it, a multiple of 4.

    Returns:
        The index of the first entry i > 0 whose relative offset is 0, else the number of entries up
            to
        the last byte that is not zero. It is 0 if there are only zeros before that end.
    """
    view = memoryview(buf)
    whole_bytes = len(view) // entry_bytes * entry_bytes
    data_bytes = data_end_pos(view[:whole_bytes])
    entry_count = -(-data_bytes // entry_bytes)
    if entry_count == 0:
        return 0
    words = view[: entry_count * entry_bytes].cast("B").cast("I")
    # Zero is the same in both byte orders, so the native cast finds it.
    relative_offsets = words[relative_offset_pos // WORD_BYTES :: entry_bytes // WORD_BYTES]
    try:
        end = relative_offsets.tolist().index(0, 1)
    except ValueError:
        return entry_count
    if end == 1 and data_end_pos(view[:entry_bytes]) == 0:
        return 0
    return end
