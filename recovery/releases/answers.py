"""The answer for each release to a survey: it starts, starts and drops data, or does not start.

The limits of `broker_version` and `kraft_release` were compared with real brokers.

      before  behaviour                                                          source
      3.4.1   loads no group of a partition with a newer record, forgets         KIP-915
              transactional ids after the first one in version 1
      3.6     reads nothing that is in remote storage only                       KIP-405
      4.1     has no share groups                                                KIP-932
      4.4     takes a range of addresses for the name of one host                AclAuthorizer
      4.4     does not know delivery state 3                                     SharePartition
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from recovery.checks.context import broker_version as releases
from recovery.checks.context.broker_version import check_release, check_same_properties
from recovery.checks.context.collector import Collector
from recovery.releases.survey import RELEASES, Place
from recovery.rules.findings import Severity
from storage.dirs.cluster_image import TOPIC_RESOURCE
from storage.dirs.topic_settings import SETTINGS_SINCE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from recovery.checks.context.broker_version import BrokerVersion
    from recovery.releases.survey import Survey
    from recovery.rules.findings import Finding

REMOTE_STORAGE = (3, 6)
SHARE_GROUPS = (4, 1)
RANGES_OF_HOSTS = (4, 4)
ARCHIVING_STATE = (4, 4)
ZOOKEEPER_VERSION = 0  # of the meta.properties of a broker with ZooKeeper


class Reason(NamedTuple):
    """The reason why a release does not start, or drops data. `offset`: -1 without a record."""

    what: str
    path: str
    offset: int


class ReleaseAnswer(NamedTuple):
    """The answer for one release.

    Attributes:
        version: the last patch release of a line.
        starts: None if unknown. `unknown` has the reason.
        reasons: why it does not start. The start fails at the first reason.
        drops: the data that it does not read, or misinterprets.
    """

    version: BrokerVersion
    starts: bool | None
    reasons: tuple[Reason, ...]
    drops: tuple[Reason, ...]
    unknown: str = ""


def answers_of(found: Survey) -> list[ReleaseAnswer]:
    """Return the answer for each release, the oldest first."""
    return [answer_for(found, version) for version in RELEASES]


def answer_for(found: Survey, version: BrokerVersion) -> ReleaseAnswer:
    """Return the answer for one release. A patch release has its line's record types."""
    line = version.line
    collector = Collector()
    _check_log_dirs(found, collector, line)
    stops = [*found.collectors[line].kept, *collector.kept]
    reasons = [_reason(each) for each in stops]
    if found.quorum_state is not None and line < releases.DYNAMIC_QUORUM:
        reasons.append(_of_place("version 1 of quorum-state", found.quorum_state))
    if found.image is not None:
        for key, what in releases.refused_settings(found.image.configs, line).items():
            reasons.append(_of_place(what, found.settings.get(key, Place(found.image.path))))
    unknown = _unknown(found)
    return ReleaseAnswer(
        version=version,
        starts=False if reasons else None if unknown else True,
        reasons=tuple(reasons),
        drops=() if reasons else tuple(_drops(found, line)),
        unknown="" if reasons else unknown,
    )


def _check_log_dirs(found: Survey, collector: Collector, version: BrokerVersion) -> None:
    first = found.log_dirs[0] if found.log_dirs else None
    for log_dir in found.log_dirs:
        is_kraft = found.image is not None and bool(found.image.end_offset)
        check_release(log_dir, collector, version, is_kraft=is_kraft)
        if first is not None and log_dir is not first:
            check_same_properties(log_dir, first, lambda _: collector, version)


def _reason(finding: Finding) -> Reason:
    what = finding.message.removeprefix("Kafka ").partition(" does not know ")[2]
    offset = finding.base_offset
    return Reason(
        what=what or finding.message,
        path=finding.path,
        offset=-1 if offset is None or finding.severity is Severity.WARNING else offset,
    )


def _of_place(what: str, place: Place) -> Reason:
    return Reason(what, place.path, place.offset)


def uses_zookeeper(found: Survey) -> bool:
    """Return whether the log dirs are of a broker with ZooKeeper, without metadata of its own."""
    known = [each.meta.version for each in found.log_dirs if each.meta is not None]
    return not found.has_metadata and bool(known) and set(known) == {ZOOKEEPER_VERSION}


def _unknown(found: Survey) -> str:
    if found.problems:
        return f"not all could be read: {found.problems[0]}"
    if not found.has_metadata and not uses_zookeeper(found):
        return "its __cluster_metadata-0 was not given"
    return ""


def _drops(found: Survey, version: BrokerVersion) -> Iterator[Reason]:
    if found.bootstrap is not None and version < releases.BOOTSTRAP_CHECKPOINT:
        yield _of_place("bootstrap.checkpoint, and all topics in it", found.bootstrap)
    if found.beginning is not None and releases.passes_over_beginning(version):
        yield _of_place("what its controller begins with, and all topics in it", found.beginning)
    yield from _groups(found, version)
    if version < releases.LENIENT_COORDINATORS:
        for place in found.newer_transactions.values():
            yield _of_place("transactional ids from the first record of version 1 on", place)
    if found.shares is not None and version < SHARE_GROUPS:
        yield _of_place("what share groups have acknowledged", found.shares)
    elif found.archiving is not None and version < ARCHIVING_STATE:
        what = "the state of share groups with records in flight to a dead letter queue"
        yield _of_place(what, found.archiving)
    if version < RANGES_OF_HOSTS:
        for host, place in found.ranges.items():
            yield _of_place(
                f"access rules for {host}: it takes the range for the name of one host", place
            )
    image = found.image
    if image is None:
        return
    for (kind, topic), settings in sorted(image.configs.items()):
        for name in sorted(settings):
            if kind != TOPIC_RESOURCE:
                continue
            if settings[name] == "true" and name == "remote.storage.enable":
                if version < REMOTE_STORAGE:
                    yield Reason(
                        f"offsets of {topic} that are in remote storage only", image.path, -1
                    )
            elif version < SETTINGS_SINCE.get(name, (0,)):
                yield Reason(f"the setting {name} of {topic}", image.path, -1)


def _groups(found: Survey, version: BrokerVersion) -> Iterator[Reason]:
    last = releases.highest(releases.GROUP_RECORD_TYPES, version) or 0
    is_lenient = version >= releases.LENIENT_COORDINATORS
    for path, types in found.group_types.items():
        newer = {number: place for number, place in types.items() if number > last}
        if not newer:
            continue
        first = min(newer, key=lambda number: newer[number].offset)
        if is_lenient:
            kinds = _kinds_of(newer)
            yield _of_place(f"{kinds} in {path}", newer[first])
        else:
            yield _of_place(f"all groups and offsets in {path}: record type {first}", newer[first])
    if not is_lenient:
        for path, versions in found.group_versions.items():
            if 4 in versions:
                what = f"all groups and offsets in {path}: version 4 of a value"
                yield _of_place(what, versions[4])


_KINDS = (
    (range(3, 9), "consumer groups"),
    (range(16, 17), "consumer groups"),
    (range(9, 16), "share groups"),
    (range(17, 25), "streams groups"),
)


def _kinds_of(types: dict[int, Place]) -> str:
    names = [name for numbers, name in _KINDS if any(each in numbers for each in types)]
    return " and ".join(dict.fromkeys(names)) or f"records of type {min(types)}"
