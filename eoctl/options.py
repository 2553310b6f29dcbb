"""Options that several commands share, each with the same wording."""

from __future__ import annotations

import os
import re
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, NamedTuple

from eoctl.clock import parse_time_ms
from eoctl.output import OutputFormat
from eoctl.parameters import (
    advanced_option,
    argument,
    option,
    output_option,
    records_option,
    safety_option,
)
from recovery.rules.findings import Severity
from storage.errors import UsageError
from storage.limits import INT32_MAX, MAX_OFFSET

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence


# -- ranges in every command: `A..B`, both included; `A..`, `..B` or `A` alone


class Range(NamedTuple):
    """A first and a last value, both included. None is open."""

    first: int | None = None
    last: int | None = None

    def holds(self, value: int) -> bool:
        """Return whether the value lies inside."""
        return (self.first is None or value >= self.first) and (
            self.last is None or value <= self.last
        )

    def meets(self, first: int, last: int) -> bool:
        """Return whether any value of first..last lies inside."""
        return (self.first is None or last >= self.first) and (
            self.last is None or first <= self.last
        )


def parse_range(text: str, parse: Callable[[str], int], option: str) -> Range:
    """Parse `A..B`, `A..`, `..B` or `A` (that value only).

    Raises:
        UsageError: the text is none of these, or A is above B.
    """
    first_text, dots, last_text = text.partition("..")
    try:
        first = parse(first_text) if first_text else None
        last = parse(last_text) if last_text else None
    except ValueError:
        raise UsageError(f"{option}: not a range: {text!r}", next_step=f"{option} A..B") from None
    if not dots:
        last = first
    if first is None and last is None:
        raise UsageError(f"{option}: not a range: {text!r}", next_step=f"{option} A..B")
    if first is not None and last is not None and first > last:
        raise UsageError(f"{option}: {first} is above {last}")
    return Range(first, last)


def parse_offsets(text: str | None) -> Range:
    """Parse the range of `--offsets`. None is all. Raises UsageError."""
    if text is None:
        return Range()
    found = parse_range(text, int, "--offsets")
    if min(each for each in found if each is not None) < 0:
        raise UsageError(f"--offsets {text}: no offset is below 0")
    return found


def parse_times(text: str | None) -> Range:
    """Parse the range of `--times`: milliseconds since 1970 or ISO 8601. None is all.

    Raises:
        UsageError: as `parse_range`.
    """
    return Range() if text is None else parse_range(text, parse_time_ms, "--times")


_SIZE = re.compile(r"(\d+(?:\.\d+)?) *([KMGTPE]?)(?:i?B)?", re.IGNORECASE)


def parse_size(text: str) -> int:
    """Return the bytes of a size: `1048576`, `500M` or `1.5 GiB`. Units are powers of 1024.

    Raises:
        UsageError: the text is none of these.
    """
    found = _SIZE.fullmatch(text.strip())
    if found is None:
        raise UsageError(f"not a size: {text!r}", next_step="bytes, or a size such as 500M or 2G")
    power = " KMGTPE".index(found[2].upper() or " ")
    return int(float(found[1]) * 1024**power) if "." in found[1] else int(found[1]) << 10 * power


# -- options


class EngineName(StrEnum):
    """The values of `--engine`."""

    AUTO = "auto"
    LOCAL = "local"
    SPARK = "spark"


class ReportFormat(StrEnum):
    """The values of `--to-format`. Spark writes the last two, see `eoctl.spark.tables`."""

    PARQUET = "parquet"
    DELTA = "delta"
    ICEBERG = "iceberg"


class Commit(StrEnum):
    """The time at which a consumer's position is saved, which decides the effect of a crash.

    - before: the position is saved, then the records are passed on. A crash between the two loses
      the records that were to be passed on.
    - after: the records are passed on and acknowledged, then the position is saved. A crash between
      the two delivers them again.
    - atomic: the program saves its new state with the position in one file, and starts from it. A
      crash leaves both as they were, and neither loses nor repeats records.
    """

    BEFORE = "before"
    AFTER = "after"
    ATOMIC = "atomic"


class OfferUntil(StrEnum):
    """The end of the records that are offered."""

    HW = "hw"
    LOG_END = "log-end"


class OnDamage(StrEnum):
    """The behaviour of a reader at damage."""

    STOP = "stop"
    SKIP = "skip"


class Compare(StrEnum):
    """The data that a copy compares at its end."""

    RUN = "run"  # the data this run has copied
    ALL = "all"  # the data of the session, from its beginning on
    NONE = "none"


class Fsync(StrEnum):
    """The values of `--fsync`, equal to `FlushPolicy`, whose module loads much more."""

    BATCH = "batch"
    SEGMENT = "segment"
    NEVER = "never"


Paths = Annotated[
    list[str] | None,
    argument(metavar="[PATH]...", help="Partition directories or log dirs."),
]
ServerProperties = Annotated[
    str | None,
    advanced_option(metavar="FILE", help="Take the log dirs from a broker's configuration."),
]
TABLE_OR_TEXT = "table on a terminal, text in a pipe"
Topics = Annotated[
    list[str] | None,
    records_option("--topic", metavar="TOPIC", help="Only partitions of this topic. Repeatable."),
]
TopicPatterns = Annotated[
    list[str] | None,
    records_option("--topic", metavar="TOPIC", help="Only these topics, by name or pattern."),
]
TERMINAL_ROWS = 20  # of each kind, on a terminal, without --limit
TERMINAL_KEY = 16  # characters of a key, on a terminal
Limit = Annotated[
    int | None,
    output_option(
        min=0,
        metavar="N",
        help="Print at most N rows of each kind.",
        show_default=f"{TERMINAL_ROWS} on a terminal",
    ),
]
Offsets = Annotated[
    str | None, records_option(metavar="A..B", help="Only offsets A to B, both included.")
]
Times = Annotated[
    str | None,
    records_option(
        metavar="A..B", help="Only timestamps A to B, in ms or ISO 8601, both included."
    ),
]
Output = Annotated[
    OutputFormat,
    output_option("--output", "-o", help="Output format.", show_default=TABLE_OR_TEXT),
]
KafkaOutput = Annotated[
    OutputFormat,
    output_option(
        "--output",
        "-o",
        help="Output format. text is as in kafka-dump-log.",
        show_default=TABLE_OR_TEXT,
    ),
]
MaxBatchBytes = Annotated[
    int | None,
    advanced_option(
        min=1, metavar="BYTES", help="Largest batch to decompress.", show_default="256 MiB"
    ),
]
Raw = Annotated[
    bool, output_option("--raw", help="On a terminal, do not escape control characters in records.")
]
Apply = Annotated[
    bool, safety_option("--apply", help="Make the change. Without it only the plan is shown.")
]
SavePlan = Annotated[
    str | None, safety_option(metavar="FILE", help="Write the plan to FILE, for eoctl apply.")
]
BackupDir = Annotated[
    str | None,
    safety_option(
        metavar="DIR", help="Where journal and backups go.", show_default="LOG-DIR.eoctl"
    ),
]
NoBackup = Annotated[
    bool, safety_option("--no-backup", help="Keep no backup. The change cannot be undone.")
]
AcceptLoss = Annotated[bool, safety_option("--i-accept-the-loss", help="Confirms --no-backup.")]
BrokerIsStopped = Annotated[
    bool,
    safety_option(
        "--broker-is-stopped", help="Confirms that no broker runs, where files cannot be locked."
    ),
]
METADATA_DIR = advanced_option(
    metavar="DIR", help="Log dir with __cluster_metadata-0, or that directory."
)
MetadataDir = Annotated[str | None, METADATA_DIR]
Now = Annotated[
    str | None,
    advanced_option(metavar="TIME|wall|dir", help="The clock for expiry.", show_default="wall"),
]
ProducerExpiryMs = Annotated[
    int | None,
    advanced_option(
        min=0,
        metavar="MS",
        help="producer.id.expiration.ms of the broker.",
        show_default="86400000",
    ),
]
# For logs that are appended to.
WriteNow = Annotated[
    str | None, advanced_option(metavar="TIME|wall|dir", help="The clock.", show_default="wall")
]
FsyncChoice = Annotated[Fsync, advanced_option("--fsync", help="When the log is synced to disk.")]
LeaderEpoch = Annotated[
    int | None,
    advanced_option(
        min=0,
        max=INT32_MAX,
        metavar="N",
        help="Leader epoch of the batches.",
        show_default="the last epoch of the log",
    ),
]
SegmentBytes = Annotated[
    int | None,
    advanced_option(
        min=1,
        max=INT32_MAX,
        metavar="N",
        help="segment.bytes of the topic.",
        show_default="the topic's",
    ),
]
IndexIntervalBytes = Annotated[
    int | None,
    advanced_option(
        min=0,
        max=INT32_MAX,
        metavar="N",
        help="index.interval.bytes of the topic.",
        show_default="the topic's",
    ),
]
IndexMaxBytes = Annotated[
    int | None,
    advanced_option(
        min=24,
        max=INT32_MAX,
        metavar="N",
        help="segment.index.bytes of the topic.",
        show_default="the topic's",
    ),
]
# For files of a new cluster.
ClusterId = Annotated[str | None, option(metavar="ID", help="cluster.id. A new id if omitted.")]
DirectoryId = Annotated[str | None, option(metavar="ID", help="directory.id. A new id if omitted.")]
Standalone = Annotated[
    str | None,
    option(
        metavar="NAME://HOST:PORT",
        help="A dynamic quorum. This node is its only voter, and listens there.",
    ),
]
TopicId = Annotated[
    str | None, advanced_option(metavar="ID", help="Topic id for a directory without one.")
]
SingleCopy = Annotated[bool, safety_option("--single-copy", help="No other replica will be kept.")]
Replicated = Annotated[
    bool, safety_option("--replicated", help="Another broker has an in-sync replica.")
]
AssumeHw = Annotated[
    int | None,
    advanced_option(
        min=0,
        max=MAX_OFFSET,
        metavar="N",
        help="Use this high watermark instead of the checkpoint.",
    ),
]
CoordinatorDirs = Annotated[
    list[str] | None,
    advanced_option(metavar="DIR", help="Log dir with __consumer_offsets. Repeatable."),
]
SchemaDir = Annotated[
    list[str] | None,
    advanced_option(
        metavar="DIR", help="Log dir with _schemas-0, or files ID.avsc, ID.proto, ID.json."
    ),
]
TargetTopic = Annotated[
    str | None,
    option("--to-topic", metavar="TOPIC", help="Write to all partitions of this topic, by key."),
]
PartitionsCount = Annotated[
    int | None, option(min=1, metavar="N", help="Number of partitions of the topic.")
]
TransactionTimeoutMs = Annotated[
    int,
    advanced_option(min=1, metavar="MS", help="A broker may abort a transaction after this time."),
]
FailOn = Annotated[
    Severity, output_option(help="Exit with 1 for findings of this severity or worse.")
]
EngineChoice = Annotated[
    EngineName, advanced_option("--engine", help="Run in processes on this machine, or in Spark.")
]
Jobs = Annotated[
    int | None,
    advanced_option(
        "--jobs",
        "-j",
        min=0,
        metavar="N",
        help="Most processes. 0 is one for each processor.",
        show_default="0",
    ),
]
Master = Annotated[
    str | None, advanced_option(metavar="URL", help="Master of Spark.", show_default="local[*,4]")
]
Conf = Annotated[
    list[str] | None,
    advanced_option(metavar="NAME=VALUE", help="A Spark setting. Repeatable."),
]


def process_count(jobs: int | None) -> int:
    """Return the number of processes of `--jobs`, by default one for each usable processor."""
    return jobs or len(os.sched_getaffinity(0))


def given_paths(
    paths: Iterable[str] | None, server_properties: str | None, topics: Sequence[str] | None = None
) -> list[str]:
    """Return the paths of a command line, and the log dirs of a broker's configuration after them.

    With topics, the log dirs are replaced by the directories of their partitions.

    Raises:
        AccessError, CorruptError: the configuration cannot be read or parsed.
        UsageError: there is no partition of these topics, or a URI is given with topics.
    """
    from storage.dirs.discovery import discover, read_server_properties
    from storage.files.uris import is_uri

    given = list(paths or ())
    if server_properties is not None:
        given += read_server_properties(server_properties).all_dirs
    if not topics or not given:
        return given
    for each in given:
        if is_uri(each) or "*" in each:
            raise UsageError(
                f"{each}: --topic looks into directories here only",
                next_step="name the partition directories: .../TOPIC-*",
            )
    found = [each.partition for each in discover(given).selected]
    chosen = [os.fspath(each.path) for each in found if each.name.topic in topics]
    if not chosen:
        raise UsageError(f"no partition of {', '.join(topics)} there")
    return chosen
