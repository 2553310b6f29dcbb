"""The dead nodes: their given directories, their stops, and the newest metadata."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from recovery.cluster.clusters import newest_image, one_cluster, voters_of
from storage.dirs.cluster_image import load_bootstrap_image
from storage.dirs.discovery import discover
from storage.dirs.log_dir import StoppedState
from storage.errors import UsageError
from storage.file_names import CLEAN_SHUTDOWN_NAME, METADATA_TOPIC, DirState
from storage.formats import clean_shutdown
from storage.formats.partition_metadata import format_uuid

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from storage.dirs.cluster_image import ClusterImage
    from storage.dirs.discovery import Selected
    from storage.dirs.log_dir import LogDir
    from storage.file_names import TopicPartition


class Node(NamedTuple):
    """A node, by its log dirs."""

    node_id: int
    log_dirs: tuple[LogDir, ...]

    def directory_ids(self) -> set[bytes] | None:
        """Return the ids of its log dirs, or None if an id is unknown."""
        own = {None if each.meta is None else each.meta.directory_id for each in self.log_dirs}
        return None if None in own else {each for each in own if each is not None}

    @property
    def is_running(self) -> bool:
        """Return whether a broker uses one of its directories."""
        return any(each.stopped is StoppedState.LIVE for each in self.log_dirs)

    def stopped_in(self) -> int | None:
        """Return the registration (broker epoch) in which it stopped cleanly, or None.

        A starting broker sends it to the controller if all its log dirs have the same value.
        """
        found = set()
        for each in self.log_dirs:
            try:
                data = Path(each.path, CLEAN_SHUTDOWN_NAME).read_bytes()
            except OSError:
                return None
            found.add(clean_shutdown.broker_epoch(data))
        return found.pop() if len(found) == 1 else None


class NewestMetadata(NamedTuple):
    """The newest `__cluster_metadata-0`.

    Attributes:
        path: its directory.
        voters: controllers of the quorum. Empty: unknown.
        unseen: voters whose metadata were not given, and may be newer. Empty if a majority was
            given, because then all committed records are known.
    """

    path: str
    image: ClusterImage
    voters: tuple[int, ...]
    unseen: tuple[int, ...]


class DeadCluster(NamedTuple):
    """The given cluster.

    Attributes:
        nodes: by id.
        copies: directories of live partitions, by partition and node.
        replaced: by node, ids of former log dirs that are missing now.
        notes: messages about doubtful facts.
        is_short: some data could not be read.
    """

    nodes: dict[int, Node]
    metadata: NewestMetadata
    copies: dict[TopicPartition, dict[int, Selected]]
    replaced: dict[int, frozenset[bytes]]
    notes: tuple[str, ...]
    is_short: bool


def find_dead_cluster(
    paths: Sequence[str], metadata_dir: str | None, *, takes_beginning: bool = False
) -> DeadCluster:
    """Find nodes, their copies and the newest metadata.

    Args:
        paths: their log dirs.
        metadata_dir: the place of the metadata. None: among the log dirs.
        takes_beginning: accept the `bootstrap.checkpoint` of a cluster that never ran.

    Raises:
        UsageError: these are not log dirs of one cluster's nodes, or have no metadata.
        AccessError: the only log dir cannot be read.
    """
    found = discover(paths)
    notes = [str(each) for each in found.problems]
    is_short = bool(notes)
    nodes = _nodes(found.whole)
    if not nodes:
        raise UsageError(
            f"{', '.join(paths)}: no log dir of a broker. No meta.properties says which one",
            next_step="eoctl start-order LOG-DIR..., of several brokers",
        )
    given = () if metadata_dir is None else discover([metadata_dir]).selected
    beside = [each.log_dir for each in given if each.log_dir is not None]
    one_cluster([*found.whole, *beside])
    _require_each_once(nodes)
    beginnings = [each.path for each in (*found.whole, *beside) if each.has_bootstrap]
    metadata, unread = _newest_metadata(
        [*found.selected, *given], beginnings if takes_beginning else ()
    )
    replaced = dict(_replaced_dirs(nodes, metadata.image))
    copies, doubled = _copies(found.selected)
    doubts = [*unread, *doubled, *_note_of_missing_dirs(nodes, metadata.image, replaced)]
    if metadata.unseen:
        reported = ", ".join(map(str, metadata.unseen))
        doubts.append(f"controller {reported}: not among these, and may have newer metadata")
    return DeadCluster(
        nodes=nodes,
        metadata=metadata,
        copies=copies,
        replaced=replaced,
        notes=(*notes, *doubts),
        is_short=is_short or bool(doubts),
    )


def _copies(
    selected: Iterable[Selected],
) -> tuple[dict[TopicPartition, dict[int, Selected]], list[str]]:
    """Return the copies of each partition by node, and messages about duplicates on a node."""
    copies: dict[TopicPartition, dict[int, Selected]] = {}
    doubled = []
    for each in selected:
        name, log_dir = each.partition.name, each.log_dir
        if name.state is not DirState.LIVE or log_dir is None or log_dir.meta is None:
            continue
        node_id = log_dir.meta.node_id
        if name.topic == METADATA_TOPIC or node_id is None:
            continue
        first = copies.setdefault(each.partition.topic_partition, {}).setdefault(node_id, each)
        if first is not each:
            doubled.append(
                f"{each.partition.path}: broker {node_id} has {first.partition.path}, too. It does"
                " not start with both, and only the first counts"
            )
    return copies, doubled


def _unseen_controllers(voters: Sequence[int], seen: Collection[int | None]) -> tuple[int, ...]:
    """Return the controllers that may know more, or none if a majority's metadata were given.

    Records that a majority does not have were never committed. A single directory of an unknown
    node counts as a controller's.
    """
    unseen = [each for each in voters if each not in seen]
    seen_count = len(voters) - len(unseen) + sum(each is None for each in seen)
    return tuple(unseen) if seen_count <= len(voters) // 2 else ()


def _nodes(log_dirs: Iterable[LogDir]) -> dict[int, Node]:
    found: dict[int, list[LogDir]] = {}
    for each in log_dirs:
        if each.meta is not None and each.meta.node_id is not None:
            found.setdefault(each.meta.node_id, []).append(each)
    return {node_id: Node(node_id, tuple(found[node_id])) for node_id in sorted(found)}


def _require_each_once(nodes: dict[int, Node]) -> None:
    for node in nodes.values():
        known: dict[bytes, str] = {}
        for each in node.log_dirs:
            own = None if each.meta is None else each.meta.directory_id
            if own is None:
                continue
            first = known.setdefault(own, each.path)
            if first != each.path:
                raise UsageError(
                    f"{first} and {each.path} are copies of one log dir of broker {node.node_id}"
                    f" (directory.id {format_uuid(own)})",
                    next_step="give the log dir that the broker will be started with",
                )


def _newest_metadata(
    selected: Iterable[Selected], beginnings: Iterable[str]
) -> tuple[NewestMetadata, list[str]]:
    """Return the metadata that a quorum would continue, or begin with, and notes about doubts."""
    newest = newest_image(selected)
    if newest.image is None:
        begun = next(filter(None, map(load_bootstrap_image, beginnings)), None)
        if begun is not None:
            return NewestMetadata(path=begun.path, image=begun, voters=(), unseen=()), []
        raise UsageError(
            f"no {METADATA_TOPIC}-0 there: the ISR is unknown",
            next_step="--metadata-dir DIR; without any, eoctl replicas compare DIR... says which"
            " copy has most",
        )
    image = newest.image
    voters = voters_of(image, newest.copies)
    unseen = _unseen_controllers(voters, [each.node_id for each in newest.copies])
    found = NewestMetadata(path=image.path, image=image, voters=voters, unseen=unseen)
    return found, [*newest.notes]


def _replaced_dirs(
    nodes: dict[int, Node], image: ClusterImage
) -> Iterator[tuple[int, frozenset[bytes]]]:
    """Yield the nodes with a newly formatted log dir, and the ids of the log dirs it replaces."""
    for node in nodes.values():
        broker, own = image.brokers.get(node.node_id), node.directory_ids()
        if broker is None or own is None or not broker.log_dirs or own <= {*broker.log_dirs}:
            continue
        if gone := frozenset(broker.log_dirs) - own:
            yield node.node_id, gone


def _note_of_missing_dirs(
    nodes: dict[int, Node], image: ClusterImage, replaced: dict[int, frozenset[bytes]]
) -> Iterator[str]:
    for node in nodes.values():
        broker, own = image.brokers.get(node.node_id), node.directory_ids()
        if broker is None or own is None:
            continue
        for each in broker.log_dirs:
            if each in own:
                continue
            reported = f"broker {node.node_id} has another log dir, of the id {format_uuid(each)}"
            if each in replaced.get(node.node_id, ()):
                yield (
                    f"{reported}, and a new log dir was formatted. If nobody leads, the broker may "
                    "lead with nothing, so that the others lose everything; start it when another "
                    "broker leads"
                )
            else:
                yield f"{reported}: it is not among these, and what is in it counts as missing"
