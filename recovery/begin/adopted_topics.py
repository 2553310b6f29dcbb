"""The topics that copies are of: their ids, how many partitions they have, which of them are gone.

A broker finds a partition's directory by its topic's id, so that must be known for certain. The
number of partitions decides where keys go; that of the coordinators' topics decides who knows a
group or a transactional.id, so it stays what it was, or Kafka's default.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from recovery.begin.internal_topics import INTERNAL_TOPICS, MAX_PARTITIONS
from storage.errors import RefusedError, UsageError
from storage.file_names import is_topic_name
from storage.formats.partition_metadata import format_uuid, new_topic_id

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from recovery.begin.dead_brokers import DeadBrokers, DeadCopy
    from storage.dirs.cluster_image import ClusterImage

NAMED_COUNT = 5


class Lack(NamedTuple):
    """What must be said before anything can be done, and the options that say it."""

    why: str
    options: tuple[str, ...]


class AdoptedTopic(NamedTuple):
    """A topic; of each partition that is here the copies that may be taken.

    Attributes:
        holes: numbers of partitions that are not here.
    """

    name: str
    topic_id: bytes
    copies: dict[int, tuple[DeadCopy, ...]]
    holes: tuple[int, ...]


class WantedTopics(NamedTuple):
    """What the call says of topics, by their names."""

    topic_ids: Mapping[str, bytes]
    partitions_counts: Mapping[str, int]
    fills_holes: bool


class ResolvedTopics(NamedTuple):
    """What is known of them, and what is not."""

    topics: tuple[AdoptedTopic, ...]
    lacks: tuple[Lack, ...]
    notes: tuple[str, ...]


def resolve_topics(brokers: DeadBrokers, wanted: WantedTopics) -> ResolvedTopics:
    """Find the id and the partitions of each topic.

    Raises:
        UsageError: what the call says is of no topic, or cannot be.
    """
    by_name: dict[str, dict[int, tuple[DeadCopy, ...]]] = {}
    for key, copies in brokers.copies.items():
        by_name.setdefault(key.topic, {})[key.partition] = copies
    _require_legal_names(by_name)
    for name in (*wanted.topic_ids, *wanted.partitions_counts):
        if name not in by_name:
            raise UsageError(f"{name}: no partition of that topic is here")
    topics, lacks, notes = list[AdoptedTopic](), list[Lack](), list[str]()
    total = 0
    for name, numbers in by_name.items():
        taken, topic_id = _identify(name, numbers, brokers.image, wanted, lacks, notes)
        if not taken:
            continue
        count = _count(name, taken, brokers.image, wanted)
        total += count
        if total > MAX_PARTITIONS:
            raise UsageError(f"{name}: {total} partitions: at most {MAX_PARTITIONS} in one log dir")
        holes = tuple(each for each in range(count) if each not in taken)
        if holes and not wanted.fills_holes:
            told = _numbers(holes)
            why = f"{name}: of {count} partitions these are not here: {told}"
            lacks.append(Lack(why, ("--fill-holes",)))
        elif holes:
            notes.append(f"{name}: empty, as no copy of it is here: {_numbers(holes)}")
        topics.append(AdoptedTopic(name=name, topic_id=topic_id, copies=taken, holes=holes))
    _require_own_ids(topics)
    return ResolvedTopics(
        tuple(topics), tuple(lacks), (*notes, *_told_of_absent(by_name, brokers.image))
    )


def _require_legal_names(by_name: Mapping[str, Mapping[int, tuple[DeadCopy, ...]]]) -> None:
    """Refuse directories that are of no topic, whatever is in them: no client could ask for it."""
    odd = [
        copies[0].path
        for name, numbers in by_name.items()
        if not is_topic_name(name)
        for copies in numbers.values()
    ]
    if odd:
        raise RefusedError(
            f"{_paths(odd)}: no topic can have that name",
            next_step="move what is no topic out of the log dir, or give it its topic's name",
        )


def _require_own_ids(topics: Iterable[AdoptedTopic]) -> None:
    """Refuse two names of one topic, as of a directory that was kept beside its like."""
    names: dict[bytes, str] = {}
    for each in topics:
        other = names.setdefault(each.topic_id, each.name)
        if other != each.name and each.topic_id:
            first = min(each.copies.items())[1][0].path
            raise RefusedError(
                f"{each.name} and {other} have one topic id, {format_uuid(each.topic_id)}: such as"
                f" {first}, which one of them is a copy of",
                next_step="move what is no topic out of the log dir, or name each partition",
            )


def _identify(
    name: str,
    numbers: Mapping[int, tuple[DeadCopy, ...]],
    image: ClusterImage | None,
    wanted: WantedTopics,
    lacks: list[Lack],
    notes: list[str],
) -> tuple[dict[int, tuple[DeadCopy, ...]], bytes]:
    """Return the copies that are of the topic, and its id; b"": not known, one of the lacks."""
    given = wanted.topic_ids.get(name)
    placed = None if image is None else image.topics.get(name)
    deleted = {} if image is None else image.deleted_topics
    known: dict[bytes | None, list[str]] = {}
    for copies in numbers.values():
        for each in copies:
            known.setdefault(each.topic_id, []).append(each.path)
    stale = [each for each in known if each in deleted and each != given]
    if stale:
        paths = [path for each in stale for path in known.pop(each)]
        notes.append(f"{name}: {_paths(paths)}: left out, of a topic that the cluster had deleted")
    ids = [each for each in known if each is not None]
    if given is None and placed is not None and set(ids) <= {placed.topic_id}:
        given = placed.topic_id  # the metadata know it, also where a file of it is missing
    if given is None and (len(ids) != 1 or None in known):
        if known:
            table = "; ".join(_id_row(each, known[each]) for each in known)
            likely = format_uuid(ids[0]) if ids else new_topic_id()
            what = "which one it is" if len(ids) > 1 else "it"
            why = f"{name}: has no one topic id, and nothing tells {what} ({table})"
            lacks.append(Lack(why, ("--topic-id", f"{name}={likely}")))
        return {number: copies for number, copies in numbers.items() if known}, b""
    topic_id = ids[0] if given is None else given
    if ids and topic_id not in ids:
        table = "; ".join(_id_row(each, known[each]) for each in known)
        raise UsageError(
            f"--topic-id {name}={format_uuid(topic_id)}: no copy has that id ({table})"
        )
    others = [path for each in ids if each != topic_id for path in known[each]]
    if others:
        notes.append(f"{name}: {_paths(others)}: left out, of another topic of that name")
    taken = {
        number: tuple(each for each in copies if each.topic_id in {topic_id, None})
        for number, copies in numbers.items()
    }
    return {number: copies for number, copies in taken.items() if copies}, topic_id


def _id_row(topic_id: bytes | None, paths: Sequence[str]) -> str:
    return f"{'no id' if topic_id is None else format_uuid(topic_id)}: {_paths(paths)}"


def _count(
    name: str, taken: Mapping[int, object], image: ClusterImage | None, wanted: WantedTopics
) -> int:
    least = max(taken) + 1
    given = wanted.partitions_counts.get(name)
    if given is not None and given < least:
        raise UsageError(
            f"--partitions {name}={given}: partition {least - 1} of it is here",
            next_step=f"--partitions {name}={least}, or more",
        )
    if given is not None:
        return given
    placed = None if image is None else image.topics.get(name)
    if placed is not None and placed.partitions:
        return max(least, max(placed.partitions) + 1)
    if len(taken) == least:  # none is missing among them: so many it had, or a part by chance
        return least
    return max(least, INTERNAL_TOPICS.get(name, (0, {}))[0])


def _told_of_absent(by_name: Mapping[str, object], image: ClusterImage | None) -> Iterator[str]:
    absent = [] if image is None else sorted(set(image.topics) - set(by_name))
    if absent:
        yield (
            f"lost: {len(absent)} topics of the cluster have no copy here, and are not made:"
            f" {_paths(absent)}"
        )


def _numbers(holes: Sequence[int]) -> str:
    more = f" and {len(holes) - NAMED_COUNT} more" if len(holes) > NAMED_COUNT else ""
    return ", ".join(map(str, holes[:NAMED_COUNT])) + more


def _paths(paths: Sequence[str]) -> str:
    more = f" and {len(paths) - NAMED_COUNT} more" if len(paths) > NAMED_COUNT else ""
    return ", ".join(paths[:NAMED_COUNT]) + more
