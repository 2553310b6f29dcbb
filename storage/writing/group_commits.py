"""Committed offsets as a group coordinator appends them to `__consumer_offsets`.

Each commit is one batch with a record for each partition, and sequence number 0: no client sent
it, so nobody compares that (PROD-12). In a transaction it is a transactional batch of the producer,
which counts once the COMMIT marker is behind it in the same partition. Source:
OffsetMetadataManager.commitOffset, CoordinatorRuntime.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from storage.formats.consumer_offsets import OffsetKey, encode_offset_key, encode_offset_value
from storage.limits import INT32_MAX
from storage.producers.producer_state import Origin
from storage.writing.record_builder import MAX_BATCH_RECORDS, BatchBuilder, ProducerIdentity

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from storage.formats.consumer_offsets import OffsetCommit
    from storage.producers.transaction_metadata import ProducerIdAndEpoch
    from storage.writing.writer import Appended, PartitionWriter


def append_records(
    writer: PartitionWriter,
    records: Iterable[tuple[bytes, bytes]],
    *,
    now_ms: int,
) -> None:
    """Append records of one group, keys and values: one batch, or as many as the topic asks for.

    Raises:
        AppendError, AccessError: as `PartitionWriter.append`.
    """
    builder = BatchBuilder(batch_bytes=writer.config.max_message_bytes)

    def send() -> None:
        batch = builder.build(ProducerIdentity(base_sequence=0), is_transactional=False)
        writer.append(batch, origin=Origin.COORDINATOR)

    for key, value in records:
        if not builder.add(key, value, now_ms):
            send()
            builder.add(key, value, now_ms)
    if len(builder):
        send()


def append_offsets(
    writer: PartitionWriter,
    offsets: Mapping[OffsetKey, OffsetCommit],
    *,
    now_ms: int,
    producer: ProducerIdAndEpoch | None = None,
) -> Appended:
    """Commit offsets, with a `producer` in its transaction.

    Args:
        writer: of the partition of `__consumer_offsets` that the group belongs to.
        offsets: at least one.
        now_ms: the time of the records.
        producer: whose transaction they belong to; the partition was added to it.

    Raises:
        AppendError, AccessError: as `PartitionWriter.append`.
    """
    builder = BatchBuilder(batch_bytes=INT32_MAX, batch_records=MAX_BATCH_RECORDS)
    for key, value in offsets.items():
        builder.add(encode_offset_key(key), encode_offset_value(value), now_ms)
    identity = ProducerIdentity(base_sequence=0)
    if producer is not None:
        identity = ProducerIdentity(*producer, base_sequence=0)
    batch = builder.build(identity, is_transactional=producer is not None)
    return writer.append(batch, origin=Origin.COORDINATOR)
