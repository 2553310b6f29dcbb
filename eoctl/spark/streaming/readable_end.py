"""Readable end of each partition, so that no record is given that a broker may still truncate.

The end is the checkpointed high watermark, or for read_committed the last stable offset below it. A
broker checkpoints it every five seconds, so a stream is late by that time. `until=log-end` reads
records that a broker may still truncate.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from eoctl.spark.rows.missing_segments import require_listed
from eoctl.spark.rows.record_plan import by_directory
from eoctl.spark.rows.source_options import require_chosen
from recovery.export.plan import Until
from recovery.transactions.isolation import Isolation
from recovery.transactions.outcomes import find_stability
from storage.dirs.log_dir import StoppedState
from storage.errors import FormatError, UsageError
from storage.file_names import LEADER_EPOCHS_NAME, METADATA_TOPIC, PARTITION_METADATA_NAME
from storage.formats.checkpoint import parse_leader_epochs
from storage.formats.partition_metadata import format_uuid, parse_partition_metadata
from storage.places.list_places import list_places
from storage.places.place_files import read_in
from storage.places.splits import log_end_offset

if TYPE_CHECKING:
    from eoctl.spark.rows.source_options import SourceOptions
    from storage.dirs.acknowledged_offsets import Acknowledged
    from storage.formats.checkpoint import LeaderEpochEntry
    from storage.places.listing import Listing, SegmentPlace


@dataclass
class Reach:
    """One partition, with the part that can be read.

    Attributes:
        places: its segments by base offset, empty without segments.
        directory: its path or URI.
        first_offset: its log start offset.
        end_offset: offset after the last readable record.
        epochs: its leader epochs, ascending.
        topic_id: of its topic, "" if unknown.
        known_end: its log end offset, None before the first search.
    """

    directory: str
    places: tuple[SegmentPlace, ...]
    first_offset: int
    end_offset: int
    epochs: tuple[LeaderEpochEntry, ...] = ()
    topic_id: str = ""
    known_end: int | None = field(default=None, repr=False)

    def until(self, offset: int) -> Reach:
        """Return the same partition with another end."""
        return replace(self, end_offset=offset)

    def log_end_offset(self) -> int:
        """Return the log end offset, which is searched once."""
        if self.known_end is None:
            self.known_end = log_end_offset(self.places) if self.places else self.first_offset
        return self.known_end


class Surveyor:
    """Repeated survey of the readable ends of partitions, which remembers earlier results."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._is_committed_only = options.isolation is Isolation.READ_COMMITTED
        self._stable: dict[str, int] = {}  # by name; no transaction is open below
        self._ends: dict[SegmentPlace, int] = {}  # log ends, by the state of the last segment

    def survey(self) -> dict[str, Reach]:
        """Return all current partitions by name.

        Raises:
            UnopenedError, AccessError, UsageError: they cannot be listed, or two directories have
                one name.
        """
        listing = list_places(self._options.paths)
        require_chosen(self._options, listing)
        require_listed(self._options, listing)
        if listing.problems and not listing.directories:
            raise listing.problems[0]
        segments = dict(by_directory(listing.places))
        found: dict[str, Reach] = {}
        last = {places[-1] for places in segments.values()}
        self._ends = {place: end for place, end in self._ends.items() if place in last}
        for each in listing.directories:
            is_chosen = each.is_live and self._options.kafka.choice.holds(each)
            if not is_chosen or each.topic == METADATA_TOPIC:  # without a checkpoint
                continue
            name = f"{each.broker}/{each.topic}-{each.partition}"
            if name in found:
                raise UsageError(
                    f"{found[name].directory} and {each.directory} are both {name}",
                    next_step=(
                        "give one of them, or a PATH in which a wildcard distinguishes brokers"
                    ),
                )
            found[name] = self._reach(
                name, each.directory, segments.get(each.directory, ()), listing
            )
        return found

    def _reach(
        self, name: str, directory: str, places: tuple[SegmentPlace, ...], listing: Listing
    ) -> Reach:
        known = listing.acknowledged_of(directory)
        first = max(known.log_start_offset or 0, places[0].base_offset if places else 0)
        reach = Reach(
            directory=directory,
            places=places,
            first_offset=first,
            end_offset=first,
            epochs=_epochs(directory),
            topic_id=_topic_id(directory),
        )
        if not places:
            return reach
        reach.known_end = self._ends.get(places[-1])
        self._find_end(reach, known)
        self._ends[places[-1]] = reach.log_end_offset()
        if self._is_committed_only:
            reach.end_offset = self._stable_end(name, reach)
        return reach

    def _find_end(self, reach: Reach, known: Acknowledged) -> None:
        first, directory = reach.first_offset, reach.directory
        if self._options.until is Until.LOG_END:
            reach.end_offset = reach.log_end_offset()
        elif known.high_watermark is not None:
            # A log that lost its end gets these offsets again, for other records.
            reach.end_offset = max(first, min(known.high_watermark, reach.log_end_offset()))
        elif known.stopped is not StoppedState.LIVE and reach.log_end_offset() > first:
            # A new partition of a running broker will have its high watermark later.
            raise UsageError(
                f"{directory}: nothing there says how far it was acknowledged (its log dir has no"
                " line of it in replication-offset-checkpoint)",
                next_step='.option("until", "log-end") reads to the end of the log',
            )

    def _stable_end(self, name: str, reach: Reach) -> int:
        """Find the last stable offset, from its previous value on."""
        start = max(self._stable.get(name, 0), reach.first_offset)
        if start > reach.end_offset:  # the log was truncated
            start = reach.first_offset
        behind = [each for each in reach.places if each.may_hold(start, None)]
        found = find_stability(behind, high_watermark=reach.end_offset, log_start_offset=start)
        if found.problems:
            raise found.problems[0]
        stable = min(found.stable_offset, reach.end_offset)
        self._stable[name] = stable
        return stable


def _epochs(directory: str) -> tuple[LeaderEpochEntry, ...]:
    data = read_in(directory, LEADER_EPOCHS_NAME)
    try:
        return () if data is None else tuple(parse_leader_epochs(data))
    except FormatError:  # a finding of `check`
        return ()


def _topic_id(directory: str) -> str:
    data = read_in(directory, PARTITION_METADATA_NAME)
    try:
        return "" if data is None else format_uuid(parse_partition_metadata(data).topic_id)
    except FormatError:
        return ""
