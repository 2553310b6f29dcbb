"""Records what a real client asked for and was told, as a history (eoctl-history)."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any, Self

from tests.kafka import client
from tests.kafka.client import READ_COMMITTED

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from confluent_kafka import KafkaError, Message, Producer


class Recorder:
    """A history that grows: one process sends, others read."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._count = 0
        self._began_s = time.monotonic()
        self._file = path.open("w")
        self._write({"history": "eoctl", "version": 1})

    def _write(self, value: dict[str, Any]) -> None:
        self._file.write(json.dumps(value) + "\n")
        self._file.flush()

    def note(self, kind: str, process: str, number: int, op: str, **fields: Any) -> None:
        at_us = int((time.monotonic() - self._began_s) * 1_000_000)
        self._write(
            {"type": kind, "process": process, "id": number, "time_us": at_us, "op": op, **fields}
        )

    def number(self) -> int:
        self._count += 1
        return self._count

    def happened(self, op: str, **fields: Any) -> None:
        """A fault, or the end of all faults."""
        self.note("info", "nemesis", self.number(), op, **fields)

    def send(
        self, producer: Producer, topic: str, partition: int, values: Iterable[str], **more: str
    ) -> int:
        """Send values, and wait for all answers; returns how many were acknowledged."""
        acknowledged = 0

        def answered(number: int, fields: dict[str, Any]) -> Any:
            def done(error: KafkaError | None, message: Message) -> None:
                nonlocal acknowledged
                if error is None:
                    acknowledged += 1
                    self.note("ok", "producer", number, "send", **fields, offset=message.offset())
                else:  # whether it is there is not known
                    self.note("info", "producer", number, "send", **fields, error=error.name())

            return done

        for value in values:
            number = self.number()
            fields = {"topic": topic, "partition": partition, "value": value, **more}
            self.note("invoke", "producer", number, "send", **fields)
            producer.produce(
                topic, value=value.encode(), partition=partition,
                on_delivery=answered(number, fields),
            )  # fmt: skip
            producer.poll(0)
        if producer.flush(client.TIMEOUT_S):
            raise TimeoutError("records were not answered")
        return acknowledged

    def transact(self, producer: Producer, records: Iterable[tuple[str, int, str]]) -> None:
        """A transaction of (topic, partition, value), committed."""
        number = self.number()
        name = {"transaction": f"x{number}"}
        for kind in ("invoke", "ok"):
            self.note(kind, "producer", number, "begin", **name)
            if kind == "invoke":
                producer.begin_transaction()
        for topic, partition, value in records:
            self.send(producer, topic, partition, [value], **name)
        number = self.number()
        self.note("invoke", "producer", number, "commit", **name)
        producer.commit_transaction(client.TIMEOUT_S)
        self.note("ok", "producer", number, "commit", **name)

    def read(self, bootstrap: str, process: str, topic: str, partition: int, **more: Any) -> int:
        """Read all of a partition, as committed; returns how many records came."""
        number, name = self.number(), f"{topic}-{partition}"
        self.note("invoke", process, number, "poll", seek={name: 0})
        found = client.consume(bootstrap, topic, partition, isolation=READ_COMMITTED)
        records = [[each.offset, (each.value or b"").decode()] for each in found.records]
        self.note(
            "ok", process, number, "poll", records={name: records}, isolation=READ_COMMITTED,
            position={name: found.end_offset}, high_watermark={name: found.end_offset}, **more,
        )  # fmt: skip
        return len(records)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._file.close()
