"""The state of the cluster in `__cluster_metadata-0`: topics, replicas, settings, brokers.

The newest whole `.checkpoint` (KRaft snapshot) is replayed, then the log from its end offset on. If
a cluster has no log yet, `bootstrap.checkpoint` may already contain the topics. Records between
BEGIN_TRANSACTION and END_TRANSACTION take effect together. Aborted transactions and a transaction
that is open at the end have no effect. Records above the quorum's high watermark, which is not on
disk, are replayed too. So the last few records of a controller that was not the leader may never
have been committed.

Unknown records and versions, and unreadable values, are counted and skipped. Then an answer may be
incomplete, and `is_complete` is False.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol

from storage.errors import AccessError, CorruptError, FormatError, UnsupportedError
from storage.file_names import BEGINNING_NAME, BOOTSTRAP_NAME, METADATA_TOPIC
from storage.formats import cluster_metadata as records
from storage.formats.control_record import MESSAGES as CONTROL_MESSAGES
from storage.formats.control_record import (
    ControlRecordType,
    parse_control_key,
    parse_control_message,
)
from storage.log.segment import open_segment

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from storage.dirs.log_dir import Problem
    from storage.dirs.partition_files import PartitionFiles, SegmentFiles
    from storage.kernels.protocol import ScannedBatch, Verdict
    from storage.log.segment import Segment

# ConfigResource.Type
TOPIC_RESOURCE = 2
BROKER_RESOURCE = 4
GROUP_RESOURCE = 32
ALL_BROKERS = ""  # resource name of the settings of all brokers

LEADER_UNCHANGED = -2
RECOVERY_UNCHANGED = -1  # LeaderRecoveryState
RECOVERING = 1
# Ids that stand for no directory (Kafka's DirectoryId)
ZERO_UUID = bytes(16)  # MIGRATING: unknown
UNASSIGNED_DIRECTORY = bytes(15) + b"\x01"
LOST_DIRECTORY = bytes(15) + b"\x02"
MAX_PROBLEMS_COUNT = 100
TORN_TAIL = "SEG-6"  # after a crash, preallocated, or during an append of a controller: no loss


_TRANSACTION_KEYS = frozenset(
    (records.BEGIN_TRANSACTION, records.END_TRANSACTION, records.ABORT_TRANSACTION)
)


class PartitionImage(NamedTuple):
    """The replicas and the leader of a partition. `directories` has the order of `replicas`.

    `elr`: replicas that may lead although out of the ISR, since they have all acknowledged records
    (KIP-966). `last_known_elr`: the last leader of a partition without ISR and ELR.
    """

    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    removing_replicas: tuple[int, ...]
    adding_replicas: tuple[int, ...]
    leader: int  # -1 none
    leader_epoch: int
    partition_epoch: int
    directories: tuple[bytes, ...]  # 16 bytes each, zeros if never assigned
    elr: tuple[int, ...] = ()
    last_known_elr: tuple[int, ...] = ()
    is_recovering: bool = False  # its leader is from an unclean election, and has not recovered


class TopicImage(NamedTuple):
    """A topic, with its partitions by number."""

    name: str
    topic_id: bytes
    partitions: dict[int, PartitionImage]


class Endpoint(NamedTuple):
    """An address where a node listens."""

    name: str
    host: str
    port: int


class BrokerImage(NamedTuple):
    """A registered broker."""

    broker_id: int
    broker_epoch: int
    is_fenced: bool
    rack: str | None
    log_dirs: tuple[bytes, ...]
    in_controlled_shutdown: bool = False
    cordoned_log_dirs: tuple[bytes, ...] = ()  # log directories that get no new replicas (KIP-1066)
    incarnation_id: bytes = ZERO_UUID  # random, new at each start of the broker
    endpoints: tuple[Endpoint, ...] = ()
    features: tuple[tuple[str, int, int], ...] = ()  # name, lowest and highest known level


class ControllerImage(NamedTuple):
    """A registered controller."""

    controller_id: int
    incarnation_id: bytes
    endpoints: tuple[Endpoint, ...]
    features: tuple[tuple[str, int, int], ...] = ()  # name, lowest and highest known level


class ClusterImage:
    """The replayed state.

    Attributes:
        topics: live topics by name.
        deleted_topics: names of removed topics by topic id, if the log still has them.
        configs: settings by (resource type, resource name), then by key.
        features: levels by name.
        quotas: by entity, then by key. An entity is pairs of a type and a name in the order of
            types. The name None is the default entity.
        acls: the fields of each access control entry, by its id.
        scram_iterations: of each SCRAM credential, by user and mechanism. Secrets are not kept.
        brokers: by id.
        controllers: by id, as they registered themselves (metadata version 3.7 and above).
        next_producer_id: above every block of producer ids handed out, or None without a block.
        snapshot_offset: end offset of the snapshot it starts with, or 0.
        snapshot_timestamp_ms: of the last record in that snapshot, or None if unknown.
        end_offset: one above the last replayed record.
        timestamp_ms: of the last replayed batch, or None if unknown.
        path: the directory or the file that it was loaded from, or "".
        voters: the controllers that elect a leader, by the quorum's own records. Empty if unknown.
        kraft_version: 1 if the voters are in the log and can change.
        quorum_leader: the last controller that became leader, or None if unknown.
        unknown_records_count: records that could not be decoded.
        problems: reading errors, at most 100.
    """

    def __init__(self) -> None:
        self.topics: dict[str, TopicImage] = {}
        self.deleted_topics: dict[bytes, str] = {}
        self.configs: dict[tuple[int, str], dict[str, str]] = {}
        self.features: dict[str, int] = {}
        self.quotas: dict[tuple[tuple[str, str | None], ...], dict[str, float]] = {}
        self.acls: dict[bytes, dict[str, Any]] = {}
        self.scram_iterations: dict[tuple[str, int], int] = {}
        self.brokers: dict[int, BrokerImage] = {}
        self.controllers: dict[int, ControllerImage] = {}
        self.next_producer_id: int | None = None
        self.snapshot_offset = 0
        self.snapshot_timestamp_ms: int | None = None
        self.end_offset = 0
        self.timestamp_ms: int | None = None
        self.path = ""
        self.voters: tuple[int, ...] = ()
        self.voter_directories: dict[int, bytes] = {}
        self.kraft_version = 0
        self.quorum_leader: int | None = None
        self.unknown_records_count = 0
        self.problems: list[Problem] = []
        self._by_id: dict[bytes, TopicImage] = {}
        self._pending: list[records.MetadataRecord] | None = None  # records of an open transaction

    @property
    def is_complete(self) -> bool:
        """Return whether every record was read and decoded."""
        return not self.problems and not self.unknown_records_count

    @property
    def open_transaction_records_count(self) -> int:
        """The number of records of an open metadata transaction, which are not in the image."""
        return len(self._pending or ())

    def topic_by_id(self, topic_id: bytes) -> TopicImage | None:
        """Look up a live topic by its 16-byte id."""
        return self._by_id.get(topic_id)

    def partition(self, topic: str, partition: int) -> PartitionImage | None:
        """Look up a partition. None if the image does not have it."""
        image = self.topics.get(topic)
        return None if image is None else image.partitions.get(partition)

    def replication_factor(self, topic: str, partition: int) -> int | None:
        """Count the replicas, including those being added or removed. None if unknown."""
        image = self.partition(topic, partition)
        return None if image is None else len(image.replicas)

    def topic_config(self, topic: str, key: str) -> str | None:
        """Return a topic's own setting. None if the broker's setting counts."""
        return self.configs.get((TOPIC_RESOURCE, topic), {}).get(key)

    def broker_config(self, key: str, *, broker_id: int | None = None) -> str | None:
        """Return a dynamic setting of a broker, else of all brokers. Ignores server.properties."""
        for name in ([] if broker_id is None else [str(broker_id)]) + [ALL_BROKERS]:
            value = self.configs.get((BROKER_RESOURCE, name), {}).get(key)
            if value is not None:
                return value
        return None

    def replay(self, record: records.MetadataRecord) -> None:
        """Apply the next record in log order."""
        for each in self.due(record):
            self.apply(each)

    def due(self, record: records.MetadataRecord) -> Sequence[records.MetadataRecord]:
        """Take the next record in log order. Returns the records that take effect with it.

        To see the change of each record, apply them one by one before the next call to `due`.
        """
        if self._pending is None and record.api_key not in _TRANSACTION_KEYS:
            return (record,)
        if record.api_key == records.BEGIN_TRANSACTION:
            self._pending = []
        elif record.api_key == records.ABORT_TRANSACTION:
            self._pending = None
        elif record.api_key == records.END_TRANSACTION:
            pending, self._pending = self._pending or (), None
            return pending
        elif self._pending is not None:
            self._pending.append(record)
        return ()

    def apply(self, record: records.MetadataRecord) -> None:
        """Let a record take effect."""
        apply = self._APPLY.get(record.api_key)
        if apply is not None:
            apply(self, record.data)

    def add_problem(self, problem: Problem) -> None:
        """Record a reading error."""
        if len(self.problems) < MAX_PROBLEMS_COUNT:
            self.problems.append(problem.without_frames())

    # --- one method for each relevant record ------------------------------------------------------

    def _topic(self, data: dict[str, Any]) -> None:
        topic = TopicImage(data["name"], data["topicId"], {})
        self.topics[topic.name] = self._by_id[topic.topic_id] = topic
        self.deleted_topics.pop(topic.topic_id, None)

    def _remove_topic(self, data: dict[str, Any]) -> None:
        topic = self._by_id.pop(data["topicId"], None)
        if topic is None:
            return
        self.deleted_topics[topic.topic_id] = topic.name
        if self.topics.get(topic.name) is topic:
            del self.topics[topic.name]
        self.configs.pop((TOPIC_RESOURCE, topic.name), None)

    def _partition(self, data: dict[str, Any]) -> None:
        topic = self._by_id.get(data["topicId"])
        if topic is None:
            return
        replicas = tuple(data["replicas"])
        topic.partitions[data["partitionId"]] = PartitionImage(
            replicas=replicas,
            isr=tuple(data["isr"]),
            removing_replicas=tuple(data["removingReplicas"]),
            adding_replicas=tuple(data["addingReplicas"]),
            leader=data["leader"],
            leader_epoch=data["leaderEpoch"],
            partition_epoch=data["partitionEpoch"],
            directories=_directories(data.get("directories") or (), len(replicas)),
            elr=tuple(data.get("eligibleLeaderReplicas") or ()),
            last_known_elr=tuple(data.get("lastKnownElr") or ()),
            is_recovering=data["leaderRecoveryState"] == RECOVERING,
        )

    def _partition_change(self, data: dict[str, Any]) -> None:
        topic = self._by_id.get(data["topicId"])
        before = None if topic is None else topic.partitions.get(data["partitionId"])
        if topic is None or before is None:
            return

        replicas, directories = data["replicas"], data.get("directories")
        isr, elr, last_known_elr = (
            data["isr"], data.get("eligibleLeaderReplicas"), data.get("lastKnownElr"),
        )  # fmt: skip
        removing, adding = data["removingReplicas"], data["addingReplicas"]
        recovery_state = data["leaderRecoveryState"]
        has_new_leader = data["leader"] != LEADER_UNCHANGED
        count = len(before.replicas if replicas is None else replicas)
        is_placed = directories is None and len(before.directories) == count
        topic.partitions[data["partitionId"]] = PartitionImage(
            replicas=before.replicas if replicas is None else tuple(replicas),
            isr=before.isr if isr is None else tuple(isr),
            removing_replicas=before.removing_replicas if removing is None else tuple(removing),
            adding_replicas=before.adding_replicas if adding is None else tuple(adding),
            leader=data["leader"] if has_new_leader else before.leader,
            leader_epoch=before.leader_epoch + has_new_leader,
            partition_epoch=before.partition_epoch + 1,
            directories=before.directories
            if is_placed
            else _directories(before.directories if directories is None else directories, count),
            elr=before.elr if elr is None else tuple(elr),
            last_known_elr=before.last_known_elr
            if last_known_elr is None
            else tuple(last_known_elr),
            is_recovering=(
                before.is_recovering
                if recovery_state == RECOVERY_UNCHANGED
                else recovery_state == RECOVERING
            ),
        )

    def _clear_elr(self, data: dict[str, Any]) -> None:
        """Without a topic name it clears all topics. Each partition with an ELR changes."""
        name = data["topicName"]
        for topic in [self.topics.get(name)] if name else list(self.topics.values()):
            for number, before in () if topic is None else topic.partitions.items():
                if topic is not None and (before.elr or before.last_known_elr):
                    topic.partitions[number] = before._replace(
                        partition_epoch=before.partition_epoch + 1, elr=(), last_known_elr=()
                    )

    def _config(self, data: dict[str, Any]) -> None:
        resource = self.configs.setdefault((data["resourceType"], data["resourceName"]), {})
        if data["value"] is None:
            resource.pop(data["name"], None)
        else:
            resource[data["name"]] = data["value"]

    def _client_quota(self, data: dict[str, Any]) -> None:
        names = {each["entityType"]: each["entityName"] for each in data["entity"]}
        entity = tuple((each, names[each]) for each in sorted(names))
        quotas = self.quotas.setdefault(entity, {})
        if not data["remove"]:
            quotas[data["key"]] = data["value"]
        else:
            quotas.pop(data["key"], None)
        if not quotas:
            del self.quotas[entity]

    def _access_control_entry(self, data: dict[str, Any]) -> None:
        self.acls[data["id"]] = data

    def _remove_access_control_entry(self, data: dict[str, Any]) -> None:
        self.acls.pop(data["id"], None)

    def _scram_credential(self, data: dict[str, Any]) -> None:
        self.scram_iterations[data["name"], data["mechanism"]] = data["iterations"]

    def _remove_scram_credential(self, data: dict[str, Any]) -> None:
        self.scram_iterations.pop((data["name"], data["mechanism"]), None)

    def _feature_level(self, data: dict[str, Any]) -> None:
        if data["featureLevel"]:
            self.features[data["name"]] = data["featureLevel"]
        else:
            self.features.pop(data["name"], None)

    def _producer_ids(self, data: dict[str, Any]) -> None:
        self.next_producer_id = data["nextProducerId"]

    def _register_broker(self, data: dict[str, Any]) -> None:
        self.brokers[data["brokerId"]] = BrokerImage(
            broker_id=data["brokerId"],
            broker_epoch=data["brokerEpoch"],
            is_fenced=data["fenced"],
            rack=data["rack"],
            log_dirs=tuple(data.get("logDirs") or ()),
            in_controlled_shutdown=data.get("inControlledShutdown", False),
            cordoned_log_dirs=tuple(data.get("cordonedLogDirs") or ()),
            incarnation_id=data["incarnationId"],
            endpoints=_endpoints(data),
            features=_features(data),
        )

    def _register_controller(self, data: dict[str, Any]) -> None:
        self.controllers[data["controllerId"]] = ControllerImage(
            controller_id=data["controllerId"],
            incarnation_id=data["incarnationId"],
            endpoints=_endpoints(data),
            features=_features(data),
        )

    def _unregister_controller(self, data: dict[str, Any]) -> None:
        self.controllers.pop(data["controllerId"], None)

    def _unregister_broker(self, data: dict[str, Any]) -> None:
        self.brokers.pop(data["brokerId"], None)

    def _fence_broker(self, data: dict[str, Any]) -> None:
        self._change_broker(data["id"], is_fenced=True)

    def _unfence_broker(self, data: dict[str, Any]) -> None:
        self._change_broker(data["id"], is_fenced=False)

    def _registration_change(self, data: dict[str, Any]) -> None:
        changes: dict[str, Any] = {}
        if data["fenced"]:  # 1 fence, -1 unfence, 0 leave
            changes["is_fenced"] = data["fenced"] > 0
        if data.get("inControlledShutdown"):  # 1 begins; only a new registration ends it
            changes["in_controlled_shutdown"] = True
        if data.get("logDirs"):
            changes["log_dirs"] = tuple(data["logDirs"])
        if data.get("cordonedLogDirs") is not None:
            changes["cordoned_log_dirs"] = tuple(data["cordonedLogDirs"])
        self._change_broker(data["brokerId"], **changes)

    def take_control(self, control_type: int, message: dict[str, Any]) -> None:
        """Apply a record of the quorum itself."""
        if control_type == ControlRecordType.SNAPSHOT_HEADER:
            self.snapshot_timestamp_ms = message["lastContainedLogTimestamp"]
        elif control_type == ControlRecordType.KRAFT_VERSION:
            self.kraft_version = message["kRaftVersion"]
        elif control_type in (ControlRecordType.LEADER_CHANGE, ControlRecordType.KRAFT_VOTERS):
            self.voter_directories = {
                each["voterId"]: each.get("voterDirectoryId", ZERO_UUID)
                for each in message["voters"]
            }
            self.voters = tuple(sorted(self.voter_directories))
            if control_type == ControlRecordType.LEADER_CHANGE:
                self.quorum_leader = message["leaderId"]

    def _change_broker(self, broker_id: int, **changes: Any) -> None:
        broker = self.brokers.get(broker_id)
        if broker is not None:
            self.brokers[broker_id] = broker._replace(**changes)

    _APPLY: ClassVar[dict[int, Callable[[ClusterImage, dict[str, Any]], None]]] = {
        records.TOPIC: _topic,
        records.REMOVE_TOPIC: _remove_topic,
        records.PARTITION: _partition,
        records.PARTITION_CHANGE: _partition_change,
        records.CONFIG: _config,
        records.FEATURE_LEVEL: _feature_level,
        records.CLIENT_QUOTA: _client_quota,
        records.ACCESS_CONTROL_ENTRY: _access_control_entry,
        records.REMOVE_ACCESS_CONTROL_ENTRY: _remove_access_control_entry,
        records.USER_SCRAM_CREDENTIAL: _scram_credential,
        records.REMOVE_USER_SCRAM_CREDENTIAL: _remove_scram_credential,
        records.PRODUCER_IDS: _producer_ids,
        records.REGISTER_BROKER: _register_broker,
        records.UNREGISTER_BROKER: _unregister_broker,
        records.FENCE_BROKER: _fence_broker,
        records.UNFENCE_BROKER: _unfence_broker,
        records.BROKER_REGISTRATION_CHANGE: _registration_change,
        records.REGISTER_CONTROLLER: _register_controller,
        records.UNREGISTER_CONTROLLER: _unregister_controller,
        records.CLEAR_ELR: _clear_elr,
    }


def _directories(directories: list[bytes] | tuple[bytes, ...], count: int) -> tuple[bytes, ...]:
    """Return one directory id for each replica, zeros (migrating) if the record has no ids."""
    return tuple(directories) if len(directories) == count else (ZERO_UUID,) * count


def _endpoints(data: dict[str, Any]) -> tuple[Endpoint, ...]:
    return tuple(Endpoint(each["name"], each["host"], each["port"]) for each in data["endPoints"])


def _features(data: dict[str, Any]) -> tuple[tuple[str, int, int], ...]:
    found = (
        (each["name"], each["minSupportedVersion"], each["maxSupportedVersion"])
        for each in data["features"]
    )
    return tuple(sorted(found))  # a snapshot has another order than the log


class MetadataLog(Protocol):
    """The interface required of a `storage.dirs.partition.Partition` of `__cluster_metadata-0`."""

    @property
    def path(self) -> str:
        """The directory."""

    @property
    def files(self) -> PartitionFiles:
        """The files of the directory."""

    @property
    def segments(self) -> tuple[SegmentFiles, ...]:
        """Segments by base offset."""

    @property
    def problems(self) -> Sequence[Problem]:
        """The reading errors of the directory."""

    def read(self, start_offset: int, end_offset: int | None = None) -> MetadataBatches:
        """Read the batches with offsets from `start_offset` on."""


class MetadataBatches(Protocol):
    """Batches in order, and afterwards the parts that were not read."""

    def __iter__(self) -> Iterator[MetadataBatch]:
        """Yield the batches."""

    @property
    def verdicts(self) -> Sequence[tuple[SegmentFiles, Verdict]]:
        """The verdict at the end of each segment."""


class MetadataBatch(Protocol):
    """A batch in its segment."""

    @property
    def segment(self) -> Segment:
        """The segment."""

    @property
    def batch(self) -> ScannedBatch:
        """The batch."""


def load_cluster_image(partition: MetadataLog) -> ClusterImage:
    """Replay the snapshots and the log of a `__cluster_metadata-0` directory.

    Raises nothing for the content of the files. `problems` has the errors.
    """
    rejected: list[Problem] = []
    image = ClusterImage()
    for entry in reversed(partition.files.checkpoints):
        attempt = load_snapshot(entry.path, entry.name.offset or 0)
        if attempt is not None:
            image = attempt
            break
        rejected.append(
            CorruptError("not a whole snapshot", check_id="KRF-2", pos=0).located(entry.path)
        )
    for problem in rejected:
        image.add_problem(problem)
    image.path, image.timestamp_ms = partition.path, image.snapshot_timestamp_ms
    read = partition.read(image.snapshot_offset)
    if partition.segments and partition.segments[0].base_offset > image.end_offset:
        image.add_problem(
            CorruptError(
                "the log begins above the end of the newest snapshot",
                check_id="KRF-1",
                pos=0,
                expected=f"a snapshot that ends at {partition.segments[0].base_offset} or above",
                found=str(image.snapshot_offset),
            ).located(partition.path)
        )
    for placed in read:
        if placed.batch.crc_ok is not False:
            _replay_batch(image, placed.segment, placed.batch, image.snapshot_offset)
            header = placed.batch.header
            if header.last_offset >= image.end_offset:
                image.end_offset = header.last_offset + 1
                if header.max_timestamp_ms >= 0:
                    image.timestamp_ms = header.max_timestamp_ms
    for problem in unread_of(partition, read):
        image.add_problem(problem)
    return image


def unread_of(partition: MetadataLog, read: MetadataBatches) -> Iterator[Problem]:
    """Yield the parts of a log that were not read. A torn or preallocated tail is no loss."""
    for files, verdict in read.verdicts:
        if verdict.check_id != TORN_TAIL:
            yield CorruptError(
                verdict.reason or str(verdict.kind),
                check_id=verdict.check_id,
                pos=verdict.start_pos,
            ).located(files.log.path)
    yield from partition.problems


def load_bootstrap_image(log_dir: str) -> ClusterImage | None:
    """Replay the bootstrap snapshot of a log directory. None unless it is whole and has topics.

    A controller without a metadata log starts from a `bootstrap.checkpoint`, or since 4.4 from a
    snapshot of offset 0. Most of these have only features and no topics. Such a snapshot is no
    cluster state: all topics would be missing.
    """
    for place in (BOOTSTRAP_NAME, f"{METADATA_TOPIC}-0/{BEGINNING_NAME}"):
        path = str(Path(log_dir, place))
        image = load_snapshot(path, 0)
        if image is not None and image.topics:
            image.path = path
            return image
    return None


def load_snapshot(path: str, end_offset: int) -> ClusterImage | None:
    """Replay a `.checkpoint`. None unless it is whole, from header to footer (KRF-2)."""
    image = ClusterImage()
    control_types: list[int] = []
    try:
        with open_segment(path) as segment:
            scan = segment.scan(is_active=False)
            for batch in scan:
                control_types += _replay_batch(image, segment, batch, 0)
            if scan.verdicts:
                return None
    except AccessError:
        return None
    ends = {ControlRecordType.SNAPSHOT_HEADER, ControlRecordType.SNAPSHOT_FOOTER}
    if not control_types or {control_types[0], control_types[-1]} != ends:
        return None
    image.snapshot_offset = image.end_offset = end_offset
    return image


def _replay_batch(
    image: ClusterImage, segment: Segment, batch: ScannedBatch, start_offset: int
) -> list[int]:
    """Replay the records of a batch from an offset on. Returns the types of its control records."""
    if batch.header.is_control:
        return replay_control(image, segment, batch)
    try:
        for record in segment.records(batch):
            if record.offset < start_offset:
                continue
            try:
                image.replay(records.parse_record(record.value))
            except UnsupportedError:
                image.unknown_records_count += 1
            except FormatError as exc:
                image.unknown_records_count += 1
                image.add_problem(exc.located(segment.path, batch.pos))
    except (FormatError, AccessError) as exc:
        image.add_problem(exc)
    return []


def replay_control(image: ClusterImage, segment: Segment, batch: ScannedBatch) -> list[int]:
    """Replay a control batch. Returns the types of its records."""
    types = []
    try:
        for record in segment.records(batch):
            types.append(parse_control_key(record.key).type)
            if types[-1] in CONTROL_MESSAGES:
                message = parse_control_message(types[-1], record.value)
                image.take_control(types[-1], message)
    except (FormatError, AccessError) as exc:
        image.add_problem(exc)
    return types
