"""The rows of `metadata`: the cluster's state at a moment."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

from eoctl.clock import format_time_ms
from eoctl.console.columns import cell_text
from eoctl.messages import first_of, listing
from eoctl.output import PLACE, Columns
from storage.counts import agreeing, counted
from storage.dirs.acknowledged_offsets import ReplicaStanding
from storage.dirs.cluster_image import LOST_DIRECTORY, UNASSIGNED_DIRECTORY, ZERO_UUID
from storage.dirs.topic_settings import (
    MIN_INSYNC_REPLICAS,
    SettingSource,
    is_under_min_isr,
    min_insync_replicas,
    topic_setting,
)
from storage.formats.partition_metadata import format_uuid

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from storage.dirs.acknowledged_offsets import InCluster
    from storage.dirs.cluster_image import ClusterImage, TopicImage
    from storage.dirs.log_dir import Problem


_DIRECTORY_WORDS = {
    ZERO_UUID: "unknown",
    UNASSIGNED_DIRECTORY: "unassigned",
    LOST_DIRECTORY: "lost",
}


class ClusterRow(NamedTuple):
    """The cluster as a whole, and facts about its metadata.

    Attributes:
        node_id: the node whose copy of the metadata it is.
        counted_offset: all records below it certainly count.
        maybe_records_count: the number of records above it.
    """

    cluster_id: str | None
    path: str
    node_id: int | None
    start_offset: int
    end_offset: int
    timestamp_ms: int | None
    quorum_leader: int | None
    voters: tuple[int, ...]
    counted_offset: int
    counted_by: str
    maybe_records_count: int
    is_complete: bool
    brokers_count: int
    fenced_count: int
    topics_count: int
    partitions_count: int
    leaderless_count: int
    under_min_isr_count: int
    recovering_count: int
    open_transaction_records_count: int


class FeatureRow(NamedTuple):
    """A feature of the cluster."""

    feature: str
    level: int


class BrokerRow(NamedTuple):
    """A registered broker."""

    broker: int
    state: str
    leaders_count: int
    replicas_count: int
    out_of_isr_count: int
    broker_epoch: int
    rack: str | None
    endpoints: tuple[str, ...]
    directories: tuple[str, ...]
    cordoned_directories: tuple[str, ...]
    given_dirs: tuple[str, ...]


class ControllerRow(NamedTuple):
    """A controller that is registered, or votes.

    Attributes:
        is_leader: None if the leader is unknown, as after a snapshot.
    """

    controller: int
    is_voter: bool
    is_leader: bool | None
    endpoints: tuple[str, ...]


class PartitionStateRow(NamedTuple):
    """A partition. `high_watermark`, `log_end_offset`: the highest of the given replicas."""

    topic: str
    partition: int
    leader: int | str
    isr: tuple[int, ...]
    elr: tuple[int, ...]
    replicas: tuple[int, ...]
    is_under_min_isr: bool
    min_insync_replicas: int
    min_insync_from: str
    leader_epoch: int
    high_watermark: int | None
    log_end_offset: int | None
    last_known_elr: tuple[int, ...]
    adding_replicas: tuple[int, ...]
    removing_replicas: tuple[int, ...]
    partition_epoch: int
    is_recovering: bool
    directories: tuple[str, ...]
    topic_id: str


class CopyRow(NamedTuple):
    """The log of a partition in a given log dir.

    Attributes:
        standing: a `Standing`, or unreadable.
        leader_epoch: the last epoch of its log, None if unknown.
    """

    topic: str
    partition: int
    broker: int | None
    standing: str
    log_start_offset: int | None
    log_end_offset: int | None
    high_watermark: int | None
    leader_epoch: int | None
    path: str


class SettingRow(NamedTuple):
    """A setting: for a topic the setting in force, for others only dynamic settings."""

    resource: str
    resource_name: str
    setting: str
    value: str
    source: str
    source_name: str


BROKER_COLUMNS = Columns(BrokerRow._fields, answers=(
    "broker", "state", "leaders_count", "replicas_count", "out_of_isr_count",
))  # fmt: skip
CONTROLLER_COLUMNS = Columns(ControllerRow._fields, answers=("controller", "is_voter", "is_leader"))
PARTITION_COLUMNS = Columns(PartitionStateRow._fields, answers=(
    *PLACE, "leader", "isr", "replicas", "is_under_min_isr", "leader_epoch", "high_watermark",
    "log_end_offset",
))  # fmt: skip
COPY_COLUMNS = Columns(CopyRow._fields, answers=(
    *PLACE, "broker", "standing", "log_end_offset", "high_watermark",
))  # fmt: skip
SETTING_COLUMNS = Columns(SettingRow._fields, answers=(
    "resource_name", "setting", "value", "source",
))  # fmt: skip


def partition_state_row(
    image: ClusterImage,
    topic: TopicImage,
    number: int,
    *,
    high_watermark: int | None,
    log_end_offset: int | None,
) -> PartitionStateRow:
    """Return the metadata's state of a partition, with the ends of the given replicas."""
    name, found = topic.name, topic.partitions[number]
    setting = topic_setting(image, name, MIN_INSYNC_REPLICAS, broker_id=found.leader)
    return PartitionStateRow(
        topic=name,
        partition=number,
        leader=found.leader,
        isr=found.isr,
        elr=found.elr,
        replicas=found.replicas,
        is_under_min_isr=is_under_min_isr(image, name, number),
        min_insync_replicas=min_insync_replicas(image, name, number),
        min_insync_from=setting.source.value,
        leader_epoch=found.leader_epoch,
        high_watermark=high_watermark,
        log_end_offset=log_end_offset,
        last_known_elr=found.last_known_elr,
        adding_replicas=found.adding_replicas,
        removing_replicas=found.removing_replicas,
        partition_epoch=found.partition_epoch,
        is_recovering=found.is_recovering,
        directories=directory_words(found.directories),
        topic_id=format_uuid(topic.topic_id),
    )


def directory_words(ids: Iterable[bytes]) -> tuple[str, ...]:
    """Return directory ids as text. An id without a directory is written as its word."""
    return tuple(_DIRECTORY_WORDS.get(each) or format_uuid(each) for each in ids)


# -- notes of several commands on leaders and ISR: the source of the metadata, and problems
#
# These are notes only. A replica out of the ISR, or a partition without a leader, is a state of the
# cluster, and no fault of the files.


NO_LEADER = "none"  # in text; -1 for programs
WHAT = "leader and ISR"


class ClusterNotes:
    """The notes on partition directories from the metadata, for the end.

    Attributes:
        is_short: some of the used metadata could not be read.
    """

    def __init__(self) -> None:
        self.is_short = False
        self._images: dict[int, ClusterImage] = {}
        self._doubtful: dict[int, ClusterImage] = {}
        self._unread: dict[str, None] = {}
        self._has_default = False
        self._is_reported = False
        self._without_leader: dict[str, None] = {}  # in order, each once
        self._under_min_isr: dict[str, None] = {}
        self._out_of_sync: dict[str, None] = {}

    def add_unread(self, reported: Sequence[str]) -> None:
        """Note the metadata that cannot be opened."""
        self._unread.update(dict.fromkeys(reported))
        self.is_short = self.is_short or bool(reported)

    def add_image(self, image: ClusterImage | None, *, has_doubts: bool = True) -> None:
        """Note the source of the state, and its doubts, unless the caller reports them."""
        if image is not None:
            self._images[id(image)] = image
            if not has_doubts:
                return
            self._doubtful[id(image)] = image
            self.is_short = self.is_short or not image.is_complete

    def add(self, name: str, path: str, found: InCluster) -> None:
        """Note the state of a directory of the partition `name`."""
        if found.leader is None:
            return
        self._is_reported = True
        self._has_default = self._has_default or found.min_insync_from == SettingSource.DEFAULT
        if found.lacks_leader:
            self._without_leader[name] = None
        elif found.leader >= 0 and found.is_under_min_isr:
            self._under_min_isr[name] = None
        if found.standing == ReplicaStanding.OUT_OF_SYNC:
            self._out_of_sync[path] = None

    def notes(self) -> Iterator[str]:
        """Yield the sentences for the end."""
        yield from self._unread
        for image in self._images.values():
            if id(image) in self._doubtful:
                yield from doubts_of(image.path, image.problems, image)
            if self._is_reported and image.topics:
                yield source_of(image)
        if self._has_default:
            yield f"{MIN_INSYNC_REPLICAS}: default is Kafka's; server.properties is unknown"
        if self._without_leader:
            names = listing([*self._without_leader], "partitions")
            yield f"no leader, though a replica's broker runs: {names}"
        if self._under_min_isr:
            names = listing([*self._under_min_isr], "partitions")
            yield f"ISR below {MIN_INSYNC_REPLICAS}, acks=all is refused: {names}"
        if self._out_of_sync:
            paths = listing([*self._out_of_sync], "copies")
            yield f"not in the ISR, may lack what was acknowledged since: {paths}"


def source_of(image: ClusterImage) -> str:
    """Return which metadata are used, and their time."""
    if not image.end_offset:  # a bootstrap.checkpoint
        return f"{WHAT} as the controller will begin with, in {image.path}"
    when = "" if image.timestamp_ms is None else f", {format_time_ms(image.timestamp_ms)}"
    return f"{WHAT} as of metadata record {image.end_offset - 1}{when}, in {image.path}"


def doubts_of(path: str, problems: Sequence[Problem], image: ClusterImage) -> Iterator[str]:
    """Yield the parts of some metadata that could not be read, or do not count."""
    yield from first_of([str(each) for each in problems], "places that could not be read")
    if problems:
        yield f"{path}: not all of it could be read. This may be an older state"
    if image.unknown_records_count:
        yield (
            f"{path}: {counted(image.unknown_records_count, 'record')}"
            f" {agreeing(image.unknown_records_count, 'was', 'were')} not understood"
        )
    if count := image.open_transaction_records_count:
        yield (
            f"{path}: {counted(count, 'record')} of a metadata transaction that has not ended"
            f" {agreeing(count, 'does', 'do')} not count"
        )


def state_words(places: Sequence[InCluster]) -> str:
    """Return the metadata's state of replicas in one line, "" if there is none."""
    known = [each for each in places if each.standing is not None or each.leader is not None]
    if len(places) == 1 and known and known[0].leader is not None:
        one = known[0]
        standing = "" if one.standing is None else f"; this copy: {one.standing}"
        words = partition_words(one.leader, one.isr, one.min_insync_replicas, one.min_insync_from)
        return f"{words}{standing}"
    counts = Counter(each.standing for each in known if each.standing is not None)
    parts = [f"{each} {counts[each]:,}" for each in ReplicaStanding if counts[each]]
    return f"{counted(sum(counts.values()), 'replica')}: {', '.join(parts)}" if parts else ""


def partition_words(
    leader: int | str | None,
    isr: Sequence[int] | None,
    min_insync_replicas: int | None,
    min_insync_from: str | None,
) -> str:
    """Return a partition's leader, its ISR, and the required size of the ISR."""
    return (
        f"leader {NO_LEADER if leader == -1 else leader}, ISR {cell_text(isr)},"
        f" {MIN_INSYNC_REPLICAS} {min_insync_replicas} ({min_insync_from})"
    )


def with_words(rows: Iterable[Any]) -> Iterator[Any]:
    """Yield rows where a missing `leader` is a word, for people."""
    for each in rows:
        yield each._replace(leader=NO_LEADER) if each.leader == -1 else each
