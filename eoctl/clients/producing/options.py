"""What a producer is told to do."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from eoctl.clients.partitions.open_partition import WriteOptions
from eoctl.clients.partitions.target import TargetOptions
from eoctl.clients.text.inputs import BytesAs, InputFormat
from storage.writing.record_builder import DEFAULT_BATCH_BYTES, MAX_BATCH_RECORDS

if TYPE_CHECKING:
    from eoctl.clients.coordinators.transactional import TransactionalOptions
    from eoctl.clients.producing.link import Faults
    from eoctl.clients.producing.topic_producer import Transactions


class ProduceOptions(NamedTuple):
    """What the command line says; None: the topic's, the log's, or Kafka's value."""

    target: TargetOptions = TargetOptions()
    write: WriteOptions = WriteOptions()
    topic: str | None = None
    partitions_count: int | None = None
    now: str | None = None
    input_format: InputFormat = InputFormat.LINES
    bytes_as: BytesAs = BytesAs.TEXT
    key_separator: bytes | None = None
    batch_bytes: int = DEFAULT_BATCH_BYTES
    batch_records: int = MAX_BATCH_RECORDS
    timestamp_ms: int | None = None
    producer_id: int | None = None
    producer_epoch: int | None = None
    base_sequence: int | None = None
    transactions: Transactions | None = None
    transactional: TransactionalOptions | None = None
    lease: str | None = None
    session: str | None = None
    in_flight: int = 1
    faults: Faults | None = None
    acks_to: str | None = None
