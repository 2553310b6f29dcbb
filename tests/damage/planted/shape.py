"""What a fault is: where it is planted, and what a check has to say about it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    Plant = Callable[[Path], "Expected | list[Expected]"]


class Expected(NamedTuple):
    """A finding that has to be there.

    path is relative to the log dir, "" for the log dir itself, and starts with "../" in another
    log dir; start_pos and severity are judged if they are given.
    """

    check_id: str
    path: str
    start_pos: int | None = None
    severity: str | None = None


class Fault(NamedTuple):
    """One kind of damage.

    Attributes:
        name: of the function that plants it.
        state: "crash", "clean" and others of the archive kafka-4.3.1, or "legacy".
        partitions: the directories that are copied, besides the log dir's own files.
        plant: edits a private copy of the log dir.
        closure: ids of errors and warnings that the fault brings with it.
        deep: found only when records are decoded.
        beside: other log dirs that `plant` makes next to the first one; its server.properties
            say that they are of one node.
    """

    name: str
    state: str
    partitions: tuple[str, ...]
    plant: Plant
    closure: frozenset[str] = frozenset()
    deep: bool = False
    beside: tuple[str, ...] = ()

    def planted_in(self, log_dir: Path) -> list[Expected]:
        """Plant it. Returns what has to be found."""
        expected = self.plant(log_dir)
        return expected if isinstance(expected, list) else [expected]


class Faults:
    """The faults of one module, in the order in which they are written down."""

    def __init__(self) -> None:
        self.all: list[Fault] = []

    def plants(
        self,
        state: str,
        *partitions: str,
        closure: Iterable[str] = (),
        deep: bool = False,
        beside: tuple[str, ...] = (),
    ) -> Callable[[Plant], Plant]:
        """Decorator of the function that plants a fault."""

        def note(plant: Plant) -> Plant:
            name = getattr(plant, "__name__", "").replace("_", "-")
            fault = Fault(name, state, partitions, plant, frozenset(closure), deep, beside)
            self.all.append(fault)
            return plant

        return note
