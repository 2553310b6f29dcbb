"""What the coordinators of a new cluster find, and what they do with it minutes after a start.

Groups and transactional ids are read from the copies that are taken, and from no others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from recovery.begin.adopted_topics import Lack
from recovery.cluster.coordinator_log import CoordinatorLog
from recovery.groups.expiry import is_expired
from recovery.groups.group_log import GroupLog
from storage.file_names import GROUPS_TOPIC, TRANSACTION_STATE_TOPIC, TopicPartition
from storage.formats.transaction_state import TransactionStatus
from storage.producers.java_hash_map import coordinator_partition

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from recovery.begin.adopted_topics import AdoptedTopic
    from recovery.begin.adoption import TakenCopy
    from storage.dirs.log_dir import LogDir, PartitionDir

ID_EXPIRATION_MS = 7 * 24 * 3_600_000  # transactional.id.expiration.ms
MAX_COUNT = 10_000
_ENDED = frozenset(
    {
        TransactionStatus.EMPTY,
        TransactionStatus.COMPLETE_COMMIT,
        TransactionStatus.COMPLETE_ABORT,
    }
)


class PlacedOffset(NamedTuple):
    """A committed offset that its log does not have, and where that ends."""

    group: str
    key: TopicPartition
    offset: int
    end_offset: int


class FoundByCoordinators(NamedTuple):
    """What they find.

    Attributes:
        groups_count, transactional_ids_count: that there are.
        beyond_end: offsets beyond the end of their log: auto.offset.reset decides then.
        expired_offsets_count: that go soon, for their age.
        ongoing: transactional ids whose transaction is open: it times out and is aborted.
        prepared: of which a decision is carried out.
        expired_ids_count: transactional ids that go soon, for their age.
        producer_ids: that transactional ids have, or had.
        lacks: a number of partitions that does not fit what is in them.
        problems: what could not be read.
    """

    groups_count: int
    transactional_ids_count: int
    beyond_end: tuple[PlacedOffset, ...]
    expired_offsets_count: int
    ongoing: tuple[str, ...]
    ongoing_producer_ids: frozenset[int]
    prepared: tuple[str, ...]
    expired_ids_count: int
    producer_ids: frozenset[int]
    lacks: tuple[Lack, ...]
    problems: tuple[str, ...]


def look_at_coordinators(
    log_dirs: Iterable[LogDir],
    taken: Sequence[TakenCopy],
    topics: Iterable[AdoptedTopic],
    *,
    now_ms: int,
    given: Iterable[str] = (),
) -> FoundByCoordinators:
    """Read what groups and transactional ids there are in the copies that are taken.

    Args:
        log_dirs: of the sources.
        taken: the copies.
        topics: with their numbers of partitions.
        now_ms: the clock of what expires.
        given: topics whose number of partitions is known for certain.
    """
    own = _with_taken_alone(log_dirs, taken)
    groups, ids = GroupLog(own), CoordinatorLog(own)
    commits = [(groups.groups[name], each) for name, found in groups.all_commits().items()
               for each in found]  # fmt: skip
    topics = list(topics)
    empty = (TopicPartition(each.name, number) for each in topics for number in each.holes)
    ends = dict.fromkeys(empty, 0) | {each.key: each.end_offset for each in taken}
    states = [each.state for each in ids.ids.values() if each.state is not None]
    named = {each.name: each for each in topics if each.name not in given}
    homes = {
        GROUPS_TOPIC: {name: each.partition for name, each in groups.groups.items()},
        TRANSACTION_STATE_TOPIC: {name: each.partition for name, each in ids.ids.items()},
    }
    return FoundByCoordinators(
        groups_count=len(groups.living()),
        transactional_ids_count=len(states),
        beyond_end=tuple(
            PlacedOffset(
                group=each.key.group,
                key=each.place,
                offset=each.value.offset,
                end_offset=ends[each.place],
            )
            for _, each in commits
            if each.place in ends and each.value.offset > ends[each.place]
        ),
        expired_offsets_count=sum(is_expired(*each, now_ms) for each in commits),
        ongoing=tuple(
            sorted(e.transactional_id for e in states if e.status is TransactionStatus.ONGOING)
        ),
        ongoing_producer_ids=frozenset(
            each.producer_id for each in states if each.status not in _ENDED
        ),
        prepared=tuple(
            sorted(
                each.transactional_id
                for each in states
                if each.status
                in {TransactionStatus.PREPARE_ABORT, TransactionStatus.PREPARE_COMMIT}
            )
        ),
        expired_ids_count=sum(
            each.status in _ENDED and now_ms - each.last_update_timestamp_ms >= ID_EXPIRATION_MS
            for each in states
        ),
        producer_ids=frozenset(ids.producer_ids),
        lacks=tuple(
            lack
            for name, found in homes.items()
            if name in named
            for lack in _unfit(named[name], found)
        ),
        problems=tuple(map(str, (*groups.problems, *ids.problems))),
    )


def _with_taken_alone(log_dirs: Iterable[LogDir], taken: Iterable[TakenCopy]) -> list[LogDir]:
    wanted: dict[str, list[PartitionDir]] = {}
    for each in taken:
        around = each.copy.selected.log_dir
        if around is not None:
            wanted.setdefault(around.path, []).append(each.copy.selected.partition)
    return [
        each._replace(partitions=tuple(wanted[each.path]))
        for each in log_dirs
        if each.path in wanted
    ]


def _unfit(topic: AdoptedTopic, homes: Mapping[str, int]) -> Iterator[Lack]:
    """Tell if names would be looked for in other partitions than they are in."""
    count = len(topic.copies) + len(topic.holes)
    wrong = next((e for e in homes.items() if coordinator_partition(e[0], count) != e[1]), None)
    if wrong is None:
        return
    fitting = next(
        (
            each
            for each in range(max(topic.copies) + 1, MAX_COUNT)
            if all(coordinator_partition(name, each) == home for name, home in homes.items())
        ),
        None,
    )
    name, home = wrong
    why = (
        f"{topic.name}: with {count} partitions {name} would be looked for in partition"
        f" {coordinator_partition(name, count)}, and is in {home}"
    )
    options = () if fitting is None else ("--partitions", f"{topic.name}={fitting}")
    yield Lack(why, options)
