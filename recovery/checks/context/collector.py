"""The collector of findings. It counts all findings, and keeps a limited number of each kind."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

from recovery.replay.recover_state import first_recovered
from recovery.rules.catalogue import severity_of
from recovery.rules.findings import Finding, Severity
from storage.dirs.log_dir import StoppedState
from storage.dirs.topic_settings import read_log_config, stated_is_compacted
from storage.errors import AccessError
from storage.file_names import COORDINATOR_TOPICS, METADATA_TOPIC
from storage.places.listing import UNSEQUENCED_TOPICS

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from storage.dirs.cluster_image import ClusterImage
    from storage.dirs.partition import Partition
    from storage.dirs.partition_files import SegmentFiles
    from storage.errors import FormatError


MAX_KEPT_COUNT = 100  # per rule and file


class Collector:
    """The findings of one partition directory, or of one log dir.

    Args:
        topic, partition: of a finding that does not name them.
        topics: findings of other topics are left out. Empty: all findings are kept.

    Attributes:
        kept: in order of arrival, at most MAX_KEPT_COUNT per rule and file.
        counts: all of them, by rule, path and severity.
    """

    def __init__(
        self, topic: str = "", partition: int | None = None, *, topics: Collection[str] = ()
    ) -> None:
        self.kept: list[Finding] = []
        self.counts: Counter[tuple[str, str, Severity]] = Counter()
        self._kept_counts: Counter[tuple[str, str, Severity]] = Counter()
        self._topics = topics
        self._topic = topic
        self._partition = partition

    def add(
        self,
        check_id: str,
        path: str,
        message: str,
        *,
        severity: Severity | None = None,
        count: int = 1,
        **fields: Any,
    ) -> None:
        """Add a finding. `fields` are fields of Finding, and `count` is the number of violations.

        Raises KeyError if the book of rules has no such id.
        """
        topic = fields.get("topic", self._topic)
        if self._topics and topic and topic not in self._topics:
            return
        default = severity_of(check_id)
        severity = default if severity is None else severity
        key = (check_id, path, severity)
        self.counts[key] += count
        self._kept_counts[key] += 1
        if self._kept_counts[key] <= MAX_KEPT_COUNT:
            finding = Finding(
                check_id=check_id,
                severity=severity,
                path=path,
                message=message,
                topic=self._topic,
                partition=self._partition,
            )
            self.kept.append(finding._replace(**fields))

    def add_error(
        self, error: FormatError, *, severity: Severity | None = None, path: str = "", **fields: Any
    ) -> None:
        """Add a finding for an error that a parser raised or listed."""
        self.add(
            error.check_id,
            error.path or path,
            error.message,
            severity=severity,
            start_pos=error.pos,
            expected=error.expected,
            found=error.found,
            **fields,
        )

    def forgive(self, check_ids: frozenset[str]) -> None:
        """Remove all findings of some rules, which are normal here."""
        self.kept = [each for each in self.kept if each.check_id not in check_ids]
        for key in [key for key in self.counts if key[0] in check_ids]:
            del self.counts[key]

    def soften(self, is_grave: Callable[[Finding], bool]) -> None:
        """Reduce all findings except the grave findings to notes."""
        stops = {(each.check_id, each.path, each.severity) for each in self.kept if is_grave(each)}
        self.kept = [
            each
            if (each.check_id, each.path, each.severity) in stops
            else each._replace(severity=Severity.NOTE)
            for each in self.kept
        ]
        for key in [key for key in self.counts if key not in stops]:
            self.counts[key[0], key[1], Severity.NOTE] += self.counts.pop(key)

    def severity_counts(self) -> Counter[Severity]:
        """Return the number of findings of each severity."""
        found: Counter[Severity] = Counter()
        for (_, _, severity), count in self.counts.items():
            found[severity] += count
        return found


# -- normal facts of a partition: the stop of its log dir, the kind of its topic, its holes


class Refusal(NamedTuple):
    """A batch that keeps a broker from loading the log, if it reads it for producer state."""

    offset: int
    reason: str


def _log_start_offset(partition: Partition) -> int:
    """Return the log start offset, or the first base offset if it is beyond the log (OFS-1)."""
    log_start_offset = partition.log_start_offset or 0
    if not partition.segments or log_start_offset <= partition.segments[-1].base_offset:
        return log_start_offset
    try:
        log_end = partition.log_end()
    except AccessError:
        return log_start_offset
    if log_end is None or log_start_offset <= log_end.offset:
        return log_start_offset
    return partition.segments[0].base_offset


class Circumstances:
    """The facts on which the checks of one partition depend.

    Attributes:
        is_clean: the clean-shutdown marker exists.
        is_compacted: by the topic's policy, or because a batch shows a cleaner's work.
        has_damage: a range of the log is unusable. Facts derived from it cannot be judged.
        claimed_end_offset: the log reached at least this offset. None: unknown.
        interval_bytes: `index.interval.bytes`. None: the topic's settings are unknown.
        end_offset: log end offset so far.
        is_end_read: False: the last `.log` could not be read up to its end. The log may then end
            far above `end_offset`.
        reach_offset: the same, including batches with an impossible offset.
        remote_end_offset: end offset of the log in remote storage. None: it has none (KIP-405).
        refusals: in log order.
    """

    def __init__(self, partition: Partition, image: ClusterImage | None, *, now_ms: int) -> None:
        topic, log_dir = partition.topic, partition.log_dir
        self.now_ms = now_ms
        self.is_clean = partition.stopped is StoppedState.CLEAN
        self.is_trimmed = partition.is_trimmed
        self.is_metadata = topic == METADATA_TOPIC
        self.is_internal = topic in UNSEQUENCED_TOPICS
        self.is_compacted = topic in COORDINATOR_TOPICS
        self.interval_bytes: int | None = None
        if image is not None and topic in image.topics:
            node_id = None if log_dir is None or log_dir.meta is None else log_dir.meta.node_id
            config = read_log_config(image, topic, broker_id=node_id)
            self.is_compacted = self.is_compacted or config.is_compacted
            self.interval_bytes = config.index_interval_bytes
        else:
            self.is_compacted = self.is_compacted or bool(stated_is_compacted())
        if log_dir is not None and log_dir.cleaner_offsets:
            key = partition.directory.topic_partition
            self.is_compacted = self.is_compacted or key in log_dir.cleaner_offsets
        self.claimed_end_offset = partition.acknowledged.end_offset
        self.log_start_offset = _log_start_offset(partition)
        remote = partition.remote_range
        self.remote_end_offset = None if remote is None else remote.end_offset
        self.has_damage = False
        self.is_end_read = True
        self.refusals: list[Refusal] = []
        self.end_offset = partition.segments[0].base_offset if partition.segments else 0
        self.reach_offset = self.end_offset
        point = None if log_dir is None else log_dir.recovery_point(partition.directory)
        segments = partition.segments
        self._recovered_base = 0
        if segments:
            first = first_recovered(segments, 0 if self.is_metadata else point or 0)
            self._recovered_base = segments[first].base_offset
        self._holes: list[int] = []

    def is_recovered(self, files: SegmentFiles) -> bool:
        """Return whether a start rebuilds this segment's indexes, so that they may be wrong."""
        if self.is_clean and not self.is_metadata:
            return False
        return files.base_offset >= self._recovered_base

    def add_hole(self, offset: int) -> None:
        """Add a hole: offsets or batches from `offset` on are missing. Holes come in order."""
        self._holes.append(offset)

    def has_hole(self, after_offset: int, before_offset: int) -> bool:
        """Return whether something is missing between two offsets."""
        at = bisect_right(self._holes, after_offset)
        return at < len(self._holes) and self._holes[at] <= before_offset
