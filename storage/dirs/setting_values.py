"""The values that a broker takes for the settings of a topic (Kafka's LogConfig).

A controller checks them when a client sets them. In a snapshot it takes what is there, and a
broker that finds a value it cannot read does not open the topic's logs: so we check them too.
"""

from __future__ import annotations

from typing import NamedTuple

from storage.errors import UsageError
from storage.limits import INT32_MAX, INT64_MAX


class Numbers(NamedTuple):
    """Whole numbers from `low` to `high`."""

    low: int
    high: int


class Choices(NamedTuple):
    """One of some words; with `is_list` several of them, with commas between."""

    words: tuple[str, ...]
    is_list: bool = False


class Fraction(NamedTuple):
    """A number from 0 to 1."""


class Text(NamedTuple):
    """Anything: what is right is not known here."""


_BOOLEAN = Choices(("true", "false"))


def _int(low: int, high: int = INT32_MAX) -> Numbers:
    return Numbers(low, high)


def _long(low: int) -> Numbers:
    return Numbers(low, INT64_MAX)


# As Kafka 4.3.1 has them (LogConfig.configDefCopy), but for those that only its own tests set.
SETTING_VALUES: dict[str, Numbers | Choices | Fraction | Text] = {
    "cleanup.policy": Choices(("delete", "compact"), is_list=True),
    "compression.gzip.level": _int(-1, 9),
    "compression.lz4.level": _int(1, 17),
    "compression.type": Choices(("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")),
    "compression.zstd.level": _int(-131_072, 22),
    "delete.retention.ms": _long(0),
    "file.delete.delay.ms": _long(0),
    "flush.messages": _long(1),
    "flush.ms": _long(1),
    "follower.replication.throttled.replicas": Text(),
    "index.interval.bytes": _int(0),
    "leader.replication.throttled.replicas": Text(),
    "local.retention.bytes": _long(-2),
    "local.retention.ms": _long(-2),
    "max.compaction.lag.ms": _long(1),
    "max.message.bytes": _int(0),
    "message.timestamp.after.max.ms": _long(0),
    "message.timestamp.before.max.ms": _long(0),
    "message.timestamp.type": Choices(("CreateTime", "LogAppendTime")),
    "min.cleanable.dirty.ratio": Fraction(),
    "min.compaction.lag.ms": _long(0),
    "min.insync.replicas": _int(1),
    "preallocate": _BOOLEAN,
    "remote.log.copy.disable": _BOOLEAN,
    "remote.log.delete.on.disable": _BOOLEAN,
    "remote.storage.enable": _BOOLEAN,
    "retention.bytes": _long(-INT64_MAX - 1),
    "retention.ms": _long(-1),
    "segment.bytes": _int(1 << 20),
    "segment.index.bytes": _int(4),
    "segment.jitter.ms": _long(0),
    "segment.ms": _long(1),
    "unclean.leader.election.enable": _BOOLEAN,
}


def require_topic_setting(name: str, value: str) -> None:
    """See that a broker knows a setting and takes its value. Raises UsageError."""
    kind = SETTING_VALUES.get(name)
    if kind is None:
        raise UsageError(
            f"{name}: no setting of a topic", next_step=f"one of {', '.join(SETTING_VALUES)}"
        )
    if isinstance(kind, Text):
        return
    if isinstance(kind, Choices):
        words = value.split(",") if kind.is_list else [value]
        allowed = f"{' or '.join(kind.words)}{', or several with commas' if kind.is_list else ''}"
        is_right = all(each.strip() in kind.words for each in words)
    elif isinstance(kind, Fraction):
        allowed = "0 to 1"
        is_right = value.replace(".", "", 1).isdecimal() and float(value) <= 1
    else:
        allowed = f"{kind.low} to {kind.high}"
        is_right = value.removeprefix("-").isdecimal() and kind.low <= int(value) <= kind.high
    if not is_right:
        raise UsageError(f"{name}={value}: a broker takes {allowed}")
