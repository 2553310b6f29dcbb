"""What is served: topics and partitions of one dead cluster, as one virtual broker has them.

Each partition is served from one directory (`choice`), and opened when somebody asks for it.
"""

from __future__ import annotations

from contextlib import suppress
from fnmatch import fnmatchcase
from threading import RLock
from typing import TYPE_CHECKING, NamedTuple

from eoctl.serve.logs.served_log import ServedLog
from eoctl.serve.state.choice import Preferences, choose
from recovery.cluster.coordinator_log import CoordinatorLog
from recovery.groups.group_log import GroupLog
from storage.dirs.partition import Partition
from storage.errors import AccessError
from storage.file_names import (
    COORDINATOR_TOPICS,
    GROUPS_TOPIC,
    METADATA_TOPIC,
    PRODUCER_IDS_TOPIC,
    REMOTE_METADATA_TOPIC,
    TRANSACTION_STATE_TOPIC,
)
from storage.formats.message import ZERO_UUID
from storage.formats.partition_metadata import parse_uuid

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from storage.dirs.cluster_image import ClusterImage, PartitionImage
    from storage.dirs.discovery import Selected
    from storage.dirs.log_dir import LogDir, Problem
    from storage.file_names import TopicPartition

DEFAULT_NODE_ID = 0
MAX_TOLD = 1000
SOME_PROBLEMS = 3  # are told of many
NEEDS_NO_GROUP = (
    "; kcat -C, and kafka-console-consumer.sh with --partition and --offset, ask for no group"
)
# Those that are not served unless they are asked for; clients count the first of them as internal.
INTERNAL_TOPICS = COORDINATOR_TOPICS | {REMOTE_METADATA_TOPIC, PRODUCER_IDS_TOPIC}


class ServeRules(NamedTuple):
    """How it is served.

    Attributes:
        is_until_hw: nothing from the checkpointed high watermark on.
        skips_damage: clients are given what follows it; else they meet an error.
        is_committed_only: every client is treated as a read_committed one at least.
        has_internal: internal topics, too.
        topics: patterns; empty: all.
    """

    is_until_hw: bool = False
    skips_damage: bool = False
    is_committed_only: bool = False
    has_internal: bool = False
    topics: tuple[str, ...] = ()
    preferences: Preferences = Preferences()

    def wants(self, topic: str) -> bool:
        """Whether a topic is served. The metadata of a cluster never are."""
        if topic == METADATA_TOPIC:
            return False
        if topic in INTERNAL_TOPICS and not self.has_internal:
            return False
        return not self.topics or any(fnmatchcase(topic, each) for each in self.topics)


class Topic:
    """A topic.

    Attributes:
        partitions: all that it has; those that are not here are None.
    """

    def __init__(
        self, name: str, partitions: dict[int, ServedPartition | None], known_id: bytes | None
    ) -> None:
        """`known_id` is that of the metadata; None: they do not tell."""
        self.name = name
        self.partitions = partitions
        self._id = known_id

    @property
    def topic_id(self) -> bytes:
        """Its 16 bytes, all zeros if it has none; without metadata a log is opened for it."""
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
        """Whether it is the brokers' own."""
        return self.name in COORDINATOR_TOPICS


class ServedPartition:
    """A partition that is here; its log is opened when it is asked for."""

    def __init__(self, catalogue: Catalogue, copies: tuple[Selected, ...]) -> None:
        self.copies = copies
        self.key = copies[0].partition.topic_partition
        self._catalogue = catalogue
        self._lock = RLock()
        self._log: ServedLog | None = None
        self._is_lacking = False

    @property
    def log(self) -> ServedLog:
        """What clients are given. Raises AccessError."""
        with self._lock:
            if self._log is None:
                catalogue, rules = self._catalogue, self._catalogue.rules
                choice = choose(self.copies, rules.preferences)
                for each in choice.notes:
                    catalogue.tell(each)
                self._is_lacking = choice.is_lacking
                self._log = ServedLog(
                    Partition.of(choice.selected, catalogue.image),
                    is_until_hw=rules.is_until_hw,
                    skips_damage=rules.skips_damage,
                    hides_aborted=rules.is_committed_only,
                    agreed_end_offset=choice.end_offset,
                    tell=catalogue.tell,
                )
            return self._log

    @property
    def is_open(self) -> bool:
        """Whether somebody has asked for it."""
        return self._log is not None

    @property
    def is_lacking(self) -> bool:
        """Whether its copies have something that is not given; known once it is open."""
        return self._is_lacking

    @property
    def image(self) -> PartitionImage | None:
        """What the metadata say of it."""
        image = self._catalogue.image
        return None if image is None else image.partition(*self.key)

    @property
    def leader_epoch(self) -> int:
        """The newest one that is known; -1: none is."""
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
        image: what the metadata say; None: nothing does.
        metadata: the copies of the metadata log.
        topics: by name.
        tell: takes sentences for people, from any thread.
        is_lacking: a part of what groups or coordinators knew could not be read.
    """

    def __init__(
        self,
        copies: Mapping[TopicPartition, tuple[Selected, ...]],
        log_dirs: tuple[LogDir, ...],
        image: ClusterImage | None,
        *,
        metadata: Sequence[Selected] = (),
        rules: ServeRules,
        tell: Callable[[str], None],
    ) -> None:
        """`metadata` are the copies of the metadata log."""
        self.image = image
        self.metadata = metadata
        self.log_dirs = log_dirs
        self.rules = rules
        self.tell = tell
        self.is_lacking = False
        metas = [each.meta for each in log_dirs if each.meta is not None]
        ids = [each.node_id for each in metas if each.node_id is not None]
        self.node_id = ids[0] if ids else DEFAULT_NODE_ID
        self.cluster_id = next((each.cluster_id for each in metas if each.cluster_id), None)
        self.topics: dict[str, Topic] = {}
        self._by_id: dict[bytes, Topic] | None = None  # known once somebody asks
        self._lock = RLock()
        self._ids_lock = RLock()
        self._told: set[str] = set()
        self._groups: GroupLog | None = None
        self._coordinators: CoordinatorLog | None = None
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

    def tell_once(self, sentence: str) -> None:
        """Tell people what they were not told yet."""
        with self._lock:
            if sentence in self._told or len(self._told) > MAX_TOLD:
                return
            self._told.add(sentence)
        self.tell(sentence)

    def topic_by_id(self, topic_id: bytes) -> Topic | None:
        """Look up a topic by its 16 bytes."""
        with self._ids_lock:
            if self._by_id is None:
                self._by_id = {each.topic_id: each for each in self.topics.values()}
                self._by_id.pop(ZERO_UUID, None)
            return self._by_id.get(topic_id)

    def partitions(self) -> Iterable[ServedPartition]:
        """Give all that are here, by name."""
        for topic in self.topics.values():
            for each in topic.partitions.values():
                if each is not None:
                    yield each

    def find(self, topic: str, number: int) -> ServedPartition | None:
        """Look up a partition that is here."""
        found = self.topics.get(topic)
        return None if found is None else found.partitions.get(number)

    def groups(self) -> GroupLog:
        """Return what the dead cluster's group coordinators knew; read when it is asked for."""
        with self._lock:
            if self._groups is None:
                self._groups = GroupLog(self.log_dirs, self.image)
                self._tell_lacking("groups", self._groups.problems)
            return self._groups

    def _tell_lacking(self, what: str, problems: Sequence[Problem]) -> None:
        """Say what clients cannot see: the answers are those of what could be read."""
        self.is_lacking = self.is_lacking or bool(problems)
        for each in problems[:SOME_PROBLEMS]:
            self.tell_once(f"what is known of {what} is not whole: {each}")

    def coordinators(self) -> CoordinatorLog:
        """Return what its transaction coordinators knew."""
        with self._lock:
            if self._coordinators is None:
                self._coordinators = CoordinatorLog(self.log_dirs, self.image)
                self._tell_lacking("transactional ids", self._coordinators.problems)
            return self._coordinators

    def may_tell_of_group(self, name: str) -> bool:
        """Whether clients are told what is known of a group, which may be nothing.

        A client that is told of no offset begins where its own settings say, and nobody notices:
        where a part of what the coordinators knew is missing, that is an error instead, unless
        damage is to be passed over. People are told. Where nothing at all is here of what they
        knew, as on the only disk that is left, groups begin anew: no client could form one
        otherwise.
        """
        return self._may_tell_of_groups(f"group {name!r}", self.groups().has_all_of(name))

    def may_list_groups(self) -> bool:
        """The same of all groups together."""
        return self._may_tell_of_groups("groups", self.groups().has_all)

    def _may_tell_of_groups(self, what: str, is_whole: bool) -> bool:
        if self._is_elsewhere(GROUPS_TOPIC, self.groups().partitions):
            self.tell_once(
                f"no partition of {GROUPS_TOPIC} is here: what groups had committed is not known,"
                " each begins where its client says"
            )
            return True
        return self._may_tell(what, GROUPS_TOPIC, is_whole, NEEDS_NO_GROUP)

    def may_tell_of_transactional_id(self, name: str) -> bool:
        """The same of a transactional id: tools take transactions of an unknown one for hanging."""
        is_whole = self.coordinators().has_all_of(name)
        return self._may_tell_of_transactions(f"transactional id {name!r}", is_whole)

    def may_list_transactional_ids(self) -> bool:
        """The same of all of them."""
        return self._may_tell_of_transactions("transactional ids", self.coordinators().has_all)

    def _may_tell_of_transactions(self, what: str, is_whole: bool) -> bool:
        topic = TRANSACTION_STATE_TOPIC
        is_here = not self._is_elsewhere(topic, self.coordinators().partitions)
        return self._may_tell(what, topic, is_whole and is_here)

    def _is_elsewhere(self, topic: str, partitions: Collection[int]) -> bool:
        """Whether the cluster has such a topic, and no partition of it is here."""
        return not partitions and self.image is not None and topic in self.image.topics

    def _may_tell(self, what: str, topic: str, is_whole: bool, without: str = "") -> bool:
        """Say what is missing. `without`: what clients can do that do not ask for it."""
        if is_whole:
            return True
        self.is_lacking = True
        if self.rules.skips_damage:
            self.tell_once(f"{what}: a part of {topic} is missing or damaged: the rest is answered")
        else:
            self.tell_once(
                f"{what}: the part of {topic} that tells of it is missing or damaged: clients get"
                f" an error; --on-damage skip gives them what is left{without}"
            )
        return self.rules.skips_damage
