"""What several commands say of leaders and ISR: from which metadata, and what is amiss.

Notes only: a copy that was not in the ISR, or a partition that nobody led, is a state of the
cluster and no fault of the files.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from eoctl.clock import format_time_ms
from eoctl.face.columns import cell_text
from eoctl.runs.notes import first_of
from eoctl.runs.told import counted, listing
from storage.dirs.acknowledged import CopyStanding
from storage.dirs.topic_settings import MIN_INSYNC_REPLICAS, SettingSource

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from storage.dirs.acknowledged import InCluster
    from storage.dirs.cluster_image import ClusterImage
    from storage.dirs.log_dir import Problem

NO_LEADER = "none"  # in text; -1 for programs
WHAT = "leader and ISR"


class ClusterNotes:
    """Collects what the metadata say of partition directories, for the notes at the end.

    Attributes:
        is_short: not all of the metadata that were used could be read.
    """

    def __init__(self) -> None:
        self.is_short = False
        self._images: dict[int, ClusterImage] = {}
        self._doubtful: dict[int, ClusterImage] = {}
        self._unread: dict[str, None] = {}
        self._has_default = False
        self._is_told = False
        self._without_leader: dict[str, None] = {}  # in order, each once
        self._under_min_isr: dict[str, None] = {}
        self._out_of_sync: dict[str, None] = {}

    def add_unread(self, told: Sequence[str]) -> None:
        """Note which metadata cannot even be opened."""
        self._unread.update(dict.fromkeys(told))
        self.is_short = self.is_short or bool(told)

    def add_image(self, image: ClusterImage | None, *, has_doubts: bool = True) -> None:
        """Note whose state is used; and what of it is doubtful, unless the caller tells that."""
        if image is not None:
            self._images[id(image)] = image
            if not has_doubts:
                return
            self._doubtful[id(image)] = image
            self.is_short = self.is_short or not image.is_complete

    def add(self, name: str, path: str, found: InCluster) -> None:
        """Note what is known of a directory of the partition `name`."""
        if found.leader is None:
            return
        self._is_told = True
        self._has_default = self._has_default or found.min_insync_from == SettingSource.DEFAULT
        if found.lacks_leader:
            self._without_leader[name] = None
        elif found.leader >= 0 and found.is_under_min_isr:
            self._under_min_isr[name] = None
        if found.standing == CopyStanding.OUT_OF_SYNC:
            self._out_of_sync[path] = None

    def notes(self) -> Iterator[str]:
        """Sentences for the end."""
        yield from self._unread
        for image in self._images.values():
            if id(image) in self._doubtful:
                yield from doubts_of(image.path, image.problems, image)
            if self._is_told and image.topics:
                yield source_of(image)
        if self._has_default:
            yield f"{MIN_INSYNC_REPLICAS}: default is Kafka's; a server.properties is not known"
        if self._without_leader:
            names = listing([*self._without_leader], "partitions")
            yield f"no leader, though a replica's broker runs: {names}"
        if self._under_min_isr:
            names = listing([*self._under_min_isr], "partitions")
            yield f"ISR below {MIN_INSYNC_REPLICAS}, acks=all is refused: {names}"
        if self._out_of_sync:
            paths = listing([*self._out_of_sync], "copies")
            yield f"not in the ISR, may lack what was acknowledged since: {paths}"


def source_of(image: ClusterImage) -> str:
    """Say which metadata are believed, and of when they are."""
    if not image.end_offset:  # a bootstrap.checkpoint
        return f"{WHAT} as the controller will begin with, in {image.path}"
    when = "" if image.timestamp_ms is None else f", {format_time_ms(image.timestamp_ms)}"
    return f"{WHAT} as of metadata record {image.end_offset - 1}{when}, in {image.path}"


def doubts_of(path: str, problems: Sequence[Problem], image: ClusterImage) -> Iterator[str]:
    """Say what of some metadata could not be read, or does not count."""
    yield from first_of([str(each) for each in problems], "places that could not be read")
    if problems:
        yield f"{path}: not all of it could be read: what is told may be an older state"
    if image.unknown_records_count:
        yield f"{path}: {image.unknown_records_count} records were not understood"
    if count := image.open_transaction_records_count:
        yield f"{path}: {count} records of a metadata transaction that has not ended do not count"


def state_words(places: Sequence[InCluster]) -> str:
    """Say in one line what the metadata say of copies; "" if nothing."""
    known = [each for each in places if each.standing is not None or each.leader is not None]
    if len(places) == 1 and known and known[0].leader is not None:
        one = known[0]
        standing = "" if one.standing is None else f"; this copy: {one.standing}"
        words = partition_words(one.leader, one.isr, one.min_insync_replicas, one.min_insync_from)
        return f"{words}{standing}"
    counts = Counter(each.standing for each in known if each.standing is not None)
    parts = [f"{each} {counts[each]:,}" for each in CopyStanding if counts[each]]
    return f"{counted(sum(counts.values()), 'replica')}: {', '.join(parts)}" if parts else ""


def partition_words(
    leader: int | str | None,
    isr: Sequence[int] | None,
    min_insync_replicas: int | None,
    min_insync_from: str | None,
) -> str:
    """Say who leads a partition, who is in the ISR, and how many have to be."""
    return (
        f"leader {NO_LEADER if leader == -1 else leader}, ISR {cell_text(isr)},"
        f" {MIN_INSYNC_REPLICAS} {min_insync_replicas} ({min_insync_from})"
    )


def with_words(rows: Iterable[Any]) -> Iterator[Any]:
    """Write of rows with a column `leader` that there is none, for people."""
    for each in rows:
        yield each._replace(leader=NO_LEADER) if each.leader == -1 else each
