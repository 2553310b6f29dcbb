"""What keeps one release from using log dirs that another one has written.

  DIR-1  directories that it takes for partitions, and whose names it cannot read
  DIR-3  `meta.properties` that it takes for those of several nodes, or that is of no use to it
Sources: LogManager.loadLogs, Log.parseTopicPartitionName, BrokerMetadataCheckpoint, KafkaConfig.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from recovery.checks.grounds import broker_version as releases
from recovery.rules.findings import Severity
from storage.file_names import META_PROPERTIES_NAME, REMOTE_INDEX_CACHE_NAME, DirState

if TYPE_CHECKING:
    from collections.abc import Callable

    from recovery.checks.grounds.broker_version import BrokerVersion
    from recovery.checks.grounds.collector import Collector
    from storage.dirs.log_dir import LogDir

REFUSES = "refuses to start"


def check_release(
    log_dir: LogDir, collector: Collector, version: BrokerVersion, *, is_kraft: bool = False
) -> None:
    """Check one log dir by itself.

    `is_kraft`: its node has the metadata log. A file of a broker with ZooKeeper then is as good as
    any that names the node and the cluster.
    """
    if version < releases.REMOTE_INDEX_CACHE:
        for other in log_dir.others:
            if other.is_dir and Path(other.path).name == REMOTE_INDEX_CACHE_NAME:
                _add_name(other.path, collector, version)
    if version < releases.STRAY_NAMES:
        for each in log_dir.partitions:
            if each.name.state is DirState.STRAY:
                _add_name(each.path, collector, version)
    meta = log_dir.meta
    is_old = meta is not None and meta.version == 0 and not is_kraft
    if is_old and version >= releases.WITHOUT_ZOOKEEPER:
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
    """Hold `meta.properties` against that of the node's first log dir.

    Releases before `directory.id` compare all properties, with ZooKeeper up to 3.6, with KRaft up
    to 3.3: log dirs that a newer release has given ids are those of different brokers to them.
    """
    meta, other = log_dir.meta, first.meta
    if meta is None or other is None or version >= releases.DIRECTORY_IDS:
        return
    if meta.version == 1 and version >= releases.LENIENT_META_PROPERTIES:
        return
    if (meta.directory_id, sorted(meta.other)) == (other.directory_id, sorted(other.other)):
        return  # what else differs is told for every release
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
