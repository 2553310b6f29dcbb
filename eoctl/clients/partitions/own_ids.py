"""Producer ids that we take ourselves in a log dir: none that anything there knows.

    known by                                          looked at
    snapshots of every partition, set aside or not    before an id is taken
    producer states of the partitions written to      by the caller: as a broker recovers them
    records of `__transaction_state`                  by the caller, who is a coordinator
    a log whose end no snapshot has, elsewhere        not: it would have to be read

So what a killed run had written elsewhere, and producers that all snapshots have forgotten, are
told apart by chance alone: an id is one of 2^50. Brokers count up from 0, and never come to where
ours begin; that is looked at, too, where the cluster's metadata says how far they have come.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from eoctl.clients.partitions.identity import derived_ids, random_producer_ids, run_ids
from recovery.replay.recover_state import snapshot_ids
from storage.dirs.log_dir import read_log_dir
from storage.errors import RefusedError
from storage.formats.producer_id_record import FIRST_ID

if TYPE_CHECKING:
    from collections.abc import Container, Iterable


def require_out_of_reach(next_broker_id: int | None) -> None:
    """Refuse to take an id where the cluster's brokers may come.

    Args:
        next_broker_id: that a controller hands out next; None: not known.
    """
    if next_broker_id is not None and next_broker_id > FIRST_ID:
        raise RefusedError(
            f"by the cluster's metadata brokers were given producer ids up to {next_broker_id - 1}:"
            f" those from {FIRST_ID} on, which eoctl takes by itself, may be given to clients",
            next_step="--producer-id ID (produce, copy) with one that no client has",
        )


class OwnIds:
    """Takes ids for log dirs; their snapshots are read when the first one is wanted.

    Args:
        log_dirs: their paths.
        next_broker_id: as in `require_out_of_reach`.
        notes: gets what could not be looked at.
    """

    def __init__(
        self, log_dirs: Iterable[str], next_broker_id: int | None, notes: list[str]
    ) -> None:
        self._log_dirs = tuple(log_dirs)
        self._next_broker_id = next_broker_id
        self._notes = notes

    @cached_property
    def _places(self) -> dict[int, set[str]]:
        """The partitions that know of each id of ours."""
        require_out_of_reach(self._next_broker_id)
        found = snapshot_ids(map(read_log_dir, self._log_dirs), FIRST_ID)
        self._notes += (
            f"{each}: which producers it has is not known; that a new id is none of them is left to"
            " chance, of 2^50"
            for each in found.unknown
        )
        return found.places

    def random_id(self, known: Container[int] = ()) -> int:
        """Take an id for a session, or for a transactional id, that is not known either."""
        return self._first(random_producer_ids(), known)

    def id_of_run(self, known: Container[int], names: Iterable[str], end_offset: int) -> int:
        """Take an id for a run without a session: a plan and its run take the same.

        Args:
            known: what the partitions know.
            names: of the partitions.
            end_offset: the highest log end offset of them.
        """
        return self._first(run_ids(names, end_offset), known)

    def _first(self, candidates: Iterable[int], known: Container[int]) -> int:
        places = self._places
        found = next(each for each in candidates if each not in places and each not in known)
        places[found] = set()
        return found

    def id_of_copy(self, of: object, ids: range, mine: Container[int], path: str) -> int:
        """Take the id that follows from what is copied into what.

        Args:
            of: the two.
            ids: the range.
            mine: what the destination knows: an id among these is the copy's own.
            path: of the destination.
        """
        places = self._places
        found = next(
            each
            for each in derived_ids(of, ids)
            if each in mine or places.get(each, {path}) == {path}
        )
        places.setdefault(found, set()).add(path)
        return found
