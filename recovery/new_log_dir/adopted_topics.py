"""Topic ids, settings, users and ACLs that a new cluster adopts."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from storage.dirs.cluster_image import TOPIC_RESOURCE
from storage.dirs.topic_settings import (
    MIN_INSYNC_REPLICAS,
    SETTINGS,
    SettingSource,
    require_topic_setting,
    topic_setting,
)
from storage.errors import AccessError, FormatError, RefusedError, UsageError
from storage.file_names import (
    GROUPS_TOPIC,
    PRODUCER_IDS_TOPIC,
    TRANSACTION_STATE_TOPIC,
    is_topic_name,
)
from storage.formats import cluster_metadata as records
from storage.formats.partition_metadata import format_uuid, new_topic_id
from storage.limits import INT64_MAX
from storage.log.segment import open_segment
from storage.writing.coordinator import DEFAULT_PARTITIONS_COUNT

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence

    from recovery.new_log_dir.dead_brokers import DeadBrokers, DeadCopy
    from recovery.new_log_dir.survey import Survey
    from storage.dirs.cluster_image import ClusterImage
    from storage.dirs.partition import Partition
    from storage.formats.cluster_metadata import MetadataRecord


# -- internal topics, of brokers and of eoctl: partitions, and settings for one replica.
#
# The source is AutoTopicCreationManager, with the settings that a broker creates them with.


MAX_PARTITIONS = 100_000  # in a new log dir

_COORDINATOR_SETTINGS = {"cleanup.policy": "compact", "segment.bytes": "104857600"}
INTERNAL_TOPICS: dict[str, tuple[int, dict[str, str]]] = {
    GROUPS_TOPIC: (
        DEFAULT_PARTITIONS_COUNT,
        _COORDINATOR_SETTINGS | {"compression.type": "producer"},
    ),
    TRANSACTION_STATE_TOPIC: (
        DEFAULT_PARTITIONS_COUNT,
        _COORDINATOR_SETTINGS
        | {
            "compression.type": "uncompressed",
            "min.insync.replicas": "1",
            "unclean.leader.election.enable": "false",
        },
    ),
    PRODUCER_IDS_TOPIC: (1, {"cleanup.policy": "compact"}),
}


# -- the topics of the copies: their ids, numbers of partitions, and missing partitions.
#
# A broker finds a partition's directory by its topic id, so the id must be certain. The number of
# partitions decides which partition a key belongs to. For the coordinators' topics it decides which
# coordinator knows a group or a transactional.id, so it is unchanged, or Kafka's default.


NAMED_COUNT = 5


class Lack(NamedTuple):
    """Missing information that the operator must supply, and the options to do so."""

    why: str
    options: tuple[str, ...]


class AdoptedTopic(NamedTuple):
    """A topic, with the copies that may be adopted for each of its partitions.

    Attributes:
        holes: numbers of partitions without a copy.
    """

    name: str
    topic_id: bytes
    copies: dict[int, tuple[DeadCopy, ...]]
    holes: tuple[int, ...]


class WantedTopics(NamedTuple):
    """Options of the command for topics, by topic name."""

    topic_ids: Mapping[str, bytes]
    partitions_counts: Mapping[str, int]
    fills_holes: bool


class ResolvedTopics(NamedTuple):
    """The resolved topics, and the information that is missing."""

    topics: tuple[AdoptedTopic, ...]
    lacks: tuple[Lack, ...]
    notes: tuple[str, ...]


def resolve_topics(brokers: DeadBrokers, wanted: WantedTopics) -> ResolvedTopics:
    """Find the id and the partitions of each topic.

    Raises:
        UsageError: an option names a topic without a copy, or is impossible.
        RefusedError: a directory has no legal topic name, or two topics have one id.
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
            reported = _numbers(holes)
            why = f"{name}: of {count} partitions these are not here: {reported}"
            lacks.append(Lack(why, ("--fill-holes",)))
        elif holes:
            notes.append(f"{name}: empty, as no copy of it is here: {_numbers(holes)}")
        topics.append(AdoptedTopic(name=name, topic_id=topic_id, copies=taken, holes=holes))
    _require_own_ids(topics)
    return ResolvedTopics(
        tuple(topics), tuple(lacks), (*notes, *_note_of_absent(by_name, brokers.image))
    )


def _require_legal_names(by_name: Mapping[str, Mapping[int, tuple[DeadCopy, ...]]]) -> None:
    """Refuse directories without a legal topic name: no client could request such a topic."""
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
    """Refuse two topic names with one id, such as a backup next to its original directory."""
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
    """Return the copies of the topic and its id, or b"" and a new entry in `lacks`."""
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
        given = placed.topic_id  # from the metadata, also if a partition.metadata file is missing
    if given is None and (len(ids) != 1 or None in known):
        if known:
            table = "; ".join(_id_row(each, known[each]) for each in known)
            likely = format_uuid(ids[0]) if ids else new_topic_id()
            what = "which one it is" if len(ids) > 1 else "it"
            why = f"{name}: has no single topic id, and nothing shows {what} ({table})"
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
    if len(taken) == least:  # no gaps: most likely all partitions
        return least
    return max(least, INTERNAL_TOPICS.get(name, (0, {}))[0])


def _note_of_absent(by_name: Mapping[str, object], image: ClusterImage | None) -> Iterator[str]:
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


# -- settings for the topics of dead brokers, so that a first start deletes nothing.
#
# If the old cluster's metadata are available, their settings are adopted, except settings for
# other replicas. Retention and compaction are held off too: a broker would remove old records
# minutes after the start, and an outage also ages tombstones. Without metadata, gaps in the log
# show a cleaner. Such a topic stays compacted, but the operator must enable the cleaner.


CLEANUP_POLICY = "cleanup.policy"
MIN_COMPACTION_LAG = "min.compaction.lag.ms"
MAX_COMPACTION_LAG = "max.compaction.lag.ms"
_KEPT_FOR_EVER = {"retention.ms": "-1", "retention.bytes": "-1"}
_NEVER_YET = {MIN_COMPACTION_LAG: str(INT64_MAX)}
# They name replicas that do not exist in the new cluster.
_OF_REPLICAS = frozenset(
    {"follower.replication.throttled.replicas", "leader.replication.throttled.replicas"}
)


class AdoptedSettings(NamedTuple):
    """The settings of a topic, and notes about them."""

    settings: dict[str, str]
    notes: tuple[str, ...]


def adopted_settings(
    name: str,
    image: ClusterImage | None,
    surveys: Iterable[Survey],
    *,
    keeps_retention: bool = False,
) -> AdoptedSettings:
    """Choose the settings of a topic.

    Args:
        name: the name of the topic.
        image: the old cluster. If it is None or does not have the topic, the copies decide.
        surveys: of the copies of the topic.
        keeps_retention: keep the retention of the metadata, even if records expire then.
    """
    if image is not None and name in image.topics:
        return _taken_over(name, image, keeps_retention=keeps_retention)
    if name in INTERNAL_TOPICS:
        return AdoptedSettings(dict(INTERNAL_TOPICS[name][1]), ())
    return _observed(name, list(surveys))


def _taken_over(name: str, image: ClusterImage, *, keeps_retention: bool) -> AdoptedSettings:
    own = image.configs.get((TOPIC_RESOURCE, name), {})
    settings, notes = dict[str, str](), list[str]()
    for key, value in sorted(own.items()):
        if key in _OF_REPLICAS:
            continue
        if key == MIN_INSYNC_REPLICAS and value != "1":
            notes.append(f"{name}: {key} was {value}, and is left out. There is one replica now")
            continue
        try:
            require_topic_setting(key, value)
        except UsageError as error:
            notes.append(f"{name}: left out: {error.message}")
            continue
        settings[key] = value
    for key in SETTINGS:  # settings that apply to all brokers are not adopted elsewhere
        found = topic_setting(image, name, key)
        if found.source is SettingSource.ALL_BROKERS and key != MIN_INSYNC_REPLICAS:
            settings.setdefault(key, found.value)
    if settings.get("remote.storage.enable") == "true":
        notes.append(
            f"{name}: has segments in remote storage. The broker needs its settings of that, too"
        )
    if name in INTERNAL_TOPICS:
        return AdoptedSettings(INTERNAL_TOPICS[name][1] | settings, tuple(notes))
    if not keeps_retention:
        policy = settings.get(CLEANUP_POLICY, "delete")
        held: dict[str, str] = {}
        if "delete" in policy:
            held |= _KEPT_FOR_EVER
        if "compact" in policy:
            held |= _NEVER_YET
        was = [
            f"{key}={settings[key]}"
            for key in (*held, MAX_COMPACTION_LAG)
            if settings.get(key, held.get(key)) != held.get(key)
        ]
        if "compact" in policy:
            settings.pop(MAX_COMPACTION_LAG, None)  # must not be less than the minimum lag
        settings |= held
        if was:
            notes.append(f"{name}: had {' '.join(was)} (--keep-retention keeps that)")
    return AdoptedSettings(settings, tuple(notes))


def _observed(name: str, surveys: list[Survey]) -> AdoptedSettings:
    if not any(each.has_gaps for each in surveys):
        return AdoptedSettings(dict(_KEPT_FOR_EVER), ())
    if any(each.has_unkeyed for each in surveys):
        note = (
            f"{name}: its log has gaps, but also records without a key, which a cleaner would"
            " remove. It is not compacted"
        )
        return AdoptedSettings(dict(_KEPT_FOR_EVER), (note,))
    note = (
        f"{name}: its log has the gaps that compaction leaves: {CLEANUP_POLICY}=compact, and with"
        f" {MIN_COMPACTION_LAG}={INT64_MAX} nothing is cleaned before you have looked;"
        f" kafka-configs --alter --entity-type topics --entity-name {name}"
        f" --delete-config {MIN_COMPACTION_LAG} lets it go on"
    )
    return AdoptedSettings({CLEANUP_POLICY: "compact"} | _KEPT_FOR_EVER | _NEVER_YET, (note,))


# -- users' SCRAM credentials and ACLs in an old `__cluster_metadata`: the last record of each.
#
# The records are adopted unchanged. They are not decoded and encoded again.


_SET = {records.USER_SCRAM_CREDENTIAL: ("name", "mechanism"), records.ACCESS_CONTROL_ENTRY: ("id",)}
_REMOVED = {
    records.REMOVE_USER_SCRAM_CREDENTIAL: records.USER_SCRAM_CREDENTIAL,
    records.REMOVE_ACCESS_CONTROL_ENTRY: records.ACCESS_CONTROL_ENTRY,
}


class SecurityRecords:
    """The SCRAM and ACL records in force at the end of a metadata log.

    Attributes:
        problems: messages about unreadable data. If there are any, the records are incomplete.
    """

    def __init__(self, partition: Partition) -> None:
        self.problems: list[str] = []
        self._held: dict[Hashable, bytes] = {}
        self._pending: list[tuple[MetadataRecord, bytes]] | None = None
        start_offset = 0
        for entry in reversed(partition.files.checkpoints):
            if self._read(entry.path, 0):
                start_offset = entry.name.offset or 0
                break
            self._held.clear()
        for files in partition.segments:
            self._read(files.log.path, start_offset)

    @property
    def values(self) -> tuple[bytes, ...]:
        """The records, in the order in which they were set."""
        return tuple(self._held.values())

    @property
    def users_count(self) -> int:
        """The number of records that are credentials."""
        return sum(
            records.parse_record(each).api_key == records.USER_SCRAM_CREDENTIAL
            for each in self._held.values()
        )

    def _read(self, path: str, start_offset: int) -> bool:
        before = len(self.problems)
        try:
            with open_segment(path) as segment:
                scan = segment.scan()
                for batch in scan:
                    if batch.header.is_control or batch.crc_ok is False:
                        continue
                    for record in segment.records(batch):
                        if record.offset >= start_offset and record.value is not None:
                            self._take(bytes(record.value))
                self.problems += (
                    f"{path}: position {each.start_pos}: {each.reason or each.kind}"
                    for each in scan.verdicts
                    if each.check_id != "SEG-6"  # a torn or preallocated tail loses nothing
                )
        except (AccessError, FormatError) as error:
            self.problems.append(f"{path}: {error}")
        return len(self.problems) == before

    def _take(self, value: bytes) -> None:
        try:
            record = records.parse_record(value)
        except FormatError:
            return  # of a newer release: neither a credential nor an ACL
        if record.api_key == records.BEGIN_TRANSACTION:
            self._pending = []
        elif record.api_key == records.ABORT_TRANSACTION:
            self._pending = None
        elif record.api_key == records.END_TRANSACTION:
            pending, self._pending = self._pending or [], None
            for each in pending:
                self._apply(*each)
        elif self._pending is not None:
            self._pending.append((record, value))
        else:
            self._apply(record, value)

    def _apply(self, record: MetadataRecord, value: bytes) -> None:
        kind = _REMOVED.get(record.api_key, record.api_key)
        if kind not in _SET:
            return
        key = (kind, *(record.data[name] for name in _SET[kind]))
        self._held.pop(key, None)
        if record.api_key == kind:
            self._held[key] = value
