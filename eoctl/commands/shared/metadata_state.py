"""The state of the cluster in the metadata of given log dirs, at a moment or now, as rows."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from eoctl.clock import format_time_ms, parse_time_ms
from eoctl.commands.shared.cluster_rows import (
    BrokerRow,
    ClusterRow,
    ControllerRow,
    CopyRow,
    FeatureRow,
    PartitionStateRow,
    SettingRow,
    directory_words,
    doubts_of,
    partition_state_row,
)
from eoctl.progress import Progress
from recovery.cluster.clusters import (
    CountedTo,
    counted_to,
    metadata_copies,
    one_cluster,
    read_newest_whole,
    voters_of,
)
from recovery.cluster.history import ALL, Moment, read_state, read_through
from storage.dirs.acknowledged_offsets import ReplicaStanding, in_cluster
from storage.dirs.cluster_image import (
    ALL_BROKERS,
    BROKER_RESOURCE,
    TOPIC_RESOURCE,
    load_bootstrap_image,
)
from storage.dirs.discovery import discover
from storage.dirs.log_dir import StoppedState
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
from storage.file_names import BOOTSTRAP_NAME, METADATA_TOPIC, DirState
from storage.formats.cluster_metadata import SECRET_CONFIG

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from recovery.cluster.clusters import ChosenReading, MetadataCopy
    from recovery.cluster.history import History
    from storage.dirs.cluster_image import (
        BrokerImage,
        ClusterImage,
        Endpoint,
        MetadataLog,
        TopicImage,
    )
    from storage.dirs.discovery import Selected
    from storage.dirs.log_dir import LogDir, Problem


NOW = "now"
# A smaller number is an offset, a larger number a time: 2001-09-09 in milliseconds.
FIRST_TIME_MS = 1_000_000_000_000
DAY_MS = 86_400_000


def parse_moment(text: str | None, end_time_ms: int | None) -> Moment:
    """Parse `--at`: an offset, a time, or a time of day before the metadata's end.

    Raises:
        UsageError: it is none of these.
    """
    if text is None or text == NOW:
        return Moment()
    if not text.isascii() or text.startswith("-"):
        raise UsageError(f"--at {text}: neither an offset nor a time")
    if text.isdigit() and int(text) < FIRST_TIME_MS:
        return Moment(offset=int(text))
    if re.fullmatch(r"[0-2][0-9]:[0-5][0-9](:[0-5][0-9](\.[0-9]{1,3})?)?Z?", text):
        if end_time_ms is None or end_time_ms < 0:
            raise UsageError(f"--at {text}: the metadata have no time, so that the day is unknown")
        time_ms = parse_time_ms(f"1970-01-01T{text.removesuffix('Z')}")
        day_ms = end_time_ms // DAY_MS * DAY_MS
        found = day_ms + time_ms
        return Moment(timestamp_ms=found if found <= end_time_ms else found - DAY_MS)
    return Moment(timestamp_ms=parse_time_ms(text))


def wanted_topics(topics: Sequence[str]) -> Callable[[str], bool] | None:
    """Return a filter for topics by name or pattern, or None for all topics."""
    if not topics:
        return None
    return lambda name: any(fnmatchcase(name, each) for each in topics)


class GivenMetadata:
    """The metadata in the given directories, with the newest copy.

    Attributes:
        copies: newest first, [] if there is only a bootstrap.checkpoint.
        selected: directories of partitions, without the metadata's.
        notes: doubts, in words.
        is_short: something could not be read.
    """

    def __init__(self, paths: Sequence[str], metadata_dir: str | None) -> None:
        given = [*paths, *([] if metadata_dir is None else [metadata_dir])]
        if not given:
            raise UsageError("no LOG-DIR given", next_step="eoctl metadata LOG-DIR...")
        found = discover(given)
        self.notes = [str(each) for each in found.problems]
        self.is_short = bool(found.problems)
        self.log_dirs = found.log_dirs
        self.cluster_id = one_cluster(found.log_dirs)
        self.copies, unread = metadata_copies(found.selected)
        self.notes += unread
        self.is_short = self.is_short or bool(unread)
        own = discover(paths).selected if paths else ()
        self.selected = tuple(
            each
            for each in own
            if each.partition.name.topic != METADATA_TOPIC
            and each.partition.name.state is DirState.LIVE
        )
        self.bootstrap = None if self.copies else _bootstrap(found.log_dirs)
        if not self.copies and self.bootstrap is None:
            raise UsageError(
                f"{', '.join(given)}: no {METADATA_TOPIC}-0, nor topics in a {BOOTSTRAP_NAME}",
                next_step="--metadata-dir DIR, or the log dir of a controller",
            )

    @property
    def path(self) -> str:
        """The path of the metadata."""
        if self.copies:
            return self.copies[0].partition.path
        assert self.bootstrap is not None
        return self.bootstrap[0]

    def end_time_ms(self) -> int | None:
        """Return the time of the newest record, or None if unknown."""
        if not self.copies:
            return None
        newest = self.copies[0].partition
        last = None
        for placed in newest.read(max(self.copies[0].end_offset - 1, 0)):
            last = placed.batch.header.max_timestamp_ms
        return last


def _bootstrap(log_dirs: Iterable[LogDir]) -> tuple[str, ClusterImage] | None:
    for each in log_dirs:
        image = load_bootstrap_image(each.path) if each.has_bootstrap else None
        if image is not None:
            return f"{each.path}/{BOOTSTRAP_NAME}", image
    return None


def read_of_newest(
    given: GivenMetadata, moment: Moment, read: Callable[[MetadataLog, Moment], History]
) -> ChosenReading[History]:
    """Read the newest copy that reaches back to a moment, or an older copy if it is damaged.

    `read`: `read_state` or `read_through`.

    Raises:
        UsageError: no copy reaches back as far.
    """
    return read_newest_whole(
        given.copies,
        lambda copy: read(copy.partition, moment),
        lambda history: history.problems,
        reaches=lambda history: history.reaches,
    )


def newest_copy(given: GivenMetadata, moment: Moment = ALL) -> tuple[MetadataCopy, tuple[str, ...]]:
    """Choose the copy whose changes are printed, and return which newer copies were skipped.

    If there are several copies, the chosen copy is read here, and again when its changes are
    printed. Changes are printed during reading, since all of them may exceed memory. So a copy that
    proves to be damaged later could not be replaced.

    Raises:
        UsageError: no copy reaches back as far.
    """
    if len(given.copies) == 1:
        return given.copies[0], ()
    with Progress("looking for the newest whole copy"):
        reading = read_of_newest(given, moment, read_through)
    return reading.copy, reading.passed_over


def diverged_note(copy: MetadataCopy, known: CountedTo, end_offset: int) -> Iterator[str]:
    """Yield the part that a newer copy, which is damaged or starts later, does not have."""
    if known.diverged_from is not None and known.end_offset < end_offset:
        yield (
            f"{copy.partition.path}: from offset {known.end_offset} on it may lack what "
            f"{known.diverged_from} has, which is newer. It may never have counted"
        )


def require_reached(copy: MetadataCopy, end_offset: int, moment: Moment) -> None:
    """Raise UsageError if a copy ends before the requested offset."""
    if moment.offset is not None and moment.offset >= end_offset:
        raise UsageError(
            f"--at {moment.offset}: {copy.partition.path} ends at {end_offset}",
            next_step=f"--at {max(end_offset - 1, 0)}, or without",
        )


def moment_notes(history: History, moment: Moment) -> Iterator[str]:
    """Yield the time of the last record before the requested time."""
    if moment.timestamp_ms is None:
        return
    reported = "nothing was recorded before it"
    if history.timestamp_ms >= 0 and history.end_offset:
        reported = f"the last record before it is of {format_time_ms(history.timestamp_ms)}"
    yield f"at {format_time_ms(moment.timestamp_ms)}: {reported}"


def reading_notes(copy: MetadataCopy, history: History) -> Iterator[str]:
    """Yield the doubts about a reading."""
    path = copy.partition.path
    yield from doubts_of(path, history.problems, history.image)
    if history.torn is not None:
        yield (
            f"{path}: ends in a truncated batch ({history.torn.reason}), as after a crash: none "
            "of its records counts here"
        )
    if not history.end_offset:
        yield f"{path}: no record is in it"
    if copy.partition.stopped is StoppedState.LIVE:
        yield f"{path}: a broker or controller has it open. It may have gone on since"
    if history.went_back_offset is not None:
        yield (
            f"{path}: times run backwards at offset {history.went_back_offset}. The clocks of "
            "controllers differ, and a time may be more than one offset"
        )


# -- from the options of `metadata` to rows: the metadata at a moment


REDACTED = "(redacted)"
# Settings that are printed whatever their source.
ALWAYS_REPORTED = (MIN_INSYNC_REPLICAS, UNCLEAN_LEADER_ELECTION)
NOT_KNOWN = (
    "server.properties is unknown: where a source is default, a broker may have another value"
)
# ConfigResource.Type
RESOURCES = {
    TOPIC_RESOURCE: "topic", BROKER_RESOURCE: "broker", 8: "broker-logger", 16: "client-metrics",
    32: "group",
}  # fmt: skip


class StateRun:
    """A read of the state at a moment, whose rows are complete after construction."""

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
        if topics and not any(map(self.is_wanted, self.image.topics)):
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
        """The exit status: 5 if some metadata could not be read."""
        return EXIT_SKIPPED if self._is_short else EXIT_OK

    def is_wanted(self, topic: str) -> bool:
        """Return whether the state of a topic was requested."""
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
        known = counted_to(given.copies, voters, history.end_offset, read=copy)
        self.notes += diverged_note(copy, known, history.end_offset)
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
            if self.is_wanted(name):
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
                is_reported = found.source is not SettingSource.DEFAULT or name in ALWAYS_REPORTED
                if is_reported or self._has_all_settings:
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
                words = RESOURCES.get(kind, str(kind))
                yield _setting_row(words, resource or "all", name, value, source, name)

    # --- replicas ---------------------------------------------------------------------------------

    def _copy_rows(self) -> Iterator[CopyRow]:
        for each in self.given.selected:
            if self.is_wanted(each.partition.name.topic):
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
            partition.topic_id()  # an unreadable file becomes a problem
            unknown = "unknown" if broker is None else ReplicaStanding.NOT_THERE
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
    """Hide a secret value, by the name of its setting."""
    return REDACTED if value is not None and SECRET_CONFIG.search(name) else value
