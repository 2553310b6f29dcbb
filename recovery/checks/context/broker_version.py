"""The release of Kafka that a check assumes, and the differences between releases.

Without a version a check assumes `CHECKED`. A version without a patch level is the last patch
release of its line. Each fact below holds since a release.

    since  fact                                                          source
    3.0    REC-4 in its present form. A swap is completed by names       LogLoader (KAFKA-12520)
    3.0    frame version 1 of metadata records                           AbstractApiMessageSerde
    3.0    a KRaft broker deletes replicas that are not its own          BrokerMetadataPublisher
    3.1    an invalid number in a checkpoint loses only its entries      CheckpointFile in Java
    3.3    metadata.version, bootstrap.checkpoint                        KIP-778
    3.4    undecodable metadata end a node with a controller             MetadataLoader
    3.4    KRaft compares only the required meta.properties              BrokerMetadataCheckpoint
    3.4.1  coordinator records of unknown types, flexible values         KIP-915
    3.5    remote-log-index-cache is no partition                        LogManager (KIP-405)
    3.5    control records are decoded. Types 5 and 6 are unknown        RecordsIterator
    3.6    a controller can begin with any number of records             KIP-868
    3.6.1  names that end with -stray                                    LocalLog (KAFKA-15605)
    3.7    directory.id, replicas have a log dir                         KIP-858
    3.7.1  replicas of other brokers become -stray when they are loaded  LogManager (KAFKA-16234)
    3.8    kraft.version records, quorum-state version 1                 KIP-853
    3.9    kraft.version 1 can be set, for a dynamic quorum              KIP-853
    4.0    no ZooKeeper, and the lowest metadata.version is 7            KIP-833, KAFKA-18601
    4.1    if a topic's segment.bytes is below 1 MiB, no log is loaded   LogConfig, LogManager
    4.4    a new cluster begins with a snapshot of its metadata log      StorageTool, Formatter
           (without a log, 4.3, and 3.5 and before, skip that snapshot; the others end at it)
    4.4    the metadata log's indexes keep their size at a clean stop    KafkaRaftLog
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from recovery.rules.findings import Severity
from storage.dirs.cluster_image import TOPIC_RESOURCE
from storage.errors import UsageError
from storage.file_names import (
    BEGINNING_NAME,
    BOOTSTRAP_NAME,
    META_PROPERTIES_NAME,
    REMOTE_INDEX_CACHE_NAME,
    DirState,
)
from storage.formats import cluster_metadata as records

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from recovery.checks.context.collector import Collector
    from storage.dirs.cluster_image import ClusterImage
    from storage.dirs.log_dir import LogDir


LAST_PATCH = 999


class BrokerVersion(NamedTuple):
    """A release. Compare it with a tuple for the first release in which a fact holds."""

    major: int
    minor: int
    patch: int = LAST_PATCH

    def __str__(self) -> str:
        line = f"{self.major}.{self.minor}"
        return line if self.patch == LAST_PATCH else f"{line}.{self.patch}"

    @property
    def line(self) -> BrokerVersion:
        """The last patch release of its line."""
        return self._replace(patch=LAST_PATCH)


# From the first release that loads logs as current releases do.
LINES = (
    *((2, 8),),
    *((3, minor) for minor in range(10)),
    *((4, minor) for minor in range(5)),
)
OLDEST, NEWEST = BrokerVersion(*LINES[0]), BrokerVersion(*LINES[-1])
# The release that checks assume, and `init` begins with, if none is named. All its facts were
# compared with real brokers. A newer line can be in LINES before that is done.
CHECKED = BrokerVersion(4, 4, 0)

SWAPS_BY_NAME = (3, 0)
FRAME_VERSION_1 = (3, 0)
KNOWS_STRAYS = (3, 0)
LENIENT_CHECKPOINTS = (3, 1)
BOOTSTRAP_CHECKPOINT = (3, 3)
LENIENT_META_PROPERTIES = (3, 4)
METADATA_LOADER = (3, 4)
LENIENT_COORDINATORS = (3, 4, 1)
REMOTE_INDEX_CACHE = (3, 5)
METADATA_TRANSACTIONS = (3, 6)
DECODES_CONTROL_RECORDS = (3, 5)
STRAY_NAMES = (3, 6, 1)
DIRECTORY_IDS = (3, 7)
STRAYS_WHEN_LOADED = (3, 7, 1)
DYNAMIC_QUORUM = (3, 8)
DYNAMIC_VOTERS = (3, 9)
WITHOUT_ZOOKEEPER = (4, 0)
LARGER_SEGMENTS = (4, 1)
BEGINS_WITH_SNAPSHOT = (4, 4)

METADATA_VERSION = "metadata.version"
LOWEST_METADATA_VERSION = 7  # 3.3-IV3, since 4.0; before: 3.0-IV1

Since = tuple[int, ...]
Levels = tuple[tuple[Since, int], ...]

# Highest production level of each finalized feature (QuorumFeatures, the enums in server-common).
FEATURES: dict[str, Levels] = {
    METADATA_VERSION: (
        ((3, 3), 7),
        ((3, 4), 8),
        ((3, 5), 11),
        ((3, 6), 14),
        ((3, 7), 19),
        ((3, 8), 20),
        ((3, 9), 21),
        ((4, 0), 25),
        ((4, 1), 27),
        ((4, 2), 29),
        ((4, 3), 30),
        ((4, 4), 33),
    ),
    "transaction.version": (((4, 0), 2),),
    "group.version": (((4, 0), 1),),
    "eligible.leader.replicas.version": (((4, 0), 1),),
    "share.version": (((4, 1), 1), ((4, 4), 2)),
    "streams.version": (((4, 2), 1),),
}

# Features that a release sets in new clusters only later than it knows them (Feature.defaultLevel).
SET_SINCE: dict[str, Since] = {
    "eligible.leader.replicas.version": (4, 1),
    "share.version": (4, 2),
}

# Highest version of metadata records. A missing type exists since 3.0, with version 0.
METADATA_RECORDS: dict[int, Levels] = {
    records.REGISTER_BROKER: (((3, 0), 0), ((3, 3), 1), ((3, 4), 2), ((3, 7), 3), ((4, 3), 4)),
    records.PARTITION: (((3, 0), 0), ((3, 7), 2)),
    records.PARTITION_CHANGE: (((3, 0), 0), ((3, 7), 2)),
    records.FEATURE_LEVEL: (((3, 3), 0),),  # in 3.0 to 3.2 it had other fields
    records.BROKER_REGISTRATION_CHANGE: (((3, 0), 0), ((3, 3), 1), ((3, 7), 2), ((4, 3), 3)),
    records.ACCESS_CONTROL_ENTRY: (((3, 2), 0),),
    records.REMOVE_ACCESS_CONTROL_ENTRY: (((3, 2), 0),),
    records.NO_OP: (((3, 3), 0),),
    records.ZK_MIGRATION_STATE: (((3, 4), 0),),
    records.REMOVE_USER_SCRAM_CREDENTIAL: (((3, 5), 0),),
    records.BEGIN_TRANSACTION: (((3, 6), 0),),
    records.END_TRANSACTION: (((3, 6), 0),),
    records.ABORT_TRANSACTION: (((3, 6), 0),),
    records.REMOVE_DELEGATION_TOKEN: (((3, 6), 0),),
    records.REGISTER_CONTROLLER: (((3, 7), 0),),
    records.CLEAR_ELR: (((4, 0), 0),),
    records.UNREGISTER_CONTROLLER: (((4, 4), 0),),
}
_SINCE_3_0: Levels = (((3, 0), 0),)

# Highest record type of `__consumer_offsets`. Only with their new coordinator, which must be
# configured, do 3.5 to 3.9 know more types.
GROUP_RECORD_TYPES: Levels = (((2, 8), 2), ((4, 0), 16), ((4, 1), 23))


def passes_over_beginning(version: BrokerVersion) -> bool:
    """Return whether a release ignores the first snapshot of a metadata log that has not begun."""
    return version.line < (3, 6) or (version.major, version.minor) == (4, 3)


def is_passed_over(image: ClusterImage, version: BrokerVersion | None) -> bool:
    """Return whether an image is of a cluster's first records, and the release ignores these."""
    if version is None:
        return False
    name = Path(image.path).name
    if name == BOOTSTRAP_NAME:
        return is_before(version, BOOTSTRAP_CHECKPOINT)
    return name == BEGINNING_NAME and passes_over_beginning(version)


def parse_broker_version(text: str) -> BrokerVersion:
    """Parse X.Y or X.Y.Z. Raises UsageError if it is neither, or if the release is unknown."""
    matched = re.fullmatch(r"(\d{1,3})\.(\d{1,3})(?:\.(\d{1,3}))?", text)
    if matched is None:
        raise UsageError(
            f"--broker-version {text}: not a release",
            next_step=f"X.Y or X.Y.Z, {OLDEST} to {NEWEST}",
        )
    major, minor, patch = (LAST_PATCH if each is None else int(each) for each in matched.groups())
    if (major, minor) not in LINES:
        raise UsageError(
            f"--broker-version {text}: nothing is known of it",
            next_step=f"a release from {OLDEST} to {NEWEST}",
        )
    return BrokerVersion(major, minor, patch)


def is_before(version: BrokerVersion | None, since: Since) -> bool:
    """Return whether a release is before `since`. None is CHECKED."""
    return (CHECKED if version is None else version) < since


def highest(levels: Levels, version: BrokerVersion) -> int | None:
    """Return the level that holds in a release, or None if there is none yet."""
    found = None
    for since, level in levels:
        if version >= since:
            found = level
    return found


def highest_record_version(api_key: int, version: BrokerVersion) -> int | None:
    """Return the highest version of a metadata record, or None if the release has none."""
    return highest(METADATA_RECORDS.get(api_key, _SINCE_3_0), version)


def supported_levels(feature: str, version: BrokerVersion) -> range | None:
    """Return the levels of a feature that a release can be set to, or None if it is unknown."""
    if feature not in FEATURES:
        return None
    last = highest(FEATURES[feature], version) or 0
    first = 0
    if feature == METADATA_VERSION:
        first = LOWEST_METADATA_VERSION if version >= WITHOUT_ZOOKEEPER else 1
    return range(first, last + 1)


def formatted_features(version: BrokerVersion) -> list[tuple[str, int]]:
    """List the features that `kafka-storage format` of a release sets, in its order."""
    found = []
    for name in sorted(FEATURES, key=lambda each: (each != METADATA_VERSION, each)):
        level = highest(FEATURES[name], version)
        if level and version >= SET_SINCE.get(name, (0,)):
            found.append((name, level))
    return found


def partition_record_version(version: BrokerVersion) -> int:
    """Return the version of PARTITION that a controller of a release writes (MetadataVersion)."""
    return highest((((3, 0), 0), ((3, 7), 1), ((4, 0), 2)), version) or 0


def unsupported_features(features: Mapping[str, int], version: BrokerVersion | None) -> list[str]:
    """List the finalized features that keep a release from starting, metadata.version first."""
    if version is None:
        return []
    found = []
    for name in sorted(features, key=lambda each: (each != METADATA_VERSION, each)):
        levels = supported_levels(name, version)
        if levels is not None and features[name] not in levels:
            found.append(f"{name} {features[name]}")
    return found


SEGMENT_BYTES, MIN_SEGMENT_BYTES = "segment.bytes", 1 << 20


def refused_settings(
    configs: Mapping[tuple[int, str], Mapping[str, str]], version: BrokerVersion
) -> dict[tuple[str, str], str]:
    """Return topic settings with which a release loads no log, because it does not accept them.

    The values are messages, by topic and setting.
    """
    if version < LARGER_SEGMENTS:
        return {}
    found = {}
    for (kind, topic), settings in sorted(configs.items()):
        value = settings.get(SEGMENT_BYTES, "") if kind == TOPIC_RESOURCE else ""
        if value.isdecimal() and int(value) < MIN_SEGMENT_BYTES:
            text = f"{SEGMENT_BYTES}={value} of {topic}: at least {MIN_SEGMENT_BYTES}"
            found[topic, SEGMENT_BYTES] = text
    return found


# -- differences that keep one release from using log dirs of another release.
#
#   DIR-1  directories that it takes for partitions, but with names that it cannot read.
#   DIR-3  `meta.properties` that it takes for several nodes, or that it cannot use.
# Sources: LogManager.loadLogs, Log.parseTopicPartitionName, BrokerMetadataCheckpoint, KafkaConfig.


REFUSES = "refuses to start"
READERS_FAIL = "nothing; a consumer fails here"


def check_release(
    log_dir: LogDir, collector: Collector, version: BrokerVersion, *, is_kraft: bool = False
) -> None:
    """Check a single log dir.

    `is_kraft`: its node has the metadata log. A file of a broker with ZooKeeper is then good if it
    names the node and the cluster.
    """
    if version < REMOTE_INDEX_CACHE:
        for other in log_dir.others:
            if other.is_dir and Path(other.path).name == REMOTE_INDEX_CACHE_NAME:
                _add_name(other.path, collector, version)
    if version < STRAY_NAMES:
        for each in log_dir.partitions:
            if each.name.state is DirState.STRAY:
                _add_name(each.path, collector, version)
    meta = log_dir.meta
    is_old = meta is not None and meta.version == 0 and not is_kraft
    if is_old and version >= WITHOUT_ZOOKEEPER:
        collector.add(
            "DIR-3",
            os.fspath(Path(log_dir.path, META_PROPERTIES_NAME)),
            f"a log dir of a broker with ZooKeeper, which Kafka {version} does not have",
            severity=Severity.WARNING,
            expected="version=1",
            found="version=0",
            broker_action="does not start with the configuration of such a broker",
        )


def _add_name(path: str, collector: Collector, version: BrokerVersion) -> None:
    collector.add(
        "DIR-1",
        path,
        f"a directory that is no partition to Kafka {version}",
        severity=Severity.ERROR,
        expected="TOPIC-PARTITION",
        found=Path(path).name,
        broker_action=REFUSES,
    )


def check_same_properties(
    log_dir: LogDir,
    first: LogDir,
    collector_of: Callable[[LogDir], Collector],
    version: BrokerVersion,
) -> None:
    """Compare `meta.properties` with the file in the node's first log dir.

    Releases before `directory.id` compare all properties: with ZooKeeper up to 3.6, with KRaft up
    to 3.3. To them, log dirs with ids of a newer release belong to different brokers.
    """
    meta, other = log_dir.meta, first.meta
    if meta is None or other is None or version >= DIRECTORY_IDS:
        return
    if meta.version == 1 and version >= LENIENT_META_PROPERTIES:
        return
    if (meta.directory_id, sorted(meta.other)) == (other.directory_id, sorted(other.other)):
        return  # all other differences are reported for every release
    collector_of(log_dir).add(
        "DIR-3",
        os.fspath(Path(log_dir.path, META_PROPERTIES_NAME)),
        f"the properties differ from those in {first.path}: to Kafka {version} that is another"
        " broker's log dir",
        severity=Severity.ERROR,
        expected="the same properties in all log dirs",
        found="directory.id, or others, of its own",
        broker_action=REFUSES,
    )
