"""The files of a broker, read and written byte for byte.

What a log dir holds, and nothing of what to do about it.

From the entry down: state_file, producer_ids, split_pruning, coordinator, group_commits, keyed_log,
splits, places, writer, log_tail, remote_places, client_batch, local_places, partition, place_files,
listing, log_config, tiering, acknowledged, cluster_image, discovery, lookup, partition_files,
log_dir, broker_lock, partition_store, batch_run, decoded_records, fsio, markers, remote_file,
torn_batch, transaction_metadata, file_attributes, file_systems, producer_state, segment,
spliced_file, bounds, java_hash_map, os_errors, positioned_file, record_builder, uris, checksum,
errors, file_names, java_hash, path_globs, segment_indexes, small_file, transactions, value_records,
limits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import os

    from storage.partition import Partition
    from storage.segment import Segment

__all__ = ["open_partition", "open_segment"]


def open_partition(path: str | os.PathLike[str]) -> Partition:
    """Open a partition directory read-only; nothing is locked.

    Raises:
        UsageError: the path leads to no partition, or to several.
        AccessError: it cannot be read.
    """
    from pathlib import Path

    from storage.discovery import select_partition
    from storage.partition import Partition

    return Partition.of(select_partition(Path(path)))


def open_segment(path: str | os.PathLike[str]) -> Segment:
    """Open one `.log` read-only, a context manager; its name tells its base offset.

    Raises:
        AccessError: it cannot be read.
    """
    from storage.segment import open_segment as open_file

    return open_file(path)
