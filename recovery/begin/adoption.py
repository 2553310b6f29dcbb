"""A log dir of what dead brokers have left: its files in their order, and what it begins with."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from recovery.begin.empty import bootstrap_steps, identity_steps
from recovery.begin.records import TopicStart, encode_beginning, encode_identity
from recovery.begin.taken_files import file_steps, removal_steps, taken_files
from recovery.changes.plans.plan import (
    PlanSource,
    absolute_path,
    make_step,
    replace_step,
    source_of,
)
from storage.dirs.partition import Partition
from storage.file_names import (
    CLEANER_NAME,
    HIGH_WATERMARK_NAME,
    LOG_START_NAME,
    PARTITION_METADATA_NAME,
    RECOVERY_POINT_NAME,
    TopicPartition,
)
from storage.formats.checkpoint import OffsetCheckpointEntry, encode_offset_checkpoint
from storage.formats.partition_metadata import PartitionMetadata, encode_partition_metadata
from storage.limits import INT32_MAX

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from recovery.begin.adopted_topics import AdoptedTopic
    from recovery.begin.dead_brokers import DeadCopy
    from recovery.begin.records import NodeIdentity
    from recovery.begin.survey import Survey
    from recovery.begin.taken_files import TakenFile
    from recovery.changes.plans.plan import Step
    from recovery.checks.grounds.broker_version import BrokerVersion
    from recovery.repair.repaired import Repaired

PRODUCER_ID_BLOCK = 1000
# Blocks that were given out, and whose ids are on no disk that is here: a producer may still run
# with one. A thousand brokers would have to have started since for this not to be enough.
SPARE_PRODUCER_IDS = 1000 * PRODUCER_ID_BLOCK


class TakenCopy(NamedTuple):
    """The copy that a partition is taken from.

    Attributes:
        last_epoch: the latest of all its copies; -1: none.
        repaired: how it is mended on the way; None: it is taken as it is.
    """

    key: TopicPartition
    copy: DeadCopy
    survey: Survey
    last_epoch: int
    repaired: Repaired | None = None

    @property
    def end_offset(self) -> int:
        """Of the log that is taken, once a broker has started on it."""
        if self.repaired is not None and self.repaired.end_offset is not None:
            return self.repaired.end_offset
        found = self.survey.start_end_offset
        return self.survey.end_offset if found is None else min(found, self.survey.end_offset)


class Adoption(NamedTuple):
    """All of it.

    Attributes:
        settings: of each topic.
        taken: a copy for each partition that is here.
        next_producer_id: above all that were given out.
        more: values of records that come last, such as those of users.
    """

    log_dir: str
    node: NodeIdentity
    version: BrokerVersion
    topics: tuple[AdoptedTopic, ...]
    settings: Mapping[str, Mapping[str, str]]
    taken: tuple[TakenCopy, ...]
    next_producer_id: int
    more: tuple[bytes, ...] = ()

    @property
    def starts(self) -> list[TopicStart]:
        """The topics as the cluster begins with them."""
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
    """Return the id that the next broker is given, above those that are known (-1: none)."""
    last = max(known, default=-1)
    return (last // PRODUCER_ID_BLOCK + 1) * PRODUCER_ID_BLOCK + SPARE_PRODUCER_IDS


class AdoptionSteps(NamedTuple):
    """What is done, in its order, and the files that it is derived from."""

    steps: tuple[Step, ...]
    sources: tuple[PlanSource, ...]
    copied_bytes: int


def adoption_steps(
    adoption: Adoption, *, timestamp_ms: int, is_linked: bool, is_moved: bool
) -> AdoptionSteps:
    """Plan the log dir; `meta.properties` comes behind all that a broker needs.

    Args:
        adoption: what it begins with.
        timestamp_ms: of the metadata's records.
        is_linked: `.log` files of closed segments get a second name.
        is_moved: files of the sources go at last.

    Raises:
        AccessError: a file cannot be read. RefusedError: as `encode_beginning`.
    """
    log_dir = absolute_path(adoption.log_dir)
    starts = adoption.starts
    content = encode_beginning(
        adoption.node, adoption.version, starts, timestamp_ms=timestamp_ms,
        next_producer_id=adoption.next_producer_id, more=adoption.more,
    )  # fmt: skip
    directories = {
        TopicPartition(topic.name, number): (f"{log_dir}/{topic.name}-{number}", topic.topic_id)
        for topic in starts
        for number in sorted(topic.leader_epochs)
    }
    steps: list[Step] = [*bootstrap_steps(log_dir, content)]
    # All directories first: their names are then made durable at once.
    steps += (make_step(path, "a partition") for path, _ in directories.values())
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
    """Plan the checkpoints: what those of the sources say, and never beyond the log."""
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
