"""A real client (librdkafka through confluent-kafka) with the few calls that tests need.

Every call waits for its result; what the broker refuses is raised as KafkaException.
"""

from __future__ import annotations

import base64
import json
import time
from typing import TYPE_CHECKING, Any, NamedTuple

from confluent_kafka import (
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._listoffsets import OffsetSpec
from confluent_kafka.cimpl import NewTopic

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

TIMEOUT_S = 60.0
END_OF_PARTITION = KafkaError._PARTITION_EOF  # an error that tells a consumer that it has all
READ_COMMITTED = "read_committed"
READ_UNCOMMITTED = "read_uncommitted"


class Outgoing(NamedTuple):
    """A record to produce; `timestamp_ms` 0: the client's clock."""

    topic: str
    partition: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp_ms: int = 0


class Incoming(NamedTuple):
    """A record that a consumer got; `timestamp_type` 1 is CreateTime, 2 LogAppendTime."""

    offset: int
    timestamp_type: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


class Consumed(NamedTuple):
    """All that a consumer gets of a partition, and where its reading started and ended."""

    records: list[Incoming]
    log_start_offset: int
    end_offset: int


def _settings(bootstrap: str, **settings: str | int) -> dict[str, str | int | float | bool]:
    """Librdkafka's settings, written with `_` for `.`. It is quiet: what fails is raised."""
    named = {name.replace("_", "."): value for name, value in settings.items()}
    return {"bootstrap.servers": bootstrap, "log_level": 0, **named}


def create_topics(bootstrap: str, topics: Mapping[str, tuple[int, Mapping[str, str]]]) -> None:
    """Create topics: name -> (number of partitions, topic settings)."""
    admin = AdminClient(_settings(bootstrap))
    new = [
        NewTopic(name, num_partitions=count, replication_factor=1, config=dict(settings))
        for name, (count, settings) in topics.items()
    ]
    for future in admin.create_topics(new, operation_timeout=TIMEOUT_S).values():
        future.result(TIMEOUT_S)
    deadline_s = time.monotonic() + TIMEOUT_S
    while True:  # the controller answers before the broker has made the logs
        known = admin.list_topics(timeout=TIMEOUT_S).topics
        if all(
            name in known
            and len(known[name].partitions) == count
            and all(part.leader >= 0 for part in known[name].partitions.values())
            for name, (count, _) in topics.items()
        ):
            return
        if time.monotonic() > deadline_s:
            raise TimeoutError(f"no leaders for {sorted(topics)}")
        time.sleep(0.05)


def producer(bootstrap: str, **settings: str | int) -> Producer:
    """A producer; settings are librdkafka's with `_` for `.`: `enable_idempotence=True`."""
    return Producer(_settings(bootstrap, **{"linger_ms": 5, **settings}))


def send(client: Producer, records: Iterable[Outgoing]) -> list[tuple[str, int, int]]:
    """Produce `records` and flush; returns (topic, partition, offset) of each in their order.

    Raises:
        KafkaException: a record was refused, or not acknowledged in time.
    """
    acknowledged: dict[int, tuple[str, int, int]] = {}
    errors: list[KafkaError] = []
    number = -1
    for number, record in enumerate(records):

        def done(error: KafkaError | None, message: Message, number: int = number) -> None:
            if error is not None:
                errors.append(error)
            else:
                where: Any = (message.topic(), message.partition(), message.offset())
                acknowledged[number] = where

        client.produce(
            record.topic,
            key=record.key,
            value=record.value,
            partition=record.partition,
            headers=list(record.headers),
            timestamp=record.timestamp_ms,
            on_delivery=done,
        )
        client.poll(0)
    unsent_count = client.flush(TIMEOUT_S)
    if errors:
        raise KafkaException(errors[0])
    if unsent_count or len(acknowledged) != number + 1:
        raise TimeoutError(f"{unsent_count} records were not acknowledged")
    return [acknowledged[index] for index in range(number + 1)]


def transactional_producer(
    bootstrap: str, transactional_id: str, **settings: str | int
) -> Producer:
    """A producer that has its producer id and may begin transactions."""
    client = producer(bootstrap, transactional_id=transactional_id, **settings)
    client.init_transactions(TIMEOUT_S)
    return client


def transact(
    client: Producer,
    records: Iterable[Outgoing],
    *,
    commit: bool,
    offsets: Mapping[tuple[str, int], int] | None = None,
    group: str = "in-transaction",
) -> None:
    """One transaction with `records` and the offsets of `group`, committed or aborted."""
    client.begin_transaction()
    send(client, records)
    if offsets:
        parts = [TopicPartition(topic, part, at) for (topic, part), at in offsets.items()]
        with_group = Consumer(
            {"bootstrap.servers": "127.0.0.1:9", "group.id": group, "log_level": 0}
        )
        client.send_offsets_to_transaction(parts, with_group.consumer_group_metadata(), TIMEOUT_S)
        with_group.close()
    if commit:
        client.commit_transaction(TIMEOUT_S)
    else:
        client.abort_transaction(TIMEOUT_S)


def consume(bootstrap: str, topic: str, partition: int, *, isolation: str) -> Consumed:
    """Everything that a consumer with this isolation level gets, from the log's start to its end.

    The end is the high watermark, or the last stable offset under read_committed.
    """
    consumer = Consumer(
        _settings(
            bootstrap,
            group_id="eoctl-tests",
            enable_auto_commit=False,
            enable_partition_eof=True,
            fetch_wait_max_ms=10,  # how long a broker has nothing to say before it is the end
            isolation_level=isolation,
            auto_offset_reset="earliest",
        )
    )
    try:
        where = TopicPartition(topic, partition)
        start_offset, _ = consumer.get_watermark_offsets(where, timeout=TIMEOUT_S)
        consumer.assign([TopicPartition(topic, partition, start_offset)])
        records: list[Incoming] = []
        deadline_s = time.monotonic() + TIMEOUT_S
        while True:
            if time.monotonic() > deadline_s:
                raise TimeoutError(f"{topic}-{partition} was not read to its end in time")
            # It waits so long for 500 messages, the end being one.
            for message in consumer.consume(500, timeout=0.1):
                error = message.error()
                if error is None:
                    records.append(_incoming(message))
                elif error.code() == END_OF_PARTITION:
                    return Consumed(records, start_offset, message.offset() or 0)
                else:
                    raise KafkaException(error)
    finally:
        consumer.close()


def _incoming(message: Message) -> Incoming:
    got: Any = message  # its types allow what an error without a record has
    headers = tuple((name, value) for name, value in got.headers() or ())
    timestamp_type, timestamp_ms = got.timestamp()
    where = (got.offset(), timestamp_type, timestamp_ms)
    return Incoming(*where, got.key(), got.value(), headers)


def from_json(line: bytes) -> Incoming:
    """Return a row of `eoctl consume --output jsonl --bytes base64` as the client gives a record."""
    row = json.loads(line)

    def decoded(text: str | None) -> bytes | None:
        return None if text is None else base64.b64decode(text)

    return Incoming(
        row["offset"],
        {"CreateTime": 1, "LogAppendTime": 2}[row["timestamp_type"]],
        row["timestamp_ms"],
        decoded(row["key"]),
        decoded(row["value"]),
        tuple((name, decoded(value)) for name, value in row["headers"]),
    )


def delete_groups(bootstrap: str, groups: list[str]) -> None:
    """Delete groups without members, with their offsets."""
    admin = AdminClient(_settings(bootstrap))
    for future in admin.delete_consumer_groups(groups).values():
        future.result(TIMEOUT_S)


def delete_records(bootstrap: str, offsets: Mapping[tuple[str, int], int]) -> None:
    """Move log starts: (topic, partition) -> new log start offset."""
    admin = AdminClient(_settings(bootstrap))
    parts = [TopicPartition(topic, part, at) for (topic, part), at in offsets.items()]
    for future in admin.delete_records(parts).values():
        future.result(TIMEOUT_S)


def delete_topics(bootstrap: str, topics: list[str]) -> None:
    """Delete topics; the broker renames their directories first."""
    admin = AdminClient(_settings(bootstrap))
    for future in admin.delete_topics(topics, operation_timeout=TIMEOUT_S).values():
        future.result(TIMEOUT_S)


def commit_offsets(bootstrap: str, group: str, offsets: Mapping[tuple[str, int], int]) -> None:
    """Commit offsets of a group that has no members: (topic, partition) -> offset."""
    consumer = Consumer(_settings(bootstrap, group_id=group))
    try:
        parts = [TopicPartition(topic, part, at) for (topic, part), at in offsets.items()]
        consumer.commit(offsets=parts, asynchronous=False)
    finally:
        consumer.close()


def end_offsets(
    bootstrap: str, partitions: Iterable[tuple[str, int]]
) -> dict[tuple[str, int], int]:
    """The end offsets of these, asked for at once."""
    admin = AdminClient(_settings(bootstrap))
    latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]
    asked = {TopicPartition(*each): latest for each in partitions}
    return {
        (where.topic, where.partition): future.result(TIMEOUT_S).offset
        for where, future in admin.list_offsets(asked).items()
    }


def committed_offset(bootstrap: str, group: str, topic: str, partition: int) -> int:
    """The committed offset of a group; negative if it has none."""
    consumer = Consumer(_settings(bootstrap, group_id=group))
    try:
        (found,) = consumer.committed([TopicPartition(topic, partition)], timeout=TIMEOUT_S)
        return int(found.offset)
    finally:
        consumer.close()


def join_group(bootstrap: str, group: str, topic: str, *, protocol: str = "classic") -> int:
    """Join a group, read `topic` to its end, commit, and leave; returns how many records came.

    `protocol` "classic" or "consumer" (KIP-848): they leave different records in
    `__consumer_offsets`.
    """
    consumer = Consumer(
        _settings(
            bootstrap,
            group_id=group,
            group_protocol=protocol,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            enable_partition_eof=True,
        )
    )
    records_count = 0
    ended: set[int] = set()
    deadline_s = time.monotonic() + TIMEOUT_S
    try:
        parts = set(consumer.list_topics(topic, timeout=TIMEOUT_S).topics[topic].partitions)
        consumer.subscribe([topic])
        while ended != parts:
            if time.monotonic() > deadline_s:
                raise TimeoutError(f"group {group} did not read {topic} to its end in time")
            message = consumer.poll(0.2)
            if message is None:
                continue
            error = message.error()
            if error is None:
                records_count += 1
            elif error.code() == END_OF_PARTITION:
                ended.add(message.partition() or 0)
            else:
                raise KafkaException(error)
        if records_count:
            consumer.commit(asynchronous=False)
    finally:
        consumer.close()
    return records_count
