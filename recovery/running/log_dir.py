"""A log dir while its broker runs: replicas, checkpoints, the marker of a clean stop.

  replication-offset-checkpoint     high watermarks, every replica.high.watermark.checkpoint.
                                    interval.ms (5 s), and at a clean stop
  recovery-point-offset-checkpoint  every log.flush.offset.checkpoint.interval.ms (60 s): what was
                                    synced as a segment was closed; all of the log at a clean stop
  log-start-offset-checkpoint       with it
  .kafka_cleanshutdown              last at a clean stop, with the broker epoch; first thing gone at
                                    a start
Source: LogManager, ReplicaManager.checkpointHighWatermarks, KafkaBroker.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from recovery.running.running_log import RunningLog
from storage.dirs.log_dir import MAX_FILE_BYTES, read_log_dir
from storage.errors import FormatError
from storage.file_names import (
    CLEAN_SHUTDOWN_NAME,
    HIGH_WATERMARK_NAME,
    LOG_START_NAME,
    RECOVERY_POINT_NAME,
    TopicPartition,
)
from storage.files import fsio
from storage.files.small_file import read_small_file
from storage.formats.checkpoint import OffsetCheckpointEntry, encode_offset_checkpoint
from storage.formats.clean_shutdown import (
    CleanShutdown,
    encode_clean_shutdown,
    parse_clean_shutdown,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from recovery.running.running_log import LogTerms


class RunningLogDir:
    """The log dir of a broker that runs; the caller has its lock.

    Attributes:
        was_clean: there was the marker of a clean stop.
        stopped_epoch: the broker epoch in it; None unknown.
        replicas: by partition.
        high_watermarks: as checkpointed before the start.
    """

    def __init__(self, path: str, partitions: Iterable[TopicPartition], terms: LogTerms) -> None:
        """Start: take the marker away, load all replicas.

        Raises:
            RefusedError: a replica is damaged where a broker would not go on.
            AccessError: something cannot be read or written.
        """
        self.path = path
        self._terms = terms
        found = read_log_dir(path)
        self.was_clean = found.clean_shutdown
        self.stopped_epoch = _stopped_epoch(path) if found.clean_shutdown else None
        self.high_watermarks: dict[TopicPartition, int] = dict(found.high_watermarks or {})
        self._written: dict[str, bytes] = {}
        if self.was_clean:
            fsio.remove_clean_marker(terms.fs, path)
        self.replicas = {
            key: RunningLog(str(Path(path, f"{key.topic}-{key.partition}")), terms)
            for key in sorted(partitions)
        }

    def checkpoint_high_watermarks(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Write what is known of them now. Raises AccessError."""
        self._checkpoint(HIGH_WATERMARK_NAME, offsets)

    def checkpoint_recovery_points(self) -> None:
        """Write what is durable of each log: its closed segments. Raises AccessError."""
        points = {key: log.base_offset for key, log in self.replicas.items()}
        self._checkpoint(RECOVERY_POINT_NAME, points)
        self._checkpoint(LOG_START_NAME, {})

    def _checkpoint(self, name: str, offsets: Mapping[TopicPartition, int]) -> None:
        entries = [OffsetCheckpointEntry(*key, offset) for key, offset in sorted(offsets.items())]
        content = encode_offset_checkpoint(entries)
        path = f"{self.path}/{name}"
        # A cut lowers a checkpoint by itself: what was written last may not be there any more.
        if self._written.get(name) != content or _content(path) != content:
            fsio.replace_file(self._terms.fs, path, content)
            self._written[name] = content

    def close(self, high_watermarks: Mapping[TopicPartition, int], broker_epoch: int) -> None:
        """Stop cleanly. Raises AccessError."""
        for log in self.replicas.values():
            log.close()
        ends = {key: log.end_offset for key, log in self.replicas.items()}
        self._checkpoint(RECOVERY_POINT_NAME, ends)
        self._checkpoint(LOG_START_NAME, {})
        self.checkpoint_high_watermarks(high_watermarks)
        marker = encode_clean_shutdown(CleanShutdown(0, broker_epoch))
        fsio.replace_file(self._terms.fs, Path(self.path, CLEAN_SHUTDOWN_NAME), marker)

    def abandon(self) -> None:
        """Leave all as it is: the broker was killed."""
        for log in self.replicas.values():
            log.abandon()


def _content(path: str) -> bytes | None:
    try:
        return read_small_file(path, MAX_FILE_BYTES)
    except FileNotFoundError:
        return None


def _stopped_epoch(path: str) -> int | None:
    try:
        return parse_clean_shutdown(Path(path, CLEAN_SHUTDOWN_NAME).read_bytes()).broker_epoch
    except FormatError:
        return None
