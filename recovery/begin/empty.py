"""A log dir from nothing: who it is, its topics, and an empty directory for each partition."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from recovery.begin.records import NodeIdentity, TopicStart, encode_beginning, encode_identity
from recovery.changes.journals.applied import SpentTargetError
from recovery.changes.journals.unfinished import require_finished
from recovery.changes.plans.plan import absolute_path, make_step, replace_step
from storage.dirs.discovery import require_outside_log_dirs
from storage.errors import UsageError, os_errors, pasted
from storage.file_names import (
    BOOTSTRAP_NAME,
    LOCK_FILE_NAME,
    META_PROPERTIES_NAME,
    PARTITION_METADATA_NAME,
)
from storage.files import fsio
from storage.formats.partition_metadata import PartitionMetadata, encode_partition_metadata

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from recovery.changes.plans.plan import Step
    from recovery.checks.grounds.broker_version import BrokerVersion


class NewLogDir(NamedTuple):
    """All that a log dir begins with."""

    log_dir: str
    node: NodeIdentity
    version: BrokerVersion
    topics: tuple[TopicStart, ...]


def require_free(log_dir: str) -> None:
    """Refuse a place that has anything in it, or that lies in a log dir.

    Raises:
        RefusedError: it is not free; SpentTargetError: it is a log dir already.
        UsageError: it is no directory.
        AccessError: it cannot be looked at.
    """
    path = Path(log_dir)
    if not os.path.lexists(path):
        if not path.absolute().parent.is_dir():
            raise UsageError(
                f"{log_dir}: there is no directory {path.absolute().parent}",
                next_step=f"mkdir -p {pasted(str(path.absolute().parent))}",
            )
        require_outside_log_dirs(log_dir, "a log dir lies outside of others")
        return
    if not path.is_dir():
        raise UsageError(f"{log_dir}: is no directory")
    require_finished([log_dir])
    with os_errors(log_dir):
        found = {each.name for each in path.iterdir()} - {LOCK_FILE_NAME}
    # What a run left that was killed before it began is none of it.
    names = sorted(each for each in found if not each.endswith(fsio.TEMP_SUFFIX))
    if META_PROPERTIES_NAME in names:
        raise SpentTargetError(
            f"{log_dir}: is a log dir already; nothing was touched",
            next_step=f"eoctl describe {pasted(log_dir)}   # or name an empty directory",
        )
    if names:
        raise SpentTargetError(
            f"{log_dir}: is not empty: {names[0]}{_and_more(names[1:])}; nothing was touched",
            next_step="name an empty directory, or one that is not there",
        )
    require_outside_log_dirs(path.absolute().parent, "a log dir lies outside of others")


def _and_more(names: Sequence[str]) -> str:
    return f" and {len(names)} more" if names else ""


def beginning_steps(beginning: NewLogDir, *, timestamp_ms: int) -> list[Step]:
    """Plan the files of an empty log dir; `meta.properties` comes last.

    Until that is there, no broker starts on a half of it.

    Raises:
        RefusedError: as `encode_beginning`.
    """
    content = encode_beginning(
        beginning.node, beginning.version, beginning.topics, timestamp_ms=timestamp_ms
    )
    return [
        *bootstrap_steps(beginning.log_dir, content),
        *partition_steps(beginning.log_dir, beginning.topics),
        *identity_steps(beginning.log_dir, encode_identity(beginning.node, beginning.version)),
    ]


def bootstrap_steps(log_dir: str, content: bytes) -> Iterator[Step]:
    """Plan what the controller begins with."""
    path = str(Path(absolute_path(log_dir), BOOTSTRAP_NAME))
    yield replace_step(path, content, "topics and settings that the controller begins with")


def identity_steps(log_dir: str, content: bytes) -> Iterator[Step]:
    """Plan what makes it a log dir of a node."""
    path = str(Path(absolute_path(log_dir), META_PROPERTIES_NAME))
    yield replace_step(path, content, "a broker starts where it is, so it comes last")


def partition_steps(log_dir: str, topics: Iterable[TopicStart]) -> Iterator[Step]:
    """Plan an empty directory with the topic's id for each partition."""
    parent = Path(absolute_path(log_dir))
    ids = {
        str(parent / f"{topic.name}-{number}"): topic.topic_id
        for topic in topics
        for number in topic.leader_epochs
    }
    # All directories first: their names are then made durable at once.
    for path in ids:
        yield make_step(path, "a partition")
    for path, topic_id in ids.items():
        content = encode_partition_metadata(PartitionMetadata(0, topic_id))
        yield replace_step(f"{path}/{PARTITION_METADATA_NAME}", content, "the id of its topic")
