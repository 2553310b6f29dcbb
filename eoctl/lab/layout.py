"""Directories of a simulated cluster: create, mark and open them.

- `cluster.json`: marker. Without it, eoctl touches no directory.
- `node-0`, `node-1`, ...: log dirs, one per broker.
- `controller/__cluster_metadata-0`: decisions of the controller.
- `history-1.jsonl`: history of the first run, and so on.
- `real-controller`: after a run, the bootstrap files of a real controller, which serves the nodes'
  log dirs with real brokers.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from eoctl.lab.checker.histories import MAX_LINE_BYTES
from eoctl.lab.environment import metadata
from eoctl.lab.environment.settings import (
    CONTROLLER_ID,
    CONTROLLER_NAME,
    LAYOUT_VERSION,
    MARKER_NAME,
    METADATA_DIRECTORY,
    START_MS,
    TRANSACTION_STATE_DIRECTORY,
    PlaySettings,
)
from eoctl.lab.nodes.controller import CONTROLLER_EPOCH, append_metadata, open_metadata_log
from recovery.checks.context.broker_version import CHECKED
from recovery.new_log_dir.adoption import PRODUCER_ID_BLOCK
from recovery.new_log_dir.records import NodeIdentity, encode_bootstrap, encode_identity
from storage.errors import AccessError, RefusedError, UsageError, os_errors, pasted
from storage.file_names import (
    BOOTSTRAP_NAME,
    META_PROPERTIES_NAME,
    PARTITION_METADATA_NAME,
    QUORUM_STATE_NAME,
)
from storage.files import fsio
from storage.files.fsio import FileSystem
from storage.formats.partition_metadata import PartitionMetadata, encode_partition_metadata
from storage.formats.quorum_state import QuorumState, Voter, encode_quorum_state

if TYPE_CHECKING:
    from collections.abc import Iterator


REAL_CONTROLLER_NAME = "real-controller"


class SimulatedCluster(NamedTuple):
    """A simulated cluster on disk.

    Attributes:
        root: its real path.
        cluster: cluster.id.
        runs_count: number of runs begun.
        ended_count: number of runs that ended.
        end_us: the clock at the end of the last run that ended.
    """

    root: str
    cluster: str
    settings: PlaySettings
    runs_count: int = 0
    ended_count: int = 0
    end_us: int = 0

    def history_path(self, number: int) -> str:
        """Return the path of a run's history."""
        return str(Path(self.root, f"history-{number}.jsonl"))

    def node_path(self, number: int) -> str:
        """Return the log dir of a node."""
        return str(Path(self.root, f"node-{number}"))


def make_cluster(
    path: str, settings: PlaySettings, fs: FileSystem | None = None
) -> SimulatedCluster:
    """Make the directories, and write the marker last.

    Raises:
        RefusedError: the path exists already, or its parent directory does not.
        UsageError: the path is empty.
        AccessError: the directories cannot be made.
    """
    fs = fs or FileSystem()
    root = Path(path).absolute()
    _require_name(path)
    what = ""
    if root.is_dir():
        if any(root.iterdir()):
            is_simulated = (root / MARKER_NAME).exists()
            what = "is a simulated cluster already" if is_simulated else "is not empty"
    elif os.path.lexists(root):
        what = "is a file"
    elif root.parent.exists() and not root.parent.is_dir():
        what = f"{root.parent} is no directory"
    if what:
        raise RefusedError(
            f"{path}: {what}; nothing was touched",
            next_step="name a directory that is not there yet",
        )
    if not root.parent.is_dir():
        raise RefusedError(
            f"{path}: there is no directory {root.parent}",
            next_step=f"mkdir -p {pasted(str(root.parent))}",
        )
    with os_errors(path):
        if not root.exists():
            fs.make_dir(root, 0o755)
    root = root.resolve()
    cluster = "eoctlPlayedClusterAAAA"
    topic_id = metadata.derived_id(cluster, "topic", settings.topic)
    for number in range(settings.nodes):
        _make_node(fs, root / f"node-{number}", number, cluster, settings, topic_id)
    controller = root / CONTROLLER_NAME
    with os_errors(controller):
        fs.make_dir(controller, 0o755)
        fs.make_dir(controller / METADATA_DIRECTORY, 0o755)
    log = open_metadata_log(root, lambda: START_MS)
    values = metadata.beginning(
        settings,
        cluster,
        metadata.first_view(settings),
        min_insync=settings.min_insync,
        is_unclean=settings.is_unclean,
    )
    append_metadata(log, values, START_MS)
    log.close()
    fsio.put_file(fs, controller / METADATA_DIRECTORY / QUORUM_STATE_NAME, _quorum_state())
    made = SimulatedCluster(str(root), cluster, settings)
    save_cluster(made, fs)
    return made


def _quorum_state() -> bytes:
    """Return the quorum state of a controller that is the only voter and leader."""
    state = QuorumState(
        data_version=0,
        leader_id=CONTROLLER_ID,
        leader_epoch=CONTROLLER_EPOCH,
        voted_id=-1,
        current_voters=(Voter(CONTROLLER_ID),),
    )
    return encode_quorum_state(state)


def _require_name(path: str) -> None:
    """Refuse an empty path, which would mean the working directory. Raises UsageError."""
    if not path:
        raise UsageError(
            "the name of the directory is empty",
            next_step="eoctl sim init ./play   # makes one",
        )


def _make_node(
    fs: FileSystem,
    path: Path,
    number: int,
    cluster: str,
    settings: PlaySettings,
    topic_id: bytes,
) -> None:
    with os_errors(path):
        fs.make_dir(path, 0o755)
    for partition, replicas in enumerate(settings.assignment):
        if number in replicas:
            directory = path / f"{settings.topic}-{partition}"
            with os_errors(directory):
                fs.make_dir(directory, 0o755)
            content = encode_partition_metadata(PartitionMetadata(0, topic_id))
            fsio.put_file(fs, directory / PARTITION_METADATA_NAME, content)
    directory_id = metadata.derived_id(cluster, "directory", number)
    identity = NodeIdentity(cluster, number, directory_id)
    fsio.put_file(fs, path / META_PROPERTIES_NAME, encode_identity(identity, CHECKED))


def save_cluster(cluster: SimulatedCluster, fs: FileSystem | None = None) -> None:
    """Write the marker. Raises AccessError."""
    value = {
        "eoctl_played_cluster": LAYOUT_VERSION,
        "cluster_id": cluster.cluster,
        "settings": cluster.settings._asdict(),
        "runs_count": cluster.runs_count,
        "ended_count": cluster.ended_count,
        "end_us": cluster.end_us,
    }
    content = (json.dumps(value, indent=1) + "\n").encode()
    fsio.replace_file(fs or FileSystem(), Path(cluster.root, MARKER_NAME), content)


def open_cluster(path: str) -> SimulatedCluster:
    """Read the marker.

    Raises:
        RefusedError: the directory is no simulated cluster, and eoctl touches nothing in it.
        UsageError: the path is empty.
        AccessError: the marker cannot be read.
    """
    _require_name(path)
    root = Path(path).resolve()
    marker = root / MARKER_NAME
    try:
        text = marker.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        raise _no_cluster(path, root) from None
    except IsADirectoryError:
        text = b""
    except OSError as error:
        raise AccessError(error, str(marker)) from error
    try:
        return _parse(json.loads(text), str(root))
    except (ValueError, KeyError, TypeError, AttributeError):
        raise RefusedError(
            f"{marker}: is not what eoctl sim init writes; nothing was touched",
            next_step="make another with eoctl sim init",
        ) from None


def _no_cluster(path: str, root: Path) -> RefusedError:
    what, step = f"it has no {MARKER_NAME}", "name the directory of a simulated cluster"
    if not root.exists():
        what, step = "it is not there", f"eoctl sim init {pasted(path)}"
        if any(each.is_file() for each in root.parents):
            what, step = "it is below a file", "eoctl sim init ./play   # makes one"
    elif not root.is_dir():
        what, step = "it is a file", "eoctl sim init ./play   # makes one"
    elif not any(root.iterdir()):
        step = f"eoctl sim init {pasted(path)}"
    return RefusedError(
        f"{path}: is no simulated cluster: {what}; nothing was touched", next_step=step
    )


def require_whole(cluster: SimulatedCluster, *, with_controller: bool) -> None:
    """Check that all directories exist, before any is touched. Raises RefusedError.

    Without its `__transaction_state` a cluster would look like a cluster without transactions.
    """
    root = Path(cluster.root)
    topic, settings = cluster.settings.topic, cluster.settings
    names = [CONTROLLER_NAME] if with_controller else []
    if _had_transactions(cluster):
        names.append(f"{CONTROLLER_NAME}/{TRANSACTION_STATE_DIRECTORY}")
    names += [f"node-{number}" for number in range(settings.nodes)]
    names += [
        f"node-{number}/{topic}-{partition}"
        for partition, replicas in enumerate(settings.assignment)
        for number in replicas
    ]
    for each in names:
        path = root / each
        if not path.is_dir():
            what = "is no directory" if os.path.lexists(path) else "is not there"
            raise RefusedError(
                f"{path}: {what}, and belongs to this simulated cluster; nothing was touched",
                next_step="put it back, or begin with another one: eoctl sim init ./play",
            )


def _had_transactions(cluster: SimulatedCluster) -> bool:
    """Return whether a run had transactions, as the first lines of the histories say.

    This skips unreadable histories: the reader of a history reports them.
    """
    for number in range(1, cluster.runs_count + 1):
        with suppress(OSError, ValueError, LookupError, TypeError, RecursionError):
            with Path(cluster.history_path(number)).open("rb") as file:
                header = json.loads(file.readline(MAX_LINE_BYTES))
            if header["settings"]["transaction_records"]:
                return True
    return False


def _parse(value: Any, root: str) -> SimulatedCluster:
    """Parse the marker. Raises ValueError, KeyError, TypeError, AttributeError if malformed."""
    if value["eoctl_played_cluster"] != LAYOUT_VERSION:
        raise ValueError
    known = PlaySettings._fields
    given = {name: _like(name, each) for name, each in value["settings"].items() if name in known}
    settings = PlaySettings(**given)
    if not 1 <= settings.replication_factor <= settings.nodes or settings.partitions < 1:
        raise ValueError
    return SimulatedCluster(
        root=root,
        cluster=str(value["cluster_id"]),
        settings=settings,
        runs_count=int(value["runs_count"]),
        ended_count=int(value["ended_count"]),
        end_us=int(value["end_us"]),
    )


def _like(name: str, value: Any) -> Any:
    """Return a value if it has the type of its default. Raises TypeError."""
    if type(value) is not type(PlaySettings._field_defaults[name]):
        raise TypeError
    return value


def hand_over(cluster: SimulatedCluster, values: list[bytes], timestamp_ms: int) -> None:
    """Write the bootstrap files of a real controller. Raises AccessError.

    The simulated producers used run numbers as producer ids, so the real controller starts above.
    """
    fs = FileSystem()
    path = Path(cluster.root, REAL_CONTROLLER_NAME)
    next_id = (cluster.runs_count // PRODUCER_ID_BLOCK + 1) * PRODUCER_ID_BLOCK
    values = [*values, metadata.producer_ids_record(next_id)]
    fsio.make_dir_like(fs, path, cluster.root)
    identity = NodeIdentity(
        cluster.cluster, CONTROLLER_ID, metadata.derived_id(cluster.cluster, CONTROLLER_ID)
    )
    fsio.replace_file(fs, path / BOOTSTRAP_NAME, encode_bootstrap(values, timestamp_ms))
    fsio.replace_file(fs, path / META_PROPERTIES_NAME, encode_identity(identity, CHECKED))


def node_paths(cluster: SimulatedCluster) -> Iterator[str]:
    """Return the log dirs of all nodes."""
    return (cluster.node_path(number) for number in range(cluster.settings.nodes))
