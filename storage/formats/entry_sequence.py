"""The entries of an index as a sequence that reads one when it is asked for it.

Looking something up takes a handful of the 262,144 that an index of 1 GiB may have; making all of
them takes longer than reading the batches that they lead to.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

if TYPE_CHECKING:
    from collections.abc import Callable
    from struct import Struct

    from storage.bounds import Buf

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
