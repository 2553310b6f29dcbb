"""The options of one `dump-segment` call, checked before any file is opened."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from eoctl.dump.selection import Selection
from eoctl.output import OutputFormat
from storage.errors import UsageError
from storage.formats.compression import DEFAULT_MAX_BATCH_BYTES
from storage.log.segment import MAX_SEGMENT_BYTES

KAFKA_MAX_MESSAGE_BYTES = 5 * 1024 * 1024


class Decoder(StrEnum):
    """What the keys and values of a log's records are."""

    BYTES = "bytes"
    OFFSETS = "offsets"
    TRANSACTION_LOG = "transaction_log"
    CLUSTER_METADATA = "cluster_metadata"
    REMOTE_LOG_METADATA = "remote_log_metadata"
    SHARE_GROUP_STATE = "share_group_state"


class ValueDecoder(StrEnum):
    """The decoder classes that come with Kafka, by the last part of their name."""

    STRING = "StringDecoder"
    LONG = "LongDecoder"
    INTEGER = "IntegerDecoder"
    DEFAULT = "DefaultDecoder"


class DumpOptions(NamedTuple):
    """How files are dumped; names as kafka-dump-log's options where those exist."""

    output: OutputFormat = OutputFormat.TEXT
    deep_iteration: bool = False
    print_data_log: bool = False
    skip_record_metadata: bool = False
    verify_index_only: bool = False
    index_sanity_check: bool = False
    max_bytes: int | None = None  # of each log; None: all, however large it is
    max_message_bytes: int = KAFKA_MAX_MESSAGE_BYTES
    max_batch_bytes: int = DEFAULT_MAX_BATCH_BYTES
    decoder: Decoder | None = None  # None: bytes in text; by the topic's name in rows
    key_decoder: ValueDecoder = ValueDecoder.STRING
    value_decoder: ValueDecoder = ValueDecoder.STRING
    selection: Selection = Selection()
    show_secrets: bool = False
    jobs: int = 1

    def end_pos(self, file_bytes: int) -> int:
        """How far a log of this size is looked at."""
        return file_bytes if self.max_bytes is None else min(file_bytes, self.max_bytes)

    @property
    def is_limited(self) -> bool:
        """Whether the tool takes the end of what it reads for no end of the log."""
        return self.max_bytes not in (None, MAX_SEGMENT_BYTES)

    @property
    def is_text(self) -> bool:
        """kafka-dump-log's lines rather than rows."""
        return self.output is OutputFormat.TEXT

    @property
    def is_plain_utf8(self) -> bool:
        """Keys and values are printed as UTF-8: what the bulk renderer knows."""
        return (
            self.decoder in (None, Decoder.BYTES)
            and self.key_decoder is ValueDecoder.STRING
            and self.value_decoder is ValueDecoder.STRING
        )


def parse_decoder_class(name: str) -> ValueDecoder:
    """Map a Java class name to one of Kafka's own decoders.

    Raises:
        UsageError: it is a class of somebody else's, which needs a JVM.
    """
    short = name.rpartition(".")[2]
    try:
        return ValueDecoder(short)
    except ValueError:
        known = ", ".join(ValueDecoder)
        raise UsageError(
            f"decoder class {name} cannot be loaded without Java; known: {known}",
            next_step="--output jsonl gives keys and values as they are, for a decoder of your own",
        ) from None
