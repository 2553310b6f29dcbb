"""How far a stream has come in each partition, as Spark keeps it in the checkpoint of a query.

    {"1/txn-0": {"offset": 311, "epoch": 4, "topic_id": "..."}}

The name is that of the broker and of the partition, so that a broker may move it to another of its
disks meanwhile. `offset` is the next one to be given; `epoch` the leader epoch of the record before
it and `topic_id` its topic's, by which a log is known to be the one that was read (KIP-320,
KIP-516): -1 and "" where the directory does not tell.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from eoctl.spark.rows.kafka_options import DataLossError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from eoctl.spark.streaming.reach import Reach

NO_EPOCH = -1
GO_ON = '.option("failOnDataLoss", "false") goes on with what is there'


class StreamOffset(NamedTuple):
    """Where a stream stands in one partition."""

    offset: int
    epoch: int = NO_EPOCH
    topic_id: str = ""


Offsets = dict[str, StreamOffset]


def encode_offsets(offsets: Mapping[str, StreamOffset]) -> dict[str, Any]:
    """Return what Spark keeps."""
    return {name: offsets[name]._asdict() for name in sorted(offsets)}


def parse_offsets(kept: Mapping[str, Any]) -> Offsets:
    """Read what Spark has kept."""
    return {
        name: StreamOffset(int(each["offset"]), int(each["epoch"]), str(each["topic_id"]))
        for name, each in kept.items()
    }


def offset_at(reach: Reach, offset: int) -> StreamOffset:
    """Return where a stream stands that has read a partition up to an offset."""
    epoch = NO_EPOCH
    for entry in reach.epochs:
        if entry.start_offset < offset:
            epoch = entry.epoch
    return StreamOffset(offset, epoch, reach.topic_id)


def loss_since(stood: StreamOffset, reach: Reach) -> str | None:
    """Say in words what of a partition is gone since a stream stood there; None: nothing."""
    if stood.topic_id and reach.topic_id and stood.topic_id != reach.topic_id:
        return (
            f"the topic was deleted and made again: its id was {stood.topic_id} at offset"
            f" {stood.offset}, and is {reach.topic_id}"
        )
    if stood.offset < reach.first_offset:
        return (
            f"the query goes on from offset {stood.offset}, and the log begins at"
            f" {reach.first_offset}"
        )
    if stood.offset > reach.end_offset and stood.offset > reach.log_end_offset():
        return (
            f"the query goes on from offset {stood.offset}, and the log ends at"
            f" {reach.log_end_offset()}"
        )
    later = (each for each in reach.epochs if each.epoch > stood.epoch != NO_EPOCH)
    newer = next(later, None)
    if newer is not None and newer.start_offset < stood.offset:
        return (
            f"the query goes on from offset {stood.offset} of leader epoch {stood.epoch}, which"
            f" ends at {newer.start_offset}: the records behind that were replaced"
        )
    return None


def fail_on_loss(path: str, words: str) -> DataLossError:
    """Make the error of a query that cannot go on without passing over records."""
    return DataLossError(f"{path}: {words}", next_step=GO_ON)
