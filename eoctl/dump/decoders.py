"""Keys and values as text: UTF-8, Kafka's own decoder classes, or an internal topic's records."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eoctl.dump.options import Decoder, ValueDecoder
from storage.errors import CorruptError
from storage.formats.java_text import kafka_text

if TYPE_CHECKING:
    from eoctl.dump.options import DumpOptions
    from storage.log.segment import LogRecord

TOPIC_DECODERS = {
    "__consumer_offsets": Decoder.OFFSETS,
    "__transaction_state": Decoder.TRANSACTION_LOG,
    "__cluster_metadata": Decoder.CLUSTER_METADATA,
    "__remote_log_metadata": Decoder.REMOTE_LOG_METADATA,
    "__share_group_state": Decoder.SHARE_GROUP_STATE,
}


def decoder_of_path(path: str) -> Decoder | None:
    """Guess the decoder by the directory's topic name; `.checkpoint` files are cluster metadata."""
    if path.endswith(".checkpoint"):
        return Decoder.CLUSTER_METADATA
    parts = path.split("/")
    topic = parts[-2].rpartition("-")[0] if len(parts) > 1 else ""
    return TOPIC_DECODERS.get(topic)


def contents_of(record: LogRecord, options: DumpOptions) -> tuple[str | None, str | None]:
    """Key and payload of a data record as the tool prints them; None is left out.

    Raises:
        FormatError: the decoder cannot start on it (a coordinator record without a key).
    """
    decoded = decode_internal(record, options.decoder, show_secrets=options.show_secrets)
    if decoded is not None:
        return decoded
    return (
        decode_plain(record.key, options.key_decoder),
        decode_plain(record.value, options.value_decoder),
    )


def decode_internal(
    record: LogRecord, decoder: Decoder | None, *, show_secrets: bool = False
) -> tuple[str | None, str | None] | None:
    """Key and payload of an internal topic's record, None when `decoder` is not for one."""
    if decoder is Decoder.OFFSETS:
        from storage.formats.consumer_offsets import describe_record
    elif decoder is Decoder.TRANSACTION_LOG:
        from storage.formats.transaction_state import describe_record
    elif decoder is Decoder.SHARE_GROUP_STATE:
        from storage.formats.share_group_state import describe_record
    elif decoder is Decoder.REMOTE_LOG_METADATA:
        from storage.formats.remote_log_metadata import describe_record
    elif decoder is Decoder.CLUSTER_METADATA:
        from storage.formats import cluster_metadata

        return cluster_metadata.describe_record(
            record.offset, record.key, record.value, redact=not show_secrets
        )
    else:
        return None
    return describe_record(record.offset, record.key, record.value)


def decode_plain(data: bytes | None, decoder: ValueDecoder) -> str | None:
    """Text of a key or value under one of Kafka's decoder classes.

    DefaultDecoder is an object's identity in Java ("[B@1b2c3d"); here it is hexadecimal.

    Raises:
        CorruptError: too short for a number.
    """
    if data is None:
        return None
    if decoder is ValueDecoder.STRING:
        return kafka_text(data)
    if decoder is ValueDecoder.DEFAULT:
        return data.hex()
    width = 8 if decoder is ValueDecoder.LONG else 4
    if len(data) < width:
        raise CorruptError(
            "too short for a number",
            check_id="BAT-7",
            pos=0,
            expected=f"{width} bytes",
            found=f"{len(data)} bytes",
        )
    return str(int.from_bytes(data[:width], "big", signed=True))
