"""The topics and partitions of one dead cluster that the virtual broker serves.

Each partition is served from one directory (see `choose`), and opened on first use.
"""

from __future__ import annotations

from contextlib import suppress
from fnmatch import fnmatchcase
from itertools import combinations
from pathlib import Path
from threading import RLock
from typing import TYPE_CHECKING, NamedTuple

from eoctl.serve.logs.served_log import ServedLog
from recovery.cluster.coordinator_log import CoordinatorLog, reach
from recovery.groups.group_log import GroupLog
from recovery.groups.share_states import ShareLog
from storage.dirs.partition import Partition
from storage.errors import AccessError, RefusedError, pasted
from storage.file_names import (
    COORDINATOR_TOPICS,
    GROUPS_TOPIC,
    METADATA_TOPIC,
    PRODUCER_IDS_TOPIC,
    REMOTE_METADATA_TOPIC,
    SHARE_GROUP_TOPIC,
    TRANSACTION_STATE_TOPIC,
)
from storage.formats.message import ZERO_UUID
from storage.formats.partition_metadata import format_uuid, parse_uuid

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from recovery.elections.replica_logs import LogCopy
    from recovery.groups.share_states import SharePartition
    from storage.dirs.cluster_image import ClusterImage, PartitionImage
    from storage.dirs.discovery import Selected
    from storage.dirs.log_dir import LogDir, Problem
    from storage.file_names import TopicPartition


# -- choice among several replicas of a partition, and the offset up to which it is served
#
# Replicas that continue each other do not conflict. The replica that reaches furthest is served. If
# replicas diverge, by their leader epochs, none can be trusted to be the cluster's log. Then the
# offsets that all of them agree on are served, and higher offsets only on request. Replicas without
# leader epochs are compared batch by batch.


class Preferences(NamedTuple):
    """Directories that a user prefers, "" if there is none.

    Attributes:
        prefer: its replicas are served, up to the offset where all agree.
        diverged: its replicas are served to their ends.
    """

    prefer: str = ""
    diverged: str = ""


class ChosenCopy(NamedTuple):
    """The replica that is served.

    Attributes:
        selected: its directory.
        end_offset: exclusive end of the served offsets, None for its own end.
        notes: messages about the choice.
        is_lacking: something in the replicas is not served, and no user has decided so.
    """

    selected: Selected
    end_offset: int | None = None
    notes: tuple[str, ...] = ()
    is_lacking: bool = False


def lies_in(selected: Selected, directory: str) -> bool:
    """Return whether a partition directory is the named directory, or is directly in it."""
    wanted = Path(directory).resolve()
    own = Path(selected.partition.path).resolve()
    return wanted in (own, own.parent)


def choose(copies: tuple[Selected, ...], preferences: Preferences) -> ChosenCopy:
    """Choose one of the replicas of a partition.

    Raises:
        AccessError: none of them can be read.
    """
    if len(copies) == 1:
        return ChosenCopy(copies[0])
    from recovery.elections.replica_logs import read_copy

    read: list[tuple[Selected, LogCopy]] = []
    notes: list[str] = []
    failed: AccessError | None = None
    for place, each in enumerate(copies):
        try:
            read.append((each, read_copy(each, place, reads_headers=True)))
        except RefusedError as exc:
            notes.append(f"{exc.message}: this copy is not served while others are here")
        except AccessError as exc:
            failed = exc.without_frames()
            notes.append(str(failed))
    if not read:
        if failed is not None:
            raise failed
        return ChosenCopy(copies[0], notes=tuple(notes), is_lacking=True)
    read = _of_one_topic(read, notes)
    best = max(read, key=lambda each: _rank(each, preferences))
    notes += _reported_apart(best[1], read)
    notes += _reported_behind(best[1], read)
    is_lacking = bool(notes)
    conflict = _agreed_end(read, notes)
    if conflict is None:
        return ChosenCopy(best[0], notes=tuple(notes), is_lacking=is_lacking)
    agreed, where = conflict
    if preferences.diverged and lies_in(best[0], preferences.diverged):
        notes.append(f"{where}: the copy {best[1].partition.path} is served to its end")
        return ChosenCopy(best[0], notes=tuple(notes), is_lacking=is_lacking)
    notes.append(
        f"{where}: nothing above is served; --diverged {pasted(_log_dir_of(best[0]))} serves what"
        " that copy has"
    )
    return ChosenCopy(best[0], agreed, tuple(notes), is_lacking=True)


def _reported_apart(best: LogCopy, read: list[tuple[Selected, LogCopy]]) -> Iterator[str]:
    """Yield messages about replicas without any offset in common with the served replica."""
    for _, each in read:
        if each is not best and _is_apart(each, best):
            yield (
                f"{each.partition.path} has offsets {each.start_offset} to {each.end_offset - 1},"
                f" and {best.partition.path} begins at {best.start_offset}. They have no offset in"
                f" common; --prefer {pasted(str(Path(each.partition.path).parent))} serves it"
            )


def _reported_behind(best: LogCopy, read: list[tuple[Selected, LogCopy]]) -> Iterator[str]:
    """Yield messages about replicas that reach further than the served replica, behind a gap."""
    for _, each in read:
        end_offset = each.log_end_offset or 0
        if each is not best and each.notes and end_offset > (best.log_end_offset or 0):
            yield f"{each.notes[-1]}; {best.partition.path} is served"


def _is_apart(one: LogCopy, other: LogCopy) -> bool:
    """Return whether both replicas have offsets, and none in common."""
    if one.is_empty or other.is_empty:
        return False
    return max(one.start_offset, other.start_offset) >= min(one.end_offset, other.end_offset)


def _log_dir_of(selected: Selected) -> str:
    return str(Path(selected.partition.path).parent)


def _rank(
    each: tuple[Selected, LogCopy], preferences: Preferences
) -> tuple[bool, bool, int, int, int]:
    """Return the sort key of a replica: the user's preference, then last epoch and length.

    An election compares last epoch and length, too.
    """
    selected, copy = each
    return (
        bool(preferences.diverged) and lies_in(selected, preferences.diverged),
        bool(preferences.prefer) and lies_in(selected, preferences.prefer),
        *reach(copy.epochs, copy.end_offset),
        -copy.broker,
    )


def _of_one_topic(
    read: list[tuple[Selected, LogCopy]], notes: list[str]
) -> list[tuple[Selected, LogCopy]]:
    """Leave out replicas of a deleted topic that had the same name."""
    ids = {copy.topic_id for _, copy in read if copy.topic_id is not None}
    if len(ids) < 2:
        return read
    newest = max((each for each in read if each[1].topic_id is not None),
                 key=lambda each: Path(each[0].partition.path).stat().st_mtime_ns)  # fmt: skip
    for _, copy in read:
        if copy.topic_id not in (None, newest[1].topic_id):
            notes.append(
                f"{copy.partition.path}: of another topic of that name ({copy.topic_id}, not"
                f" {newest[1].topic_id}): not served"
            )
    return [each for each in read if each[1].topic_id in (None, newest[1].topic_id)]


def _agreed_end(read: list[tuple[Selected, LogCopy]], notes: list[str]) -> tuple[int, str] | None:
    """Return the first offset at which replicas diverge, and a message.

    None: they do not diverge.
    """
    found: list[tuple[int, str]] = []
    for (_, one), (_, other) in combinations(read, 2):
        end = _divergence(one, other, notes)
        if end is not None:
            words = f"{one.partition.path} and {other.partition.path} diverge at offset {end}"
            found.append((end, words))
    return min(found, default=None)


def _divergence(one: LogCopy, other: LogCopy, notes: list[str]) -> int | None:
    """Return the offset at which two replicas diverge. None: one continues the other."""
    from recovery.replicas.compare import Likeness, compare_replicas, read_replica
    from recovery.truncate.target import find_common_end

    if one.is_empty or other.is_empty or _is_apart(one, other):
        return None  # retention may have removed the common offsets from the other replica
    if one.epochs and other.epochs:
        common = find_common_end(one.epochs, one.end_offset, other.epochs, other.end_offset)
        if common is None:
            common = max(one.start_offset, other.start_offset)
        return common if common < min(one.end_offset, other.end_offset) else None
    compared = compare_replicas(
        *(read_replica(Partition(each.partition.directory, each.partition.log_dir))
          for each in (one, other))
    )  # fmt: skip
    notes += compared.notes
    return compared.divergence_offset if compared.likeness is Likeness.DIVERGED else None


# -- catalogue


DEFAULT_NODE_ID = 0
MAX_REPORTED = 1000
SOME_PROBLEMS = 3  # reported of many
NEEDS_NO_GROUP = (
    "; kcat -C, and kafka-console-consumer.sh with --partition and --offset, use no group"
)
# Served only on request. Clients regard the coordinators' topics among them as internal.
INTERNAL_TOPICS = COORDINATOR_TOPICS | {REMOTE_METADATA_TOPIC, PRODUCER_IDS_TOPIC}


class ServeRules(NamedTuple):
    """The rules of serving.

    Attributes:
        is_until_hw: offsets from the checkpointed high watermark on are not served.
        skips_damage: clients get the batches after damage, else an error.
        is_committed_only: every client is treated as a read_committed client at least.
        has_internal: internal topics are served.
        topics: patterns, empty for all topics.
    """

    is_until_hw: bool = False
    skips_damage: bool = False
    is_committed_only: bool = False
    has_internal: bool = False
    topics: tuple[str, ...] = ()
    preferences: Preferences = Preferences()

    def wants(self, topic: str) -> bool:
        """Return whether a topic is served. The metadata log never is."""
        if topic == METADATA_TOPIC:
            return False
        if topic in INTERNAL_TOPICS and not self.has_internal:
            return False
        return not self.topics or any(fnmatchcase(topic, each) for each in self.topics)


class Topic:
    """A topic.

    Attributes:
        partitions: all partitions of the topic. Partitions that are not on disk are None.
    """

    def __init__(
        self, name: str, partitions: dict[int, ServedPartition | None], known_id: bytes | None
    ) -> None:
        """Make a topic. `known_id` is its id in the metadata, None without one."""
        self.name = name
        self.partitions = partitions
        self._id = known_id

    @property
    def topic_id(self) -> bytes:
        """The 16 bytes of its id, zeros if it has none.

        Without metadata, a log is opened for it.
        """
        if self._id is None:
            self._id = self._own_id()
        return self._id

    def _own_id(self) -> bytes:
        for each in self.partitions.values():
            if each is not None:
                with suppress(AccessError):
                    text = each.log.partition.topic_id()
                    return ZERO_UUID if text is None else parse_uuid(text)
        return ZERO_UUID

    @property
    def is_internal(self) -> bool:
        """True if Kafka's clients regard it as internal."""
        return self.name in COORDINATOR_TOPICS


class ServedPartition:
    """A partition on disk. Its log is opened on first use."""

    def __init__(self, catalogue: Catalogue, copies: tuple[Selected, ...]) -> None:
        self.copies = copies
        self.key = copies[0].partition.topic_partition
        self._catalogue = catalogue
        self._lock = RLock()
        self._log: ServedLog | None = None
        self._is_lacking = False

    @property
    def log(self) -> ServedLog:
        """The log that clients read. Raises AccessError."""
        with self._lock:
            if self._log is None:
                catalogue, rules = self._catalogue, self._catalogue.rules
                choice = choose(self.copies, rules.preferences)
                for each in choice.notes:
                    catalogue.report(each)
                self._is_lacking = choice.is_lacking
                self._log = ServedLog(
                    Partition.of(choice.selected, catalogue.image),
                    is_until_hw=rules.is_until_hw,
                    skips_damage=rules.skips_damage,
                    hides_aborted=rules.is_committed_only,
                    agreed_end_offset=choice.end_offset,
                    report=catalogue.report,
                )
            return self._log

    @property
    def is_open(self) -> bool:
        """True if a client has opened it."""
        return self._log is not None

    @property
    def is_lacking(self) -> bool:
        """True if its replicas have something that is not served. Known once it is open."""
        return self._is_lacking

    @property
    def image(self) -> PartitionImage | None:
        """The partition in the metadata."""
        image = self._catalogue.image
        return None if image is None else image.partition(*self.key)

    @property
    def leader_epoch(self) -> int:
        """The newest known leader epoch, -1 if none is known."""
        known = [-1]
        with suppress(AccessError):
            known += [each.epoch for each in self.log.epochs()]
        if (image := self.image) is not None:
            known.append(image.leader_epoch)
        return max(known)


class Catalogue:
    """Everything that is served.

    Attributes:
        node_id: of the virtual broker.
        image: the cluster's metadata, None if there are none.
        metadata: the replicas of the metadata log.
        topics: by name.
        `report`: takes messages for people, from any thread.
        is_lacking: a part of the state of groups or coordinators could not be read.
    """

    def __init__(
        self,
        copies: Mapping[TopicPartition, tuple[Selected, ...]],
        log_dirs: tuple[LogDir, ...],
        image: ClusterImage | None,
        *,
        metadata: Sequence[Selected] = (),
        rules: ServeRules,
        report: Callable[[str], None],
    ) -> None:
        """Make a catalogue. `metadata` are the replicas of the metadata log."""
        self.image = image
        self.metadata = metadata
        self.log_dirs = log_dirs
        self.rules = rules
        self.report = report
        self.is_lacking = False
        metas = [each.meta for each in log_dirs if each.meta is not None]
        ids = [each.node_id for each in metas if each.node_id is not None]
        self.node_id = ids[0] if ids else DEFAULT_NODE_ID
        self.cluster_id = next((each.cluster_id for each in metas if each.cluster_id), None)
        self.topics: dict[str, Topic] = {}
        self._by_id: dict[bytes, Topic] | None = None  # set on first use
        self._lock = RLock()
        self._ids_lock = RLock()
        self._reported: set[str] = set()
        self._groups: GroupLog | None = None
        self._coordinators: CoordinatorLog | None = None
        self._shares: ShareLog | None = None
        here: dict[str, dict[int, ServedPartition | None]] = {}
        for key, of_key in sorted(copies.items()):
            if rules.wants(key.topic):
                here.setdefault(key.topic, {})[key.partition] = ServedPartition(self, of_key)
        for name, partitions in here.items():
            self._add(name, partitions)

    def _add(self, name: str, here: dict[int, ServedPartition | None]) -> None:
        known = None if self.image is None else self.image.topics.get(name)
        numbers = {*here} | {*(() if known is None else known.partitions)}
        partitions = {number: here.get(number) for number in sorted(numbers)}
        self.topics[name] = Topic(name, partitions, None if known is None else known.topic_id)

    def report_once(self, sentence: str) -> None:
        """Report a message to people, unless it was reported before."""
        with self._lock:
            if sentence in self._reported or len(self._reported) > MAX_REPORTED:
                return
            self._reported.add(sentence)
        self.report(sentence)

    def topic_by_id(self, topic_id: bytes) -> Topic | None:
        """Look up a topic by its 16 bytes."""
        with self._ids_lock:
            if self._by_id is None:
                self._by_id = {each.topic_id: each for each in self.topics.values()}
                self._by_id.pop(ZERO_UUID, None)
            return self._by_id.get(topic_id)

    def name_of(self, topic_id: bytes) -> str | None:
        """Return the name of a topic of the cluster, served or not, by its 16 bytes.

        None: the cluster has no such topic. Without metadata an unknown id is its own name.
        """
        known = None if self.image is None else self.image.topic_by_id(topic_id)
        if known is not None:
            return known.name
        served = self.topic_by_id(topic_id)
        if served is not None:
            return served.name
        return format_uuid(topic_id) if self.image is None else None

    def id_of(self, topic: str) -> bytes | None:
        """Return the id of a topic of the cluster, served or not. None: there is none."""
        known = None if self.image is None else self.image.topics.get(topic)
        if known is not None:
            return known.topic_id
        served = self.topics.get(topic)
        return None if served is None else served.topic_id

    def partitions(self) -> Iterable[ServedPartition]:
        """Yield all partitions on disk, by name."""
        for topic in self.topics.values():
            for each in topic.partitions.values():
                if each is not None:
                    yield each

    def find(self, topic: str, number: int) -> ServedPartition | None:
        """Look up a partition on disk."""
        found = self.topics.get(topic)
        return None if found is None else found.partitions.get(number)

    def groups(self) -> GroupLog:
        """Return the state of the dead cluster's group coordinators, read on first use."""
        with self._lock:
            if self._groups is None:
                self._groups = GroupLog(self.log_dirs, self.image)
                self._report_lacking("groups", self._groups.problems)
            return self._groups

    def _report_lacking(self, what: str, problems: Sequence[Problem]) -> None:
        """Report problems that keep clients from seeing the whole state."""
        self.is_lacking = self.is_lacking or bool(problems)
        for each in problems[:SOME_PROBLEMS]:
            self.report_once(f"what is known of {what} is not whole: {each}")

    def coordinators(self) -> CoordinatorLog:
        """Return the state of the dead cluster's transaction coordinators."""
        with self._lock:
            if self._coordinators is None:
                self._coordinators = CoordinatorLog(self.log_dirs, self.image)
                self._report_lacking("transactional ids", self._coordinators.problems)
            return self._coordinators

    def shares(self) -> ShareLog:
        """Return the state of the dead cluster's share coordinators."""
        with self._lock:
            if self._shares is None:
                self._shares = ShareLog(self.log_dirs, self.image)
                self._report_lacking("share groups", self._shares.problems)
            return self._shares

    def may_report_of_share(self, key: SharePartition) -> bool:
        """Return whether clients may get the known state of a share partition."""
        topic, shares = SHARE_GROUP_TOPIC, self.shares()
        is_whole = shares.has_all_of(key) and not self._is_elsewhere(topic, shares.partitions)
        return self._may_report(f"share group {key.group!r}", topic, is_whole)

    def may_report_of_security(self) -> bool:
        """Return whether clients may get the credentials and ACLs in the metadata."""
        is_whole = self.image is not None and self.image.is_complete
        return self._may_report("credentials and ACLs", METADATA_TOPIC, is_whole)

    def may_report_of_group(self, name: str) -> bool:
        """Return whether clients may get the known state of a group, which may be empty.

        A client that gets no offset silently begins where its own settings say. If a part of the
        coordinators' state is missing, clients therefore get an error, unless damage is skipped.
        People get a message. If no partition of the groups' topic is on disk, groups begin without
        offsets, because no client could form a group otherwise.
        """
        return self._may_report_of_groups(f"group {name!r}", self.groups().has_all_of(name))

    def may_list_groups(self) -> bool:
        """Return the same for the list of all groups."""
        return self._may_report_of_groups("groups", self.groups().has_all)

    def _may_report_of_groups(self, what: str, is_whole: bool) -> bool:
        if self._is_elsewhere(GROUPS_TOPIC, self.groups().partitions):
            self.report_once(
                f"no partition of {GROUPS_TOPIC} is here. The committed offsets of groups are "
                "unknown, each group begins where its client says"
            )
            return True
        return self._may_report(what, GROUPS_TOPIC, is_whole, NEEDS_NO_GROUP)

    def may_report_of_transactional_id(self, name: str) -> bool:
        """Return the same for a transactional id.

        Tools take transactions of an unknown id for hanging transactions.
        """
        is_whole = self.coordinators().has_all_of(name)
        return self._may_report_of_transactions(f"transactional id {name!r}", is_whole)

    def may_list_transactional_ids(self) -> bool:
        """Return the same for the list of all transactional ids."""
        return self._may_report_of_transactions("transactional ids", self.coordinators().has_all)

    def _may_report_of_transactions(self, what: str, is_whole: bool) -> bool:
        topic = TRANSACTION_STATE_TOPIC
        is_here = not self._is_elsewhere(topic, self.coordinators().partitions)
        return self._may_report(what, topic, is_whole and is_here)

    def _is_elsewhere(self, topic: str, partitions: Collection[int]) -> bool:
        """Return whether the cluster has this topic, but no partition of it is on disk."""
        return not partitions and self.image is not None and topic in self.image.topics

    def _may_report(self, what: str, topic: str, is_whole: bool, without: str = "") -> bool:
        """Report what is missing, and return whether clients get the rest.

        `without` names clients that work without it.
        """
        if is_whole:
            return True
        self.is_lacking = True
        if self.rules.skips_damage:
            self.report_once(
                f"{what}: a part of {topic} is missing or damaged. The rest is answered"
            )
        else:
            self.report_once(
                f"{what}: the part of {topic} that describes it is missing or damaged: clients "
                f"get an error; --on-damage skip gives them what is left{without}"
            )
        return self.rules.skips_damage
