"""A log dir from the files of dead brokers: its files in their order, and its first records."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from recovery.changes.plans.plan import (
    PlanSource,
    absolute_path,
    make_step,
    replace_step,
    source_of,
)
from recovery.cluster.coordinator_log import CoordinatorLog
from recovery.groups.group_log import GroupLog, is_expired
from recovery.new_log_dir.adopted_topics import Lack
from recovery.new_log_dir.records import (
    TopicStart,
    bootstrap_steps,
    encode_identity,
    first_values,
    identity_steps,
    metadata_dir_steps,
)
from recovery.new_log_dir.survey import file_steps, removal_steps, taken_files
from storage.dirs.partition import Partition
from storage.errors import RefusedError, os_errors
from storage.file_names import (
    CLEANER_NAME,
    GROUPS_TOPIC,
    HIGH_WATERMARK_NAME,
    LOG_START_NAME,
    PARTITION_METADATA_NAME,
    RECOVERY_POINT_NAME,
    TRANSACTION_STATE_TOPIC,
    TopicPartition,
)
from storage.formats.checkpoint import OffsetCheckpointEntry, encode_offset_checkpoint
from storage.formats.partition_metadata import PartitionMetadata, encode_partition_metadata
from storage.formats.transaction_state import TransactionStatus
from storage.limits import INT32_MAX
from storage.producers.java_hash_map import coordinator_partition

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from recovery.changes.plans.plan import Step
    from recovery.checks.context.broker_version import BrokerVersion
    from recovery.new_log_dir.adopted_topics import AdoptedTopic
    from recovery.new_log_dir.dead_brokers import DeadCopy
    from recovery.new_log_dir.records import NodeIdentity, Voter
    from recovery.new_log_dir.survey import Survey, TakenFile
    from recovery.repair.repaired import Repaired
    from storage.dirs.log_dir import LogDir, PartitionDir


# -- checks of the place for a new log dir: room for copies, links to its sources


_SLACK_BYTES = 1 << 20  # the metadata, directories, and file system overhead
_PARTITION_BYTES = 64 << 10  # directory, small files, and the indexes that a broker preallocates


def _around(log_dir: str) -> Path:
    """Return the log dir if it exists, else the directory in which it is created."""
    path = Path(log_dir).absolute()
    return path if path.is_dir() else path.parent


def require_one_file_system(log_dir: str, sources: Iterable[str], option: str) -> None:
    """Refuse a link to another file system. Raises RefusedError, AccessError."""
    around = _around(log_dir)
    with os_errors(around):
        device = around.stat().st_dev
    far = []
    for each in dict.fromkeys(str(Path(source).parent) for source in sources):
        with os_errors(each):
            if Path(each).stat().st_dev != device:
                far.append(each)
    if far:
        raise RefusedError(
            f"{', '.join(far)}: on another disk than {log_dir}, where {option} cannot reach",
            next_step="--copy, or a NEW-LOG-DIR on that disk",
        )


def require_room(log_dir: str, copied_bytes: int, partitions_count: int) -> None:
    """Refuse a copy that does not fit. Raises RefusedError, AccessError."""
    around = _around(log_dir)
    needed_bytes = copied_bytes + _SLACK_BYTES + partitions_count * _PARTITION_BYTES
    with os_errors(around):
        found = os.statvfs(around)
    free_bytes = found.f_bavail * found.f_frsize
    if free_bytes < needed_bytes:
        raise RefusedError(
            f"{log_dir}: {needed_bytes:,} bytes are needed there, {free_bytes:,} are free; nothing"
            " was touched",
            next_step="--link copies least, where the sources are on the same disk",
        )


def other_owners(log_dir: str, sources: Iterable[str]) -> list[str]:
    """Return sources with another owner than the files of the new log dir will have."""
    around = _around(log_dir)
    with os_errors(around):
        owner = around.stat().st_uid
    found = []
    for each in dict.fromkeys(sources):
        with os_errors(each):
            if Path(each).stat().st_uid != owner:
                found.append(each)
    return found


# -- adoption


PRODUCER_ID_BLOCK = 1000
# Brokers may have received blocks whose ids are on none of these disks, and a producer may still
# use such an id. This reserve covers a thousand broker starts since then.
SPARE_PRODUCER_IDS = 1000 * PRODUCER_ID_BLOCK


class TakenCopy(NamedTuple):
    """The copy that a partition is adopted from.

    Attributes:
        last_epoch: the latest leader epoch of all its copies, or -1.
        repaired: the repair applied to the adopted files. None: they are adopted unchanged.
    """

    key: TopicPartition
    copy: DeadCopy
    survey: Survey
    last_epoch: int
    repaired: Repaired | None = None

    @property
    def end_offset(self) -> int:
        """The log end offset after a broker has started on the adopted log."""
        if self.repaired is not None and self.repaired.end_offset is not None:
            return self.repaired.end_offset
        found = self.survey.start_end_offset
        return self.survey.end_offset if found is None else min(found, self.survey.end_offset)


class Adoption(NamedTuple):
    """The complete adoption.

    Attributes:
        settings: by topic.
        taken: a copy for each partition that has one.
        next_producer_id: above all allocated ids.
        more: values of the records that come last, such as those for users.
        voter: of a dynamic quorum. None: the voters are in server.properties.
    """

    log_dir: str
    node: NodeIdentity
    version: BrokerVersion
    topics: tuple[AdoptedTopic, ...]
    settings: Mapping[str, Mapping[str, str]]
    taken: tuple[TakenCopy, ...]
    next_producer_id: int
    more: tuple[bytes, ...] = ()
    voter: Voter | None = None

    @property
    def starts(self) -> list[TopicStart]:
        """The topics of the new cluster at its first start."""
        epochs: dict[str, dict[int, int]] = {}
        for each in self.taken:
            numbers = epochs.setdefault(each.key.topic, {})
            numbers[each.key.partition] = min(each.last_epoch + 1, INT32_MAX)
        return [
            TopicStart(
                name=each.name,
                topic_id=each.topic_id,
                leader_epochs=dict.fromkeys(each.holes, 0) | epochs.get(each.name, {}),
                settings=self.settings[each.name],
            )
            for each in self.topics
        ]


def next_producer_id(known: Iterable[int]) -> int:
    """Return the next producer id to allocate, above the known ids (-1: none)."""
    last = max(known, default=-1)
    return (last // PRODUCER_ID_BLOCK + 1) * PRODUCER_ID_BLOCK + SPARE_PRODUCER_IDS


class AdoptionSteps(NamedTuple):
    """The steps in order, and the files that they are derived from."""

    steps: tuple[Step, ...]
    sources: tuple[PlanSource, ...]
    copied_bytes: int


def adoption_steps(
    adoption: Adoption, *, timestamp_ms: int, is_linked: bool, is_moved: bool
) -> AdoptionSteps:
    """Plan the log dir. `meta.properties` comes after all files that a broker needs.

    Args:
        adoption: the content of the log dir.
        timestamp_ms: of the metadata's records.
        is_linked: `.log` files of closed segments become hard links.
        is_moved: the last steps remove the files of the sources.

    Raises:
        AccessError: a file cannot be read. RefusedError: as `first_values`.
    """
    log_dir = absolute_path(adoption.log_dir)
    starts = adoption.starts
    values = first_values(
        adoption.node, adoption.version, starts,
        next_producer_id=adoption.next_producer_id, more=adoption.more,
    )  # fmt: skip
    directories = {
        TopicPartition(topic.name, number): (f"{log_dir}/{topic.name}-{number}", topic.topic_id)
        for topic in starts
        for number in sorted(topic.leader_epochs)
    }
    # All directories come first: one sync then makes all their names durable.
    steps: list[Step] = [
        *metadata_dir_steps(log_dir, adoption.version, adoption.voter),
        *(make_step(path, "a partition") for path, _ in directories.values()),
        *bootstrap_steps(log_dir, adoption.version, values, timestamp_ms, adoption.voter),
    ]
    taken = {each.key: each for each in adoption.taken}
    removals: list[Step] = []
    sources: list[PlanSource] = []
    copied_bytes = 0
    for key, (directory, topic_id) in directories.items():
        metadata = encode_partition_metadata(PartitionMetadata(0, topic_id))
        reason = "the id of its topic"
        steps.append(replace_step(f"{directory}/{PARTITION_METADATA_NAME}", metadata, reason))
        if key not in taken:
            continue
        partition = Partition.of(taken[key].copy.selected)
        repaired = taken[key].repaired
        files = taken_files(partition, () if repaired is None else repaired.steps)
        steps += file_steps(directory, files, is_linked=is_linked)
        copied_bytes += sum(_copied_bytes(each, is_linked=is_linked) for each in files)
        if is_moved:
            removals += removal_steps(partition)
        else:
            sources += (source_of(absolute_path(each.log.path)) for each in partition.segments)
    steps += checkpoint_steps(log_dir, adoption.taken)
    steps += identity_steps(log_dir, encode_identity(adoption.node, adoption.version))
    return AdoptionSteps((*steps, *removals), tuple(sources), copied_bytes)


def _copied_bytes(file: TakenFile, *, is_linked: bool) -> int:
    return 0 if is_linked and file.is_whole else file.file_bytes


def checkpoint_steps(log_dir: str, taken: Iterable[TakenCopy]) -> Iterator[Step]:
    """Plan the checkpoints with the values of the sources, limited to the log end offset."""
    lines: dict[str, list[OffsetCheckpointEntry]] = {}
    for each in taken:
        for name, offset in _checkpointed(each):
            lines.setdefault(name, []).append(OffsetCheckpointEntry(*each.key, offset))
    for name, entries in lines.items():
        path = str(Path(log_dir, name))
        yield replace_step(path, encode_offset_checkpoint(entries), "as the sources have them")


def _checkpointed(taken: TakenCopy) -> Iterator[tuple[str, int]]:
    log_dir = taken.copy.selected.log_dir
    if log_dir is None:
        return
    limits = None if taken.repaired is None else taken.repaired.limits
    end = taken.end_offset
    for name, offsets, limit in (
        (RECOVERY_POINT_NAME, log_dir.recovery_points, limits and limits.recovery_point),
        (HIGH_WATERMARK_NAME, log_dir.high_watermarks, None),
        (LOG_START_NAME, log_dir.log_start_offsets, None),
        (CLEANER_NAME, log_dir.cleaner_offsets, limits and limits.first_dirty),
    ):
        offset = (offsets or {}).get(taken.key)
        is_gone = name == LOG_START_NAME and limits is not None and not limits.has_log_start
        if offset is not None and not is_gone:
            yield name, min(offset, end if limit is None else min(limit, end))


# -- groups and ids that coordinators of a new cluster load, or remove minutes after a start.
#
# Groups and transactional ids come only from the copies that are adopted.


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
    """A committed offset beyond the log end offset, and that log end offset."""

    group: str
    key: TopicPartition
    offset: int
    end_offset: int


class FoundByCoordinators(NamedTuple):
    """The groups and transactional ids that the coordinators load.

    Attributes:
        groups_count, transactional_ids_count: numbers of live groups and transactional ids.
        beyond_end: committed offsets beyond the log end offset. There auto.offset.reset decides.
        expired_offsets_count: committed offsets old enough to expire soon.
        ongoing: transactional ids with an open transaction. It times out and is aborted.
        prepared: transactional ids whose decision the coordinator completes.
        expired_ids_count: transactional ids old enough to expire soon.
        producer_ids: all producer ids that transactional ids have or had.
        lacks: numbers of partitions that do not match the records in them.
        problems: messages about unreadable data.
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


def inspect_coordinators(
    log_dirs: Iterable[LogDir],
    taken: Sequence[TakenCopy],
    topics: Iterable[AdoptedTopic],
    *,
    now_ms: int,
    given: Iterable[str] = (),
) -> FoundByCoordinators:
    """Read the groups and transactional ids in the copies that are adopted.

    Args:
        log_dirs: of the sources.
        taken: the copies.
        topics: with their numbers of partitions.
        now_ms: the time at which offsets and ids are expired or not.
        given: topics whose number of partitions is certain.
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
    """Yield a lack if the coordinator would look for a name in a partition without it."""
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
