"""Coordinators in a log dir: of its transactional ids, and of its groups' committed offsets."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from eoctl.clients.partitions.identity import OwnIds
from recovery.cluster.clusters import image_around
from recovery.cluster.coordinator_log import (
    MAX_PROBLEMS_COUNT,
    CoordinatorLog,
    find_copies,
    partitions_count,
)
from recovery.cluster.group_offsets import find_group_offsets
from storage.dirs.log_dir import read_log_dir
from storage.errors import RefusedError, UsageError, pasted
from storage.file_names import GROUPS_TOPIC, TRANSACTION_STATE_TOPIC
from storage.formats.consumer_offsets import (
    OffsetCommit,
    OffsetKey,
    encode_offset_key,
    offset_value_version,
)
from storage.formats.transaction_state import TransactionStatus, encode_key
from storage.producers.java_hash_map import coordinator_partition
from storage.producers.transaction_metadata import DEFAULT_TIMEOUT_MS, CoordinatorError
from storage.producers.transactions import DEFAULT_MAX_TIMEOUT_MS
from storage.writing.coordinator import (
    DEFAULT_PARTITIONS_COUNT,
    ClusterSettings,
    TransactionCoordinator,
    append_offsets,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from eoctl.clients.partitions.open_partition import OpenPartitions
    from storage.dirs.cluster_image import ClusterImage
    from storage.dirs.log_dir import LogDir
    from storage.file_names import TopicPartition
    from storage.formats.transaction_state import TransactionState
    from storage.producers.transaction_metadata import ProducerIdAndEpoch
    from storage.writing.coordinator import Partitions


class CoordinatorTopic(NamedTuple):
    """A coordinator's topic, for transactions or for groups.

    Attributes:
        log_dir_path, topic: path of the first log dir, and name of the topic.
        numbers: of the partitions on disk.
        partitions_count: from the metadata, or else from the partitions on disk, or else Kafka's
            default.
    """

    log_dir_path: str
    topic: str
    numbers: Collection[int]
    partitions_count: int

    def home_of(self, name: str) -> int:
        """Return the partition for a group or a transactional id."""
        return coordinator_partition(name, self.partitions_count)

    def require_placed(self, number: int, name: str, what: str) -> None:
        """Refuse records in a partition that is not the partition for their name.

        Args:
            number: the partition with the records.
            name: of the group or the transactional id.
            what: subject and verb of the message.

        Raises:
            RefusedError: the records show that the number of partitions is not the assumed number.
        """
        home = self.home_of(name)
        if home != number:
            raise RefusedError(
                f"{self.log_dir_path}: {what} in {self.topic}-{number}, and with "
                f"{self.partitions_count} partitions it belongs to {home}. The number of "
                "partitions is unknown",
                next_step="--metadata-dir DIR with the cluster's metadata",
            )

    def require_home(self, name: str, what: str, next_step: str, *, is_known: bool) -> None:
        """Refuse a name whose newest record may have been in a directory that is not on disk.

        A broker makes all partitions at once, so with metadata (`is_known`) every directory
        existed. If `create_topic` was interrupted, the first partitions are missing.

        Args:
            name: of the group or the transactional id.
            what: subject of the message: the content of the missing directory.
            next_step: the next step of the message.
            is_known: the cluster has the topic.

        Raises:
            RefusedError: the partition for the name is not on disk.
        """
        home = self.home_of(name)
        is_lost = is_known or min(self.numbers, default=home) < home
        if home not in self.numbers and is_lost:
            raise RefusedError(
                f"{self.log_dir_path}: {self.topic}-{home} is not here: {what} was in it",
                next_step=next_step,
            )


def inspect_topic(
    log_dirs: Sequence[LogDir], image: ClusterImage | None, topic: str
) -> CoordinatorTopic:
    """Return a coordinators' topic with its partitions in the log dirs of one cluster.

    Raises:
        AccessError: a directory of the topic cannot be listed.
    """
    numbers, problems = find_copies(log_dirs, topic)
    if problems:
        raise problems[0]
    highest = max(numbers, default=-1)
    count = partitions_count(image, topic, highest)
    if count is None:
        count = DEFAULT_PARTITIONS_COUNT if highest < 0 else highest + 1
    return CoordinatorTopic(
        log_dir_path=log_dirs[0].path, topic=topic, numbers=numbers, partitions_count=count
    )


# -- the coordinator of the transactional ids in a log dir's own `__transaction_state`


TRANSACTION_VERSION = "transaction.version"  # a feature
NEVER_WRITTEN = (TransactionStatus.DEAD, TransactionStatus.PREPARE_EPOCH_FENCE)


class ReadLog(NamedTuple):
    """All records, each in the right partition, and their topic."""

    log: CoordinatorLog
    topic: CoordinatorTopic


def read_coordinator_log(log_dir: LogDir, image: ClusterImage | None, notes: list[str]) -> ReadLog:
    """Read all records.

    Raises:
        RefusedError: as `require_sound`.
    """
    return require_sound(CoordinatorLog([log_dir], image), [log_dir], image, notes)


def require_sound(
    log: CoordinatorLog, log_dirs: Sequence[LogDir], image: ClusterImage | None, notes: list[str]
) -> ReadLog:
    """Require that a coordinator may continue from the records in the log dirs of one cluster.

    Raises:
        RefusedError: the state of an id may be lost, or may be in the wrong partition.
    """
    _require_whole(log, log_dirs[0], notes)
    topic = inspect_topic(log_dirs, image, TRANSACTION_STATE_TOPIC)
    for each in log.ids.values():
        name = each.transactional_id
        topic.require_placed(each.partition, name, f"a record of {name} is")
        if each.state is not None:
            _require_possible(each.state, log_dirs[0])
    return ReadLog(log, topic)


def _require_whole(log: CoordinatorLog, log_dir: LogDir, notes: list[str]) -> None:
    """Refuse a log if any record of an id may be lost.

    A record of an unknown type has no id and is skipped, as in a broker. A record of an unknown
    version has an id, and is refused. A broker would continue with the record before it.
    """
    unknown = [each for each in log.problems if getattr(each, "check_id", "") == "COO-2"]
    if len(log.problems) > len(unknown) or len(unknown) >= MAX_PROBLEMS_COUNT:
        problem = next((each for each in log.problems if each not in unknown), log.problems[0])
        raise RefusedError(
            f"the coordinator's log cannot be read whole: {problem}",
            next_step=f"eoctl check {pasted(log_dir.path)}",
        )
    if unknown:
        notes.append(
            f"{len(unknown)} record(s) of {TRANSACTION_STATE_TOPIC} have an unknown type, and "
            "were left alone [COO-2]"
        )


def _require_possible(state: TransactionState, log_dir: LogDir) -> None:
    """Refuse a state that no coordinator writes. Its marker would go to the partitions of others.

    A broker answers such an id with UNKNOWN_SERVER_ERROR, or writes a marker that no log accepts.
    """
    name, status = state.transactional_id, state.status
    what = ""
    if status in NEVER_WRITTEN:
        what = f"status {status.label}, which is never written"
    elif state.producer_id < 0 or state.producer_epoch < 0:
        what = f"producer id {state.producer_id}, epoch {state.producer_epoch}"
    if what:
        raise RefusedError(
            f"{log_dir.path}: the newest record of {name} in {TRANSACTION_STATE_TOPIC} has {what}",
            next_step=f"eoctl check {pasted(log_dir.path)}",
        )


def require_home(topic: CoordinatorTopic, image: ClusterImage | None, name: str) -> None:
    """Refuse an id whose newest record may have been in a directory that is not on disk."""
    topic.require_home(
        name,
        f"what is known of {name}",
        "get the directory back, or use another transactional id",
        is_known=image is not None and bool(topic.numbers),
    )


def open_coordinator(
    read: ReadLog,
    log_dirs: Sequence[LogDir],
    image: ClusterImage | None,
    partitions: Partitions,
    now_ms: Callable[[], int],
    notes: list[str],
    *,
    max_timeout_ms: int = DEFAULT_MAX_TIMEOUT_MS,
) -> TransactionCoordinator:
    """Return the coordinator, which writes to `partitions`.

    Args:
        read: its records. New producer ids are not among the ids in them.
        log_dirs: these must not know new producer ids either.
        image: of the cluster.
        partitions: the partitions to write to.
        now_ms: the clock.
        notes: gets messages for people about new ids.
        max_timeout_ms: transaction.max.timeout.ms of the brokers.
    """
    next_broker_id = None if image is None else image.next_producer_id
    own_ids = OwnIds((each.path for each in log_dirs), next_broker_id, notes)
    version = 2 if image is None else image.features.get(TRANSACTION_VERSION, 0)
    return TransactionCoordinator(
        partitions,
        (each.state for each in read.log.ids.values() if each.state is not None),
        ClusterSettings(
            read.topic.partitions_count,
            inspect_topic(log_dirs, image, GROUPS_TOPIC).partitions_count,
            transaction_version=version,
            max_timeout_ms=max_timeout_ms,
        ),
        now_ms=now_ms,
        new_producer_id=lambda: own_ids.random_id(read.log.producer_ids),
    )


# -- the committed offsets of a group: read from `__consumer_offsets` of a log dir, and appended
#
# An offset committed in a transaction counts once the transaction has committed. The members of a
# group are ignored, because no consumer of the group can run while no broker runs.


METADATA_VERSION = "metadata.version"  # a feature


def written_offset_version(image: ClusterImage | None, known: Iterable[int] = ()) -> int:
    """Return the version of OffsetCommitValue that the brokers of a cluster write.

    Args:
        image: the cluster's metadata.
        known: versions of values that its brokers have written. They decide if no metadata shows
            the release. Older brokers cannot read a newer version, and then load no later record
            either.
    """
    level = None if image is None else image.features.get(METADATA_VERSION)
    if level is None:
        return max(known, default=3)
    return offset_value_version(level)


class GroupCommits:
    """The offsets of one group.

    Attributes:
        group: its id.
        partition: the partition of `__consumer_offsets` for the group.
    """

    def __init__(self, group: str, log_dir_path: str, metadata_dir: str | None) -> None:
        """Find the group's partition, without any change.

        Raises:
            UsageError: the group has no name, or a name too long for a record.
            RefusedError: the group's partition is not on disk, or its number is unknown.
            AccessError: the log dir, or a directory in it, cannot be listed.
        """
        if not group:
            raise UsageError("--group: a group has a name")
        encode_offset_key(OffsetKey(group, "", 0))  # checked before anything is sent
        self.group = group
        self._log_dir_path = log_dir_path
        log_dir = read_log_dir(log_dir_path)
        self._image = image_around(log_dir if log_dir.is_log_dir else None, metadata_dir)
        image = self._image
        self._topic = inspect_topic([log_dir], image, GROUPS_TOPIC)
        self._is_lacking = image is None and not self._topic.numbers
        self.partition = self._topic.home_of(group)
        self._require_home(is_known=image is not None and GROUPS_TOPIC in image.topics)
        self._version = written_offset_version(image)

    def _require_home(self, *, is_known: bool) -> None:
        """Refuse a group whose offsets may be in a partition that is not on disk."""
        numbers = self._topic.numbers
        if not is_known and numbers and len(numbers) <= max(numbers) - min(numbers):
            raise RefusedError(
                f"{self._log_dir_path}: {GROUPS_TOPIC} has gaps here. The number of partitions is "
                f"unknown, and so is the partition with the offsets of group {self.group}",
                next_step="--metadata-dir DIR with the cluster's metadata",
            )
        what = f"what group {self.group} has committed"
        self._topic.require_home(self.group, what, "get the directory back", is_known=is_known)

    def committed(self, place: TopicPartition) -> int | None:
        """Return the group's committed offset of a partition, None if there is none.

        Raises:
            RefusedError: its offsets cannot be read completely.
        """
        found = find_group_offsets([read_log_dir(self._log_dir_path)], *place, image=self._image)
        if found is None:
            return None
        if found.problems:
            raise RefusedError(
                f"the offsets of group {self.group} cannot be read whole: {found.problems[0]}",
                next_step=f"eoctl check {pasted(self._log_dir_path)}",
            )
        if found.partitions_count is None:
            for number, offsets in found.offsets_in.items():
                for each in offsets:
                    what = f"offsets of group {each.group} are"
                    self._topic.require_placed(number, each.group, what)
        # If the number of partitions was raised, other partitions may have stale offsets.
        at_home = found.offsets_in.get(self.partition, ())
        ours = (each for each in at_home if each.group == self.group)
        return next((each.offset for each in ours if not each.is_pending), None)

    def create_topic(self, partitions: OpenPartitions) -> None:
        """Make the offsets topic if it is missing and the log dir belongs to no cluster."""
        if self._is_lacking:
            partitions.create_topic(GROUPS_TOPIC, DEFAULT_PARTITIONS_COUNT)
            self._is_lacking = False

    def commit(
        self,
        partitions: OpenPartitions,
        offsets: Mapping[TopicPartition, int],
        now_ms: Callable[[], int],
        producer: ProducerIdAndEpoch | None = None,
    ) -> None:
        """Commit next offsets, with a `producer` in its transaction.

        Raises:
            RefusedError, AppendError, AccessError: they cannot be written.
        """
        self.create_topic(partitions)
        time_ms = now_ms()
        records = {
            OffsetKey(self.group, *place): OffsetCommit(
                self._version, offset, commit_timestamp_ms=time_ms
            )
            for place, offset in offsets.items()
        }
        writer = partitions.writer(GROUPS_TOPIC, self.partition)
        append_offsets(writer, records, now_ms=time_ms, producer=producer)


# -- a transactional id in a log dir: its coordinator, opened there, and its newest producer
#
# In a log dir that belongs to no cluster, both coordinators' topics are made. Decided transactions
# of other ids are completed first, as by a broker that becomes their coordinator.


MAX_INIT_REQUESTS = 3


class TransactionalOptions(NamedTuple):
    """The options of the command line.

    Attributes:
        transactional_id: the id of the transactions.
        timeout_ms: transaction.timeout.ms.
        max_timeout_ms: transaction.max.timeout.ms of the brokers.
        version: transaction version of this producer, None for the cluster's version.
    """

    transactional_id: str
    timeout_ms: int = DEFAULT_TIMEOUT_MS
    max_timeout_ms: int = DEFAULT_MAX_TIMEOUT_MS
    version: int | None = None


class Transactional:
    """A producer with a transactional id.

    Attributes:
        producer: id and epoch of the current or next transaction.
        version: the transaction version of this producer.
        notes: messages for people.
    """

    def __init__(
        self,
        log_dir_path: str,
        metadata_dir: str | None,
        partitions: OpenPartitions,
        options: TransactionalOptions,
        now_ms: Callable[[], int],
    ) -> None:
        """Open the coordinator, and begin a session of the id. Older sessions are fenced.

        Raises:
            CoordinatorError: a coordinator refuses it.
            UsageError: the id does not fit into a record.
            RefusedError, AccessError: the coordinators' topics cannot be used.
        """
        encode_key(options.transactional_id)  # checked before a topic is made
        log_dir = read_log_dir(log_dir_path)
        image = image_around(log_dir if log_dir.is_log_dir else None, metadata_dir)
        self.notes: list[str] = []
        self._options = options
        self._partitions = partitions
        self._now_ms = now_ms
        self._added: set[tuple[str, int]] = set()
        read = read_coordinator_log(log_dir, image, self.notes)
        if image is None and not read.topic.numbers:
            partitions.create_topic(TRANSACTION_STATE_TOPIC, DEFAULT_PARTITIONS_COUNT)
        else:
            require_home(read.topic, image, options.transactional_id)
        self.coordinator = open_coordinator(
            read, [log_dir], image, partitions, now_ms, self.notes,
            max_timeout_ms=options.max_timeout_ms,
        )  # fmt: skip
        version = self.coordinator.settings.transaction_version
        self.version = version if options.version is None else options.version
        if self.version > version:
            raise RefusedError(
                f"transaction version {self.version}: the cluster's feature {TRANSACTION_VERSION}"
                f" is at {version}"
            )
        for metadata, reason in self.coordinator.complete_prepared():
            self.notes.append(
                f"{metadata.state.transactional_id}: is {metadata.status.label}, and stays so:"
                f" {reason}"
            )
        self.producer = self._init()

    def _init(self) -> ProducerIdAndEpoch:
        """Request a producer id as a client does.

        The first request aborts an open transaction of an older session.
        """
        name, timeout_ms = self._options.transactional_id, self._options.timeout_ms
        for number in range(MAX_INIT_REQUESTS):
            try:
                return self.coordinator.init_producer_id(name, timeout_ms)
            except CoordinatorError as exc:
                is_last = number == MAX_INIT_REQUESTS - 1
                if exc.kafka_error != "CONCURRENT_TRANSACTIONS" or is_last:
                    raise
                self.notes.append(str(exc))
        raise AssertionError("the last request returns or raises")

    def add(
        self, partitions: Iterable[tuple[str, int]], sender: ProducerIdAndEpoch | None = None
    ) -> None:
        """Add partitions to the transaction, before anything is sent to them.

        Args:
            partitions: topics and numbers.
            sender: the producer that will send to them, if it may be another than ours.

        Raises:
            CoordinatorError: PRODUCER_FENCED or INVALID_PRODUCER_ID_MAPPING, because the sender is
                not the current producer.
        """
        missing = [each for each in partitions if each not in self._added]
        if missing:
            self.coordinator.add_partitions(
                self._options.transactional_id,
                sender or self.producer,
                missing,
                client_version=self.version,
            )
            self._added.update(missing)

    def commit_offsets(
        self, offsets: GroupCommits, positions: Mapping[TopicPartition, int]
    ) -> None:
        """Commit the next offsets of a group within the transaction."""
        offsets.create_topic(self._partitions)
        place = (GROUPS_TOPIC, offsets.partition)
        if place not in self._added:
            name = self._options.transactional_id
            self.coordinator.add_offsets(
                name, self.producer, offsets.group, client_version=self.version
            )
            self._added.add(place)
        offsets.commit(self._partitions, positions, self._now_ms, self.producer)

    def end(self, *, is_commit: bool) -> None:
        """Commit or abort, after all records were appended.

        Without partitions this does nothing.
        """
        if not self._added:
            return
        self.producer = self.coordinator.end_transaction(
            self._options.transactional_id,
            self.producer,
            is_commit=is_commit,
            client_version=self.version,
        )
        self._added.clear()

    def abort(self) -> None:
        """Abort after an error. If files failed, the next session of the id aborts."""
        if all(each.writer.is_ready for each in self._partitions):
            self.end(is_commit=False)
