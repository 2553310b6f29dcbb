"""One pass over log dirs: the contents of their metadata and coordinators' topics.

For the metadata log it reads the newest whole snapshot and the log after it, like a start. For the
coordinators' topics it reads all records, like a coordinator.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from recovery.checks.context.broker_version import LINES, BrokerVersion, passes_over_beginning
from recovery.checks.context.collector import Collector
from recovery.checks.context.kraft_release import CANNOT_LOAD, ReleaseCheck
from storage.dirs.cluster_image import (
    TOPIC_RESOURCE,
    ClusterImage,
    load_snapshot,
    replay_control,
)
from storage.dirs.log_dir import only_begins
from storage.dirs.partition import Partition
from storage.errors import AccessError, CorruptError, FormatError
from storage.file_names import (
    BOOTSTRAP_NAME,
    COORDINATOR_TOPICS,
    GROUPS_TOPIC,
    METADATA_TOPIC,
    SHARE_GROUP_TOPIC,
    TRANSACTION_STATE_TOPIC,
    DirState,
)
from storage.formats import cluster_metadata as records
from storage.formats import share_group_state
from storage.formats.control_record import parse_control_key
from storage.formats.coordinator_record import parse_prefix
from storage.formats.quorum_state import NAME as QUORUM_STATE_NAME
from storage.formats.quorum_state import parse_quorum_state
from storage.formats.share_group_state import DeliveryState
from storage.log.segment import open_segment

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from storage.dirs.discovery import Selected
    from storage.dirs.log_dir import LogDir
    from storage.kernels.protocol import ScannedBatch
    from storage.log.segment import Segment

RELEASES = tuple(BrokerVersion(*each) for each in LINES)


class Place(NamedTuple):
    """The place of a first occurrence. `offset`: -1 without a record."""

    path: str
    offset: int = -1


class Registration(NamedTuple):
    """A registered node, and its last registration. -1: only a snapshot has it."""

    role: str  # broker, controller
    node_id: int
    offset: int
    timestamp_ms: int
    levels: dict[str, tuple[int, int]]


class Level(NamedTuple):
    """A new level of a feature."""

    name: str
    level: int
    place: Place


class Survey:
    """The contents of the log dirs.

    Attributes:
        log_dirs: the given log dirs.
        collectors: findings of metadata records that a release cannot load, by release.
        has_metadata: they have a metadata log, or the first records of a controller.
        image: of the newest metadata. None if there is none.
        levels: feature levels in the order of the log.
        registrations: the last registration by role and id.
        group_types: record types of `__consumer_offsets`, by partition directory.
        group_versions: versions of offsets and classic groups there, by partition directory.
        newer_transactions: where transactional ids have version 1, by partition directory.
        archiving: where share groups have records in the state archiving.
        shares: where share groups have state.
        ranges: access rules whose host is a range of addresses.
        settings: the last record of each setting of a topic.
        quorum_state: a `quorum-state` of version 1.
        beginning: the metadata directory that has no log yet, only a controller's first records.
        bootstrap: the `bootstrap.checkpoint`, if no other metadata exists.
        problems: what could not be read, in words.
    """

    def __init__(self, log_dirs: Sequence[LogDir]) -> None:
        self.log_dirs = log_dirs
        self.collectors = {each: Collector() for each in RELEASES}
        self.has_metadata = False
        self.image: ClusterImage | None = None
        self.levels: list[Level] = []
        self.registrations: dict[tuple[str, int], Registration] = {}
        self.group_types: dict[str, dict[int, Place]] = {}
        self.group_versions: dict[str, dict[int, Place]] = {}
        self.newer_transactions: dict[str, Place] = {}
        self.archiving: Place | None = None
        self.shares: Place | None = None
        self.ranges: dict[str, Place] = {}
        self.settings: dict[tuple[str, str], Place] = {}
        self.quorum_state: Place | None = None
        self.beginning: Place | None = None
        self.bootstrap: Place | None = None
        self.problems: list[str] = []


def survey(
    log_dirs: Sequence[LogDir],
    selected: Iterable[Selected],
    *,
    on_bytes: Callable[[int], object] = lambda _: None,
) -> Survey:
    """Read the metadata and the coordinators' topics. Other partitions are not opened."""
    found = Survey(log_dirs)
    for each in selected:
        name = each.partition.name
        is_wanted = name.topic == METADATA_TOPIC or name.topic in COORDINATOR_TOPICS
        if not is_wanted or name.state is not DirState.LIVE:
            continue
        try:
            partition = Partition.of(each)
        except AccessError as exc:
            found.problems.append(str(exc))
            continue
        if name.topic == METADATA_TOPIC:
            _MetadataSurvey(found, partition).run()
        else:
            _read_coordinator(found, partition)
        on_bytes(partition.files.log_bytes)
    for log_dir in log_dirs:
        if any(each.file.name == BOOTSTRAP_NAME for each in log_dir.others):
            _read_bootstrap(found, log_dir)
    return found


class _MetadataSurvey:
    """A reader of one metadata directory, once, for all releases."""

    def __init__(self, found: Survey, partition: Partition | None) -> None:
        self._found = found
        self._partition = partition
        self._checks = {
            version: ReleaseCheck(version, collector)
            for version, collector in found.collectors.items()
        }
        self._known: set[tuple[str, int, int]] = set()
        if partition is not None and only_begins(partition.path):
            found.beginning = Place(partition.path)
            self._checks = {
                version: check
                for version, check in self._checks.items()
                if not passes_over_beginning(version)
            }
        self.image = ClusterImage()

    def run(self) -> None:
        """Read the newest whole snapshot, and the log after it."""
        partition, found = self._partition, self._found
        assert partition is not None
        found.has_metadata = True
        for entry in reversed(partition.files.checkpoints):
            if load_snapshot(entry.path, entry.name.offset or 0) is not None:
                self.read_snapshot(entry.path)
                self.image.snapshot_offset = self.image.end_offset = entry.name.offset or 0
                break
        start_offset = self.image.snapshot_offset
        read = partition.read(start_offset)
        for placed in read:
            if placed.batch.crc_ok is not False:
                self._take(placed.segment, placed.batch, start_offset, is_log=True)
                last_offset = placed.batch.header.last_offset
                self.image.end_offset = max(self.image.end_offset, last_offset + 1)
        self._read_quorum_state()
        found.problems += map(str, partition.problems)
        if found.image is None or self.image.end_offset >= found.image.end_offset:
            found.image = self.image

    def read_snapshot(self, path: str) -> None:
        """Read all of a snapshot."""
        try:
            with open_segment(path) as segment:
                for batch in segment.scan(is_active=False):
                    self._take(segment, batch, 0, is_log=False)
        except AccessError as exc:
            self._found.problems.append(str(exc))

    def _read_quorum_state(self) -> None:
        assert self._partition is not None
        entry = self._partition.files.other(QUORUM_STATE_NAME)
        data = self._partition.read_file(entry)
        if entry is None or data is None:
            return
        try:
            state = parse_quorum_state(data)
            if state.data_version > 0:
                self._found.quorum_state = Place(entry.path)
            if not self.image.voters:
                self.image.voters = tuple(each.voter_id for each in state.current_voters or ())
        except FormatError as exc:
            self._found.problems.append(str(exc.located(entry.path)))

    def _take(
        self, segment: Segment, batch: ScannedBatch, start_offset: int, *, is_log: bool
    ) -> None:
        try:
            if batch.header.is_control:
                self._take_control(segment, batch)
                return
            for record in segment.records(batch):
                if record.offset >= start_offset:
                    self._take_record(segment.path, batch, record.offset, record.value, is_log)
        except (FormatError, AccessError) as exc:
            self._found.problems.append(str(exc))

    def _take_control(self, segment: Segment, batch: ScannedBatch) -> None:
        replay_control(self.image, segment, batch)
        for record in segment.records(batch):
            control_type = parse_control_key(record.key).type
            key = (segment.path, -1, control_type)
            if key not in self._known:
                self._known.add(key)
                for check in self._checks.values():
                    check.take_control(
                        segment.path, batch, record.offset, control_type, CANNOT_LOAD
                    )

    def _take_record(
        self, path: str, batch: ScannedBatch, offset: int, value: bytes | None, is_log: bool
    ) -> None:
        try:
            header = records.parse_header(value)
        except FormatError as exc:
            self._found.problems.append(str(exc.located(path, batch.pos)))
            return
        key = (path, header.api_key, header.version)
        if key not in self._known or header.api_key == records.FEATURE_LEVEL:
            self._known.add(key)
            for check in self._checks.values():
                if check.reads_bootstrap or not path.endswith(BOOTSTRAP_NAME):
                    check.take_record(path, batch, offset, value, CANNOT_LOAD)
        try:
            record = records.parse_record(value)
        except FormatError:
            return  # the checks have reported it
        self.image.replay(record)
        self._note(record, Place(path, offset), batch, is_log=is_log)

    def _note(
        self, record: records.MetadataRecord, place: Place, batch: ScannedBatch, *, is_log: bool
    ) -> None:
        found, data = self._found, record.data
        if record.api_key == records.FEATURE_LEVEL:
            found.levels.append(Level(data["name"], data["featureLevel"], place))
        elif record.api_key == records.ACCESS_CONTROL_ENTRY and "/" in data["host"]:
            found.ranges.setdefault(data["host"], place)
        elif record.api_key == records.CONFIG and data["resourceType"] == TOPIC_RESOURCE:
            found.settings[data["resourceName"], data["name"]] = place
        elif record.api_key in _ROLES:
            role, name = _ROLES[record.api_key]
            levels = {
                each["name"]: (each["minSupportedVersion"], each["maxSupportedVersion"])
                for each in data["features"]
            }
            found.registrations[role, data[name]] = Registration(
                role=role,
                node_id=data[name],
                offset=place.offset if is_log else -1,
                timestamp_ms=batch.header.max_timestamp_ms if is_log else -1,
                levels=levels,
            )


_ROLES = {
    records.REGISTER_BROKER: ("broker", "brokerId"),
    records.REGISTER_CONTROLLER: ("controller", "controllerId"),
}


def _read_bootstrap(found: Survey, log_dir: LogDir) -> None:
    """Take the state from a controller's first records if there is no metadata log.

    If they have no topics, but the log dir does, the metadata log exists and was not given.
    """
    reader = _MetadataSurvey(found, None)
    reader.read_snapshot(f"{log_dir.path}/{BOOTSTRAP_NAME}")
    if not found.has_metadata and (reader.image.topics or not log_dir.partitions):
        found.image, found.has_metadata = reader.image, True
        found.bootstrap = Place(f"{log_dir.path}/{BOOTSTRAP_NAME}")


# -- the coordinators' topics


def _read_coordinator(found: Survey, partition: Partition) -> None:
    topic, path = partition.topic, partition.path
    read = partition.read(0)
    for placed in read:
        if placed.batch.crc_ok is False or placed.batch.header.is_control:
            continue
        try:
            for offset, key, value in _pairs(placed.segment, placed.batch):
                _take_pair(found, topic, path, Place(placed.segment.path, offset), key, value)
        except (FormatError, AccessError) as exc:
            found.problems.append(str(exc))
    for files, verdict in read.verdicts:
        if not verdict.kind.is_end and verdict.check_id:
            error = CorruptError(
                verdict.reason or str(verdict.kind),
                check_id=verdict.check_id,
                pos=verdict.start_pos,
            )
            found.problems.append(str(error.located(files.log.path)))
    found.problems += map(str, partition.problems)


def _pairs(segment: Segment, batch: ScannedBatch) -> Iterator[tuple[int, bytes, bytes | None]]:
    for record in segment.records(batch):
        if record.key is not None:
            yield record.offset, record.key, record.value


def _take_pair(
    found: Survey, topic: str, path: str, place: Place, key: bytes, value: bytes | None
) -> None:
    number = parse_prefix(key, "key")
    if topic == SHARE_GROUP_TOPIC:
        if value is not None:
            found.shares = found.shares or place
        if found.archiving is None and value is not None and _has_archiving(key, value):
            found.archiving = place
        return
    if topic == GROUPS_TOPIC:
        found.group_types.setdefault(path, {}).setdefault(number, place)
    if value is None:
        return
    version = parse_prefix(value, "value")
    if topic == TRANSACTION_STATE_TOPIC and version > 0:
        found.newer_transactions.setdefault(path, place)
    elif topic == GROUPS_TOPIC and number <= _LAST_CLASSIC_TYPE:
        found.group_versions.setdefault(path, {}).setdefault(version, place)


_LAST_CLASSIC_TYPE = 2


def _has_archiving(key: bytes, value: bytes) -> bool:
    record = share_group_state.parse_record(key, value)
    batches = (record.value or {}).get("stateBatches") or ()
    return any(each["deliveryState"] == DeliveryState.ARCHIVING for each in batches)
