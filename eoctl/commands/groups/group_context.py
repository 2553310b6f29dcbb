"""The basis of `eoctl groups`: the groups of one cluster, its logs, the clock."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from eoctl.clock import resolve_now
from eoctl.messages import first_of, notes_in_use
from eoctl.progress import Progress
from recovery.cluster.clusters import Clusters, find_metadata
from recovery.cluster.placement import lost_partitions, not_understood
from recovery.groups.group_log import GroupLog, LogPlaces, is_expired
from storage.counts import agreeing, counted
from storage.dirs.discovery import discover
from storage.errors import EXIT_FINDINGS, EXIT_OK, EXIT_SKIPPED, AccessError, UsageError, pasted
from storage.file_names import GROUPS_TOPIC

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from recovery.groups.group_log import GroupCommit
    from recovery.groups.members import GroupState
    from storage.errors import EoctlError


VERIFIED = f"verified: headers, checksums and records of {GROUPS_TOPIC}; of other logs the ends"


class WantedGroups(NamedTuple):
    """The command line options.

    Attributes:
        groups, topics: only these, empty for all.
        now: the clock for expiry.
    """

    groups: tuple[str, ...] = ()
    topics: tuple[str, ...] = ()
    metadata_dir: str | None = None
    now: str | None = None


class GroupContext:
    """The groups of the given log dirs.

    Attributes:
        log: the state of the coordinators.
        places: the logs of the committed offsets.
        commits: the commits of each chosen group, ordered by group name.
        moment: the clock.
        notes: sentences for people, which grow as logs are read.
    """

    def __init__(self, paths: Sequence[str], options: WantedGroups) -> None:
        """Read the whole of `__consumer_offsets`.

        Raises:
            UsageError: no log dir, several clusters, or an unknown group.
            AccessError, NotKafkaError: a path cannot be read.
        """
        self.options = options
        found = discover(paths)
        self.log_dirs = found.log_dirs
        self._require_one_cluster(paths)
        metadata = None if options.metadata_dir is None else find_metadata(options.metadata_dir)
        clusters = Clusters(self.log_dirs, metadata)
        self.image = clusters.image_for(self.log_dirs[0])
        with Progress("reading groups"):
            self.log = GroupLog(self.log_dirs, self.image)
        self.places = LogPlaces(self.log_dirs, self.image)
        self.moment = resolve_now(options.now, [each.path for each in self.log_dirs])
        self.notes = [VERIFIED, *notes_in_use(self.log_dirs)]
        self.is_corrupt = self.log.is_corrupt
        self.is_unreadable = self.log.is_unreadable
        absent = [
            each for each in lost_partitions(found.whole, clusters)
            if each.key.topic == GROUPS_TOPIC
        ]  # fmt: skip
        self._report([*found.problems, *self.log.problems])
        doubts = not_understood(self.log_dirs, clusters)
        self.is_unreadable |= bool(doubts)
        self.notes += (*map(str, absent), *doubts)
        self.notes += self.log.reported()
        self.commits = self._chosen(paths)
        asked = {self.log.home_of(each) for each in options.groups}
        if options.groups and None not in asked:
            self._is_lacking = any(not self.log.partitions.get(each or 0) for each in asked)
        else:
            has_none = not self.log.partitions and not self.log.never_had_any
            self._is_lacking = self.log.has_gaps or has_none or bool(absent)

    def _require_one_cluster(self, paths: Sequence[str]) -> None:
        if not self.log_dirs:
            raise UsageError(
                f"{pasted(paths[0])}: no log dir there, which would have {GROUPS_TOPIC}",
                next_step="name the log dirs of a broker, all of one cluster",
            )
        ids = {each.meta.cluster_id for each in self.log_dirs if each.meta is not None}
        if len(ids) > 1:
            names = " and ".join(sorted(map(str, ids)))
            raise UsageError(
                f"log dirs of clusters {names}. Groups belong to one cluster",
                next_step="a run for each cluster",
            )

    def _chosen(self, paths: Sequence[str]) -> dict[str, list[GroupCommit]]:
        """Return the commits of the selected groups, for the selected topics."""
        topics = self.options.topics
        known = {
            name: [each for each in commits if not topics or each.key.topic in topics]
            for name, commits in self.log.all_commits().items()
        }
        wanted, lacking = self.options.groups, "which is not here whole"
        if not wanted:
            return {name: each for name, each in known.items() if each or not topics}
        for name in wanted:
            if name in known:
                continue
            home = self.log.home_of(name)
            if home is not None and self.log.partitions.get(home):
                raise UsageError(
                    f"no group {name}: it would be in {GROUPS_TOPIC}-{home}, which has none",
                    next_step=f"eoctl groups list {' '.join(map(pasted, paths))}",
                )
            where = "some partition" if home is None else f"{GROUPS_TOPIC}-{home}"
            self.notes.append(f"no group {name} here. It would be in {where}, {lacking}")
        return {name: known[name] for name in sorted({*wanted} & {*known})}

    def group(self, name: str) -> GroupState:
        """Return the recorded state of an existing group."""
        return self.log.groups[name]

    def _report(self, problems: Iterable[EoctlError]) -> None:
        problems = list(problems)
        for each in problems:
            self.is_unreadable |= isinstance(each, AccessError)
            self.is_corrupt |= not isinstance(each, AccessError)
        self.notes += first_of(list(dict.fromkeys(map(str, problems))), "problems")

    def report_places(self) -> None:
        """Add notes on unreadable parts of the logs that were read."""
        problems, self.places.problems = self.places.problems, []
        self._report(problems)

    @property
    def status(self) -> int:
        """The exit status by the parts read so far."""
        if self.is_corrupt:
            return EXIT_FINDINGS
        return EXIT_SKIPPED if self.is_unreadable or self._is_lacking else EXIT_OK

    # --- offsets that a start of the broker deletes

    def is_expired(self, commit: GroupCommit) -> bool:
        """Return whether a current broker deletes an offset soon after its start."""
        return is_expired(self.group(commit.key.group), commit, self.moment.ms)

    def report_expired(self) -> None:
        """Add a note with the number of chosen offsets that expire."""
        found = [
            each for commits in self.commits.values() for each in commits if self.is_expired(each)
        ]
        if found:
            groups = len({each.key.group for each in found})
            self.notes.append(
                f"{counted(len(found), 'offset')} of {counted(groups, 'group')} without members"
                f" {agreeing(len(found), 'is', 'are')} older than seven"
                f" days ({self.moment.describe()}). A broker deletes them minutes after its start,"
                " unless its offsets.retention.minutes is set higher first"
            )


def open_groups(paths: Sequence[str], options: WantedGroups) -> GroupContext:
    """Read the groups of the paths. Raises as `GroupContext`."""
    if not paths:
        raise UsageError("no LOG-DIR given", next_step="eoctl groups list LOG-DIR...")
    return GroupContext(paths, options)
