"""From the options of `cluster-state` to rows: what the metadata say at a moment."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eoctl.progress import Progress
from eoctl.runs.reports.cluster_metadata import (
    NOW,
    GivenMetadata,
    moment_notes,
    parse_moment,
    parted_note,
    read_of_newest,
    reading_notes,
    require_reached,
    wanted_topics,
)
from eoctl.runs.reports.cluster_rows import (
    BrokerRow,
    ClusterRow,
    ControllerRow,
    CopyRow,
    FeatureRow,
    PartitionStateRow,
    SettingRow,
    directory_words,
    partition_state_row,
)
from recovery.cluster.clusters import CountedTo, counted, voters_of
from recovery.cluster.history import read_state
from storage.dirs.acknowledged import CopyStanding, in_cluster
from storage.dirs.cluster_image import (
    ALL_BROKERS,
    BROKER_RESOURCE,
    TOPIC_RESOURCE,
)
from storage.dirs.partition import Partition
from storage.dirs.topic_settings import (
    MIN_INSYNC_REPLICAS,
    SETTINGS,
    UNCLEAN_LEADER_ELECTION,
    SettingSource,
    is_under_min_isr,
    topic_setting,
)
from storage.errors import EXIT_OK, EXIT_SKIPPED, AccessError, UsageError
from storage.formats.cluster_metadata import SECRET_CONFIG

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from recovery.cluster.clusters import MetadataCopy
    from recovery.cluster.history import History, Moment
    from storage.dirs.cluster_image import BrokerImage, ClusterImage, Endpoint, TopicImage
    from storage.dirs.discovery import Selected
    from storage.dirs.log_dir import Problem

REDACTED = "(redacted)"
# Settings that are told whatever they come from.
ALWAYS_TOLD = (MIN_INSYNC_REPLICAS, UNCLEAN_LEADER_ELECTION)
NOT_KNOWN = (
    "a server.properties is not known: where a source is default, a broker may have another value"
)
# ConfigResource.Type
_RESOURCES = {
    TOPIC_RESOURCE: "topic", BROKER_RESOURCE: "broker", 8: "broker-logger", 16: "client-metrics",
    32: "group",
}  # fmt: skip


class StateRun:
    """Reads the state at a moment; rows are complete once it is made."""

    def __init__(
        self,
        paths: Sequence[str],
        *,
        metadata_dir: str | None,
        at: str | None,
        topics: Sequence[str],
        has_all_settings: bool,
    ) -> None:
        self.given = given = GivenMetadata(paths, metadata_dir)
        self.notes = list(given.notes)
        self._is_short = given.is_short
        self._wanted = wanted_topics(topics)
        self._has_all_settings = has_all_settings
        with Progress("reading"):
            self.image, self.cluster = self._read(at)
        if topics and not any(map(self._is_wanted, self.image.topics)):
            raise UsageError(f"no topic {', '.join(topics)} in {given.path}{self._at_words(at)}")
        self.copies = list(self._copy_rows())
        self.partitions = list(self._partition_rows())
        self.brokers = list(self._broker_rows())
        self.controllers = list(self._controller_rows())
        self.features = [FeatureRow(*each) for each in sorted(self.image.features.items())]
        self.settings = list(self._setting_rows())
        self.notes.append(NOT_KNOWN)

    @property
    def status(self) -> int:
        """5: not all of it could be read."""
        return EXIT_SKIPPED if self._is_short else EXIT_OK

    def _is_wanted(self, topic: str) -> bool:
        return self._wanted is None or self._wanted(topic)

    @staticmethod
    def _at_words(at: str | None) -> str:
        return "" if at in (None, NOW) else f" at {at}"

    # --- the metadata -----------------------------------------------------------------------------

    def _read(self, at: str | None) -> tuple[ClusterImage, ClusterRow]:
        given = self.given
        if given.bootstrap is not None and not given.copies:
            if at not in (None, NOW):
                raise UsageError(f"--at {at}: {given.path} is all that there is, and has no times")
            path, image = given.bootstrap
            self.notes.append(f"{path}: what the controller will begin with")
            known = CountedTo(end_offset=0, why="a bootstrap.checkpoint")
            return image, self._cluster_row(image, path, None, None, known)
        moment = parse_moment(at, given.end_time_ms())
        copy, history, passed_over = read_of_newest(given, moment, read_state)
        self.notes += passed_over
        self._is_short = self._is_short or bool(passed_over)
        self._note_reading(copy, history, moment)
        voters = voters_of(history.image, given.copies)
        known = counted(given.copies, voters, history.end_offset, read=copy)
        self.notes += parted_note(copy, known, history.end_offset)
        return history.image, self._cluster_row(
            history.image, copy.partition.path, copy.node_id, history, known
        )

    def _note_reading(self, copy: MetadataCopy, history: History, moment: Moment) -> None:
        self.notes += reading_notes(copy, history)
        self._is_short = self._is_short or not history.is_complete
        require_reached(copy, history.end_offset, moment)
        self.notes += moment_notes(history, moment)

    def _cluster_row(
        self,
        image: ClusterImage,
        path: str,
        node_id: int | None,
        history: History | None,
        known: CountedTo,
    ) -> ClusterRow:
        places = [
            (topic.name, number, found)
            for topic in image.topics.values()
            for number, found in topic.partitions.items()
        ]
        end_offset = image.end_offset if history is None else history.end_offset
        time_ms = None if history is None or history.timestamp_ms < 0 else history.timestamp_ms
        return ClusterRow(
            cluster_id=self.given.cluster_id,
            path=path,
            node_id=node_id,
            start_offset=0 if history is None else history.start_offset,
            end_offset=end_offset,
            timestamp_ms=time_ms,
            quorum_leader=image.quorum_leader,
            voters=voters_of(image, self.given.copies),
            counted_offset=known.end_offset,
            counted_by=known.why,
            maybe_records_count=max(end_offset - known.end_offset, 0) if history else 0,
            is_complete=not self._is_short,
            brokers_count=len(image.brokers),
            fenced_count=sum(each.is_fenced for each in image.brokers.values()),
            topics_count=len(image.topics),
            partitions_count=len(places),
            leaderless_count=sum(found.leader < 0 for _, _, found in places),
            under_min_isr_count=sum(
                is_under_min_isr(image, name, number) for name, number, _ in places
            ),
            recovering_count=sum(found.is_recovering for _, _, found in places),
            open_transaction_records_count=image.open_transaction_records_count,
        )

    # --- rows -------------------------------------------------------------------------------------

    def _topics(self) -> Iterator[TopicImage]:
        for name in sorted(self.image.topics):
            if self._is_wanted(name):
                yield self.image.topics[name]

    def _partition_rows(self) -> Iterator[PartitionStateRow]:
        image = self.image
        ends: dict[tuple[str, int], list[CopyRow]] = {}
        for each in self.copies:
            ends.setdefault((each.topic, each.partition), []).append(each)
        for topic in self._topics():
            for number in sorted(topic.partitions):
                copies = ends.get((topic.name, number), [])
                yield partition_state_row(
                    image,
                    topic,
                    number,
                    high_watermark=_most(each.high_watermark for each in copies),
                    log_end_offset=_most(each.log_end_offset for each in copies),
                )

    def _broker_rows(self) -> Iterator[BrokerRow]:
        leaders: dict[int, int] = {}
        replicas: dict[int, int] = {}
        absent: dict[int, int] = {}
        for topic in self.image.topics.values():
            for found in topic.partitions.values():
                leaders[found.leader] = leaders.get(found.leader, 0) + 1
                for each in found.replicas:
                    replicas[each] = replicas.get(each, 0) + 1
                    absent[each] = absent.get(each, 0) + (each not in found.isr)
        given: dict[int | None, list[str]] = {}
        for log_dir in self.given.log_dirs:
            if log_dir.meta is not None:
                given.setdefault(log_dir.meta.node_id, []).append(log_dir.path)
        for broker_id, broker in sorted(self.image.brokers.items()):
            yield BrokerRow(
                broker=broker_id,
                state=_broker_state(broker),
                leaders_count=leaders.get(broker_id, 0),
                replicas_count=replicas.get(broker_id, 0),
                out_of_isr_count=absent.get(broker_id, 0),
                broker_epoch=broker.broker_epoch,
                rack=broker.rack or "",
                endpoints=_endpoint_words(broker.endpoints),
                directories=directory_words(broker.log_dirs),
                cordoned_directories=directory_words(broker.cordoned_log_dirs),
                given_dirs=tuple(given.get(broker_id, ())),
            )

    def _controller_rows(self) -> Iterator[ControllerRow]:
        known, leader = self.image.controllers, self.image.quorum_leader
        for each in sorted({*known} | {*self.cluster.voters}):
            yield ControllerRow(
                controller=each,
                is_voter=each in self.cluster.voters,
                is_leader=None if leader is None else each == leader,
                endpoints=_endpoint_words(known[each].endpoints) if each in known else (),
            )

    def _setting_rows(self) -> Iterator[SettingRow]:
        image = self.image
        for topic in self._topics():
            own = image.configs.get((TOPIC_RESOURCE, topic.name), {})
            for name in sorted({*SETTINGS} | {*own}):
                if name not in SETTINGS:  # of a newer release, or for Kafka's own tests
                    source = SettingSource.TOPIC.value
                    yield _setting_row("topic", topic.name, name, own[name], source, name)
                    continue
                found = topic_setting(image, topic.name, name)
                is_told = found.source is not SettingSource.DEFAULT or name in ALWAYS_TOLD
                if is_told or self._has_all_settings:
                    yield _setting_row(
                        "topic", topic.name, name, found.value, found.source, found.source_name
                    )
        if self._wanted is not None:
            return
        for (kind, resource), settings in sorted(image.configs.items()):
            if kind == TOPIC_RESOURCE:
                continue
            is_for_all = kind == BROKER_RESOURCE and resource == ALL_BROKERS
            source = SettingSource.ALL_BROKERS if is_for_all else "dynamic"
            for name, value in sorted(settings.items()):
                words = _RESOURCES.get(kind, str(kind))
                yield _setting_row(words, resource or "all", name, value, source, name)

    # --- copies -----------------------------------------------------------------------------------

    def _copy_rows(self) -> Iterator[CopyRow]:
        for each in self.given.selected:
            if self._is_wanted(each.partition.name.topic):
                yield self._copy_row(each)

    def _copy_row(self, selected: Selected) -> CopyRow:
        name = selected.partition.name
        meta = None if selected.log_dir is None else selected.log_dir.meta
        broker = None if meta is None else meta.node_id
        end_offset = start_offset = high_watermark = epoch = None
        standing: str = "unreadable"
        try:
            partition = Partition.of(selected, self.image)
            end = partition.log_end()
            start_offset, high_watermark = partition.log_start_offset, partition.high_watermark
            end_offset = (start_offset or 0) if end is None else end.offset
            epochs = partition.leader_epochs()
            epoch = epochs[-1].epoch if epochs else None
            partition.topic_id()  # what of its file cannot be read is a problem
            unknown = "unknown" if broker is None else CopyStanding.NOT_THERE
            standing = in_cluster(*selected, self.image).standing or unknown
            problems: list[Problem] = partition.problems
        except AccessError as exc:
            problems = [exc]
        self.notes += map(str, problems)
        self._is_short = self._is_short or bool(problems)
        return CopyRow(
            topic=name.topic,
            partition=name.partition,
            broker=broker,
            standing=standing,
            log_start_offset=start_offset,
            log_end_offset=end_offset,
            high_watermark=high_watermark,
            leader_epoch=epoch,
            path=selected.partition.path,
        )


def _most(values: Iterable[int | None]) -> int | None:
    return max((each for each in values if each is not None), default=None)


def _broker_state(broker: BrokerImage) -> str:
    if broker.is_fenced:
        return "fenced"
    return "controlled shutdown" if broker.in_controlled_shutdown else "active"


def _endpoint_words(endpoints: Iterable[Endpoint]) -> tuple[str, ...]:
    return tuple(f"{each.name}://{each.host}:{each.port}" for each in endpoints)


def _setting_row(
    resource: str, resource_name: str, name: str, value: str, source: str, source_name: str
) -> SettingRow:
    return SettingRow(
        resource=resource,
        resource_name=resource_name,
        setting=name,
        value=shown_value(name, value) or "",
        source=str(source),
        source_name=source_name,
    )


def shown_value(name: str, value: str | None) -> str | None:
    """Hide what is a secret, by the name of its setting."""
    return REDACTED if value is not None and SECRET_CONFIG.search(name) else value
