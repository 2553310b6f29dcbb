"""The options and filters of one `dump-segment` run, and the neighbours of a dumped file."""

from __future__ import annotations

import os
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from eoctl.options import Range
from eoctl.output import OutputFormat
from storage.errors import AccessError, UsageError
from storage.file_names import CLEAN_SHUTDOWN_NAME, META_PROPERTIES_NAME
from storage.formats.compression import DEFAULT_MAX_BATCH_BYTES
from storage.log.decoded_records import BatchOutcome, MarkerIndex
from storage.log.segment import MAX_SEGMENT_BYTES, open_segment, parse_base_offset

if TYPE_CHECKING:
    from storage.kernels.protocol import ScannedBatch, Verdict
    from storage.log.segment import LogRecord, Segment


class Selection(NamedTuple):
    """The batches and records to show, by default all. All conditions must be met."""

    offsets: Range = Range()
    times_ms: Range = Range()
    producer_id: int | None = None
    producer_epoch: int | None = None
    key: bytes | None = None
    only_control: bool = False
    only_aborted: bool = False

    @property
    def is_everything(self) -> bool:
        """True if no filter was given."""
        return self == Selection()

    @property
    def needs_records(self) -> bool:
        """True if a batch requires a look at its records, because no header has a key."""
        return self.key is not None

    def wants_batch(self, batch: ScannedBatch) -> bool:
        """Return whether a batch's header matches.

        The first offset and times of a v0 or v1 wrapper are unknown.
        """
        header = batch.header
        first_offset = header.base_offset if header.magic >= 2 else 0
        first_ms = header.base_timestamp_ms if header.magic >= 2 else -1
        if header.is_log_append_time:
            first_ms = header.max_timestamp_ms
        elif header.delete_horizon_ms is not None:
            first_ms = -1  # the base is in the future, and negative deltas reach back from it
        return (
            self.offsets.meets(first_offset, header.last_offset)
            and self.times_ms.meets(min(first_ms, header.max_timestamp_ms), header.max_timestamp_ms)
            and self.producer_id in (None, header.producer_id)
            and self.producer_epoch in (None, header.producer_epoch)
            and (header.is_control or not self.only_control)
        )

    def wants_record(self, record: LogRecord) -> bool:
        """Return whether a record of a matching batch matches."""
        return (
            self.offsets.holds(record.offset)
            and self.times_ms.holds(record.timestamp_ms)
            and (self.key is None or self.key == record.key)
        )


# -- the options of one `dump-segment` run, checked before any file is opened


KAFKA_MAX_MESSAGE_BYTES = 5 * 1024 * 1024


# Releases whose kafka-dump-log output is known. The newest is the default.
TOOL_RELEASES = ((4, 3), (4, 4))
NAMES_STATUS = (4, 4)  # transactionStatus by name (KAFKA-20712)


def tool_release(option: str | None) -> tuple[int, ...]:
    """Return the release whose output is printed. Raises UsageError: its output is unknown."""
    known = {".".join(map(str, each)): each for each in TOOL_RELEASES}
    if option is None:
        return TOOL_RELEASES[-1]
    if option not in known:
        raise UsageError(
            f"--kafka-release {option}: its kafka-dump-log is unknown",
            next_step=f"one of {', '.join(known)}",
        )
    return known[option]


class Decoder(StrEnum):
    """The content of the keys and values of a log's records."""

    BYTES = "bytes"
    OFFSETS = "offsets"
    TRANSACTION_LOG = "transaction_log"
    CLUSTER_METADATA = "cluster_metadata"
    REMOTE_LOG_METADATA = "remote_log_metadata"
    SHARE_GROUP_STATE = "share_group_state"


class ValueDecoder(StrEnum):
    """The decoder classes of Kafka, by the last part of their name."""

    STRING = "StringDecoder"
    LONG = "LongDecoder"
    INTEGER = "IntegerDecoder"
    DEFAULT = "DefaultDecoder"


class DumpOptions(NamedTuple):
    """The options of a dump, with the names of kafka-dump-log's options if there are any."""

    output: OutputFormat = OutputFormat.TEXT
    deep_iteration: bool = False
    print_data_log: bool = False
    skip_record_metadata: bool = False
    verify_index_only: bool = False
    index_sanity_check: bool = False
    max_bytes: int | None = None  # of each log, None for all of it
    max_message_bytes: int = KAFKA_MAX_MESSAGE_BYTES
    max_batch_bytes: int = DEFAULT_MAX_BATCH_BYTES
    decoder: Decoder | None = None  # None: bytes in text, by topic name in rows
    key_decoder: ValueDecoder = ValueDecoder.STRING
    value_decoder: ValueDecoder = ValueDecoder.STRING
    selection: Selection = Selection()
    show_secrets: bool = False
    names_status: bool = True  # of transactions, as in 4.4, else numbers as before 4.4
    jobs: int = 1

    def end_pos(self, file_bytes: int) -> int:
        """Return the position up to which a log of this size is read."""
        return file_bytes if self.max_bytes is None else min(file_bytes, self.max_bytes)

    @property
    def is_limited(self) -> bool:
        """True if the end of the read part is not the end of the log for the tool."""
        return self.max_bytes not in (None, MAX_SEGMENT_BYTES)

    @property
    def is_text(self) -> bool:
        """True for kafka-dump-log's lines instead of rows."""
        return self.output is OutputFormat.TEXT

    @property
    def is_plain_utf8(self) -> bool:
        """True if keys and values are printed as UTF-8, which the bulk renderer supports."""
        return (
            self.decoder in (None, Decoder.BYTES)
            and self.key_decoder is ValueDecoder.STRING
            and self.value_decoder is ValueDecoder.STRING
        )


def parse_decoder_class(name: str) -> ValueDecoder:
    """Map a Java class name to one of Kafka's own decoders.

    Raises:
        UsageError: it is a class from elsewhere, which requires a JVM.
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


# -- the filters that require more than one header, as a later marker decides a batch's outcome


class BatchFilter:
    """A selection for one `.log`, with the markers in it and in later segments."""

    def __init__(self, selection: Selection, segment: Segment | None = None) -> None:
        self.selection = selection
        self.is_everything = selection.is_everything
        self._markers: MarkerIndex | None = None
        if selection.only_aborted and segment is not None:
            self._markers = _markers_from(segment)

    def wants_batch(self, batch: ScannedBatch) -> bool:
        """Return whether to show a batch."""
        if self.is_everything:
            return True
        if not self.selection.wants_batch(batch):
            return False
        if self._markers is None:
            return True
        return self._markers.outcome(batch.header) is BatchOutcome.ABORTED

    def wants_record(self, record: LogRecord) -> bool:
        """Return whether to show a record of a shown batch."""
        return self.is_everything or self.selection.wants_record(record)


def _markers_from(segment: Segment) -> MarkerIndex:
    markers = MarkerIndex()
    markers.read_segment(segment)
    for path in later_segments(segment.path):
        try:
            with open_segment(path) as later:
                markers.read_segment(later)
        except AccessError:
            break  # deleted by a live broker, so transactions that end later count as open
    return markers


# -- the place of a dumped file, as its neighbours decide which end is normal


LOG_SUFFIX = ".log"
TAIL_CHECK_IDS = ("SEG-5", "SEG-6")


class LogContext(NamedTuple):
    """The neighbours of a `.log` that decide whether its tail is normal (SEG-5, SEG-6)."""

    is_last: bool  # the active segment: no later segment is in its directory
    is_unclean: bool  # in a log dir without the marker of a clean stop: crashed, or live
    is_limited: bool = False  # only the beginning is read, so it may end anywhere
    end_offset: int | None = None  # base offset of the next segment in its directory

    def is_normal(self, verdict: Verdict) -> bool:
        """Return whether a crashed or running broker leaves such a tail."""
        if self.is_limited and verdict.check_id in TAIL_CHECK_IDS:
            return True
        return self.is_last and self.is_unclean and verdict.kind.is_end


def log_context(path: str, *, is_limited: bool = False) -> LogContext:
    """Return the context of a `.log` from its directory and its log dir."""
    file = Path(path)
    partition_dir = file.parent
    log_dir = Path(os.path.realpath(partition_dir)).parent
    is_clean = (log_dir / CLEAN_SHUTDOWN_NAME).exists()
    is_unclean = (log_dir / META_PROPERTIES_NAME).exists() and not is_clean
    later = later_segments(path)
    end_offset = parse_base_offset(os.path.basename(later[0])) if later else None  # noqa: PTH119
    return LogContext(
        is_last=not later, is_unclean=is_unclean, is_limited=is_limited, end_offset=end_offset
    )


def later_segments(path: str) -> list[str]:
    """Return the `.log` files of the same directory with greater base offsets, in order."""
    own_name = os.path.basename(path)  # noqa: PTH119 - keeps the path's own spelling
    if not own_name.endswith(LOG_SUFFIX):
        return []
    directory = os.path.dirname(path)  # noqa: PTH120
    try:
        names = os.listdir(directory or ".")  # noqa: PTH208
    except OSError:
        return []
    later = [each for each in names if each.endswith(LOG_SUFFIX) and each > own_name]
    return [os.path.join(directory, each) for each in sorted(later)]  # noqa: PTH118
