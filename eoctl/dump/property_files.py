"""Text checkpoints and properties files, which kafka-dump-log ignores: one line or row an entry."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from storage.errors import FormatError
from storage.file_names import FileKind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Entries = list[dict[str, Any]]


def _offset_checkpoint(data: bytes) -> Entries:
    from storage.formats.checkpoint import parse_offset_checkpoint

    return [each._asdict() for each in parse_offset_checkpoint(data)]


def _leader_epochs(data: bytes) -> Entries:
    from storage.formats.checkpoint import parse_leader_epochs

    return [each._asdict() for each in parse_leader_epochs(data)]


def _partition_metadata(data: bytes) -> Entries:
    from storage.formats.partition_metadata import format_uuid, parse_partition_metadata

    parsed = parse_partition_metadata(data)
    return [{"version": parsed.version, "topic_id": format_uuid(parsed.topic_id)}]


def _meta_properties(data: bytes) -> Entries:
    from storage.formats.meta_properties import parse_meta_properties

    parsed = parse_meta_properties(data)
    return [
        {
            "version": parsed.version,
            "cluster_id": parsed.cluster_id,
            "node_id": parsed.node_id,
            "directory_id": _uuid_text(parsed.directory_id),
            **dict(parsed.other),
        }
    ]


def _quorum_state(data: bytes) -> Entries:
    from storage.formats.quorum_state import parse_quorum_state

    parsed = parse_quorum_state(data)
    voters = parsed.current_voters
    return [
        {
            "data_version": parsed.data_version,
            "leader_id": parsed.leader_id,
            "leader_epoch": parsed.leader_epoch,
            "voted_id": parsed.voted_id,
            "voted_directory_id": _uuid_text(parsed.voted_directory_id),
            "current_voters": None if voters is None else [each.voter_id for each in voters],
        }
    ]


def _clean_shutdown(data: bytes) -> Entries:
    from storage.formats.clean_shutdown import parse_clean_shutdown

    return [parse_clean_shutdown(data)._asdict()]


def _uuid_text(value: bytes | None) -> str | None:
    from storage.formats.partition_metadata import format_uuid

    return None if value is None else format_uuid(value)


PARSERS: dict[FileKind, Callable[[bytes], Entries]] = {
    FileKind.OFFSET_CHECKPOINT: _offset_checkpoint,
    FileKind.LEADER_EPOCHS: _leader_epochs,
    FileKind.PARTITION_METADATA: _partition_metadata,
    FileKind.META_PROPERTIES: _meta_properties,
    FileKind.QUORUM_STATE: _quorum_state,
    FileKind.CLEAN_SHUTDOWN: _clean_shutdown,
}


def property_problems(kind: FileKind, data: bytes) -> list[FormatError]:
    """What is not valid in such a file, that it does not parse included."""
    from storage.formats import (
        checkpoint,
        clean_shutdown,
        meta_properties,
        partition_metadata,
        quorum_state,
    )

    check = {
        FileKind.OFFSET_CHECKPOINT: checkpoint.offset_checkpoint_problems,
        FileKind.LEADER_EPOCHS: checkpoint.leader_epoch_problems,
        FileKind.PARTITION_METADATA: partition_metadata.problems,
        FileKind.META_PROPERTIES: meta_properties.problems,
        FileKind.QUORUM_STATE: quorum_state.problems,
        FileKind.CLEAN_SHUTDOWN: clean_shutdown.problems,
    }[kind]
    return check(data)


def entries_of(kind: FileKind, data: bytes) -> Entries:
    """Return the entries of a file, none if it does not parse (`property_problems` says why)."""
    try:
        return PARSERS[kind](data)
    except FormatError:
        return []


def property_text(kind: FileKind, data: bytes) -> Iterator[str]:
    """`name: value` pairs in the manner of kafka-dump-log's lines, a line per entry."""
    for entry in entries_of(kind, data):
        known = [f"{name}: {value}" for name, value in entry.items() if value is not None]
        if known:  # brokers before 3.7 leave .kafka_cleanshutdown empty
            yield " ".join(known)


def property_rows(path: str, kind: FileKind, data: bytes) -> Iterator[dict[str, Any]]:
    """Yield a row per entry."""
    for entry in entries_of(kind, data):
        yield {"kind": str(kind), "path": path, **entry}
