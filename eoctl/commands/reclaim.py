"""`eoctl reclaim`: free a full disk by a plan, first the files that cost nothing."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

from eoctl import command_line, options
from eoctl.change_options import PLAN_ONLY, ChangeOptions, with_change
from eoctl.commands.trim import TrimOptions
from eoctl.commands.trim import plan_run as plan_trim_run
from eoctl.console.columns import size_text
from eoctl.messages import Said, is_for_people, report_answer, report_first
from eoctl.output import Columns, OutputFormat, Report, emit, message
from eoctl.parameters import argument, option, safety_option
from eoctl.plan_actions import apply_one, how_to_undo
from eoctl.progress import Progress
from recovery.changes.journals.backups import is_on_log_disk
from recovery.changes.journals.listing import require_finished
from recovery.changes.plans.plan import absolute_path, make_plan, remove_step
from recovery.checks.log_dirs.log_dirs import placements_of
from recovery.cluster.clusters import Clusters, find_metadata
from recovery.reclaim.find import (
    CLASSES,
    DIRECT_CLASSES,
    NOTHING,
    Reclaimable,
    StartRoom,
    choose_oldest,
    find_copies,
    find_reclaimable,
    find_reclaimable_beside,
    find_uncompacted,
    remove_item,
    room_of,
)
from recovery.rules.findings import Severity
from recovery.trim.plan import TrimKind, TrimRequest
from storage.counts import counted
from storage.dirs.discovery import discover
from storage.dirs.log_dir import StoppedState, read_log_dir
from storage.errors import EXIT_FINDINGS, EXIT_OK, EoctlError, RefusedError, UsageError
from storage.file_names import DirState
from storage.files import fsio
from storage.files.broker_lock import take

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from recovery.changes.journals.backups import Applied
    from recovery.changes.plans.plan import Plan
    from storage.dirs.discovery import Discovery, Selected

_WHAT = {
    "A": "what the next start deletes",
    "B": "the cache of remote indexes",
    "C": "backups of eoctl",
    "D": "replicas that are elsewhere",
    "E": "local segments in remote storage",
    "F": "the oldest records",
}


@with_change(without=("save_plan",))
def command(
    paths: Annotated[
        list[str], argument(metavar="PATH...", help="Log dirs or partition directories.")
    ],
    classes: Annotated[
        str | None,
        option(
            "--class",
            metavar="A,B,..",
            help="Classes to remove, by their cost: A nothing, B a cache, C backups, D replicas"
            " elsewhere, E local copies of remote segments, F the oldest records.",
            show_default="A",
        ),
    ] = None,
    need: Annotated[
        str | None,
        option(metavar="SIZE", help="Free this much, and no more. Without --class from A to E."),
    ] = None,
    elsewhere: Annotated[
        bool,
        safety_option(
            "--elsewhere", help="Class D: other replicas have the records of -stray replicas."
        ),
    ] = False,
    single_copy: options.SingleCopy = False,
    replicated: options.Replicated = False,
    metadata_dir: options.MetadataDir = None,
    change: ChangeOptions = PLAN_ONLY,
    output: options.Output = OutputFormat.TEXT,
) -> int:
    """Free a full disk: first the files that no start would read, then only the classes you name.

    Without --apply eoctl shows the files, their cost, and whether a start then has room.
    """
    wanted = ReclaimOptions(
        classes=_parse_classes(classes, has_need=need is not None),
        need_bytes=None if need is None else options.parse_size(need),
        is_elsewhere=elsewhere,
        single_copy=single_copy,
        replicated=replicated,
        metadata_dir=metadata_dir,
    )
    if "F" in wanted.classes and wanted.need_bytes is None:
        raise UsageError("class F removes records, and needs a size", next_step="--need SIZE")
    if change.apply:
        return _apply(paths, wanted, change, output)
    found = _gather(paths, wanted)
    report_first([*_plan_lines(found, wanted, change)], output)
    return _shown(found, wanted, output)


# -- what can be removed, in the order of the classes


class ReclaimOptions(NamedTuple):
    """The options as given. `need_bytes`: None: everything of the classes."""

    classes: str
    need_bytes: int | None = None
    is_elsewhere: bool = False
    single_copy: bool = False
    replicated: bool = False
    metadata_dir: str | None = None


class FoundItems(NamedTuple):
    """The result of a search.

    Attributes:
        chosen: in the order of their removal.
        left: bytes of other classes, by class. Class F is not included.
        notes: sentences for people.
    """

    discovery: Discovery
    chosen: tuple[Reclaimable, ...]
    left: dict[str, int]
    notes: tuple[str, ...]

    @property
    def freed_bytes(self) -> int:
        """The freed disk blocks."""
        return sum(each.freed_bytes for each in self.chosen)

    @property
    def planned(self) -> list[Reclaimable]:
        """The items that are removed by plans, with backups."""
        return [each for each in self.chosen if each.reclaim_class not in DIRECT_CLASSES]


def _parse_classes(text: str | None, *, has_need: bool) -> str:
    """Return the classes in their order.

    Raises:
        UsageError: an unknown class.
    """
    if text is None:
        return CLASSES.rstrip("F") if has_need else "A"
    words = {each.strip().upper() for each in text.split(",")}
    unknown = words - set(CLASSES)
    if unknown:
        raise UsageError(
            f"--class {text}: {min(unknown)!r} is none of {', '.join(CLASSES)}",
            next_step="--class A,B",
        )
    return "".join(sorted(words))


def _gather(paths: Sequence[str], options: ReclaimOptions) -> FoundItems:
    """Find what may be removed, and choose.

    Raises:
        RefusedError: a trim of class F is refused.
        AccessError, UsageError: a PATH cannot be read.
    """
    found = discover(paths)
    metadata = None if options.metadata_dir is None else find_metadata(options.metadata_dir)
    clusters = Clusters(found.log_dirs, metadata)
    blocked = {
        each.path
        for node in placements_of(found.log_dirs, clusters.image_for, None, is_one_node=False)
        for each in node.blocked()
    }
    selected = [each for each in found.selected if each.partition.path not in blocked]
    notes = [str(each) for each in found.problems]
    notes += (f"{each}: only it has records of the cluster, so it stays" for each in blocked)
    by_class: dict[str, list[Reclaimable]] = {each: [] for each in CLASSES}
    for log_dir in found.whole:
        for item in find_reclaimable_beside(log_dir):
            by_class[item.reclaim_class].append(item)
    for each in selected:
        image = clusters.image_for(each.log_dir)
        by_class["A"] += find_reclaimable(each, image)
        notes += find_uncompacted(each, image)
    if "D" in options.classes:
        with Progress("comparing replicas"):
            for item, why in find_copies(selected, is_elsewhere=options.is_elsewhere):
                if why:
                    notes.append(f"{item.path}: stays: {why}")
                else:
                    by_class["D"].append(item)
    chosen: list[Reclaimable] = []
    for name in options.classes:
        left_bytes = None
        if options.need_bytes is not None:
            left_bytes = options.need_bytes - sum(each.freed_bytes for each in chosen)
            if left_bytes <= 0:
                break
        if name == "E":
            by_class["E"] += _local_copies(selected, options)
        if name == "F" and left_bytes is not None:
            by_class["F"] += _oldest(selected, clusters, options, left_bytes)
        for item in by_class[name]:
            if left_bytes is None or left_bytes > 0:
                chosen.append(item)
                left_bytes = None if left_bytes is None else left_bytes - item.freed_bytes
    gone = {each.path for each in chosen}
    left = {
        name: sum(each.freed_bytes for each in by_class[name] if each.path not in gone)
        for name in "ABCDE"
    }
    return FoundItems(
        discovery=found,
        chosen=tuple(chosen),
        left=left,
        notes=tuple(dict.fromkeys(notes)),
    )


def _trim_options(item_class: str, offset: int, options: ReclaimOptions) -> TrimOptions:
    return TrimOptions(
        request=TrimRequest(TrimKind.OFFSET, offset, is_local=item_class == "E"),
        single_copy=options.single_copy,
        replicated=options.replicated or item_class == "E",
        metadata_dir=options.metadata_dir,
    )


def _local_copies(selected: Sequence[Selected], options: ReclaimOptions) -> Iterator[Reclaimable]:
    """Yield the local segments that remote storage has completely."""
    for each in selected:
        if each.partition.name.state is not DirState.LIVE:
            continue
        path = each.partition.path
        try:
            request = TrimRequest(TrimKind.BYTES, 0, is_local=True)
            planned = plan_trim_run(path, _trim_options("E", 0, options)._replace(request=request))
        except EoctlError:
            continue  # no tiered topic, or not to be changed
        if planned.plan is None:
            continue
        row = planned.rows[0]
        yield _of_trim(
            "E", planned.plan, path, row.first_local_offset, row.freed_bytes,
            "copied to remote storage", "reads go to the remote tier",
            f"{path}  up to {row.first_local_offset - 1}",
        )  # fmt: skip


def _oldest(
    selected: Sequence[Selected], clusters: Clusters, options: ReclaimOptions, wanted_bytes: int
) -> Iterator[Reclaimable]:
    """Yield the oldest segments of all partitions, a partition each."""
    for each in choose_oldest(selected, clusters.image_for, wanted_bytes):
        path = each.selected.partition.path
        planned = plan_trim_run(path, _trim_options("F", each.offset, options))
        if planned.plan is None:
            continue
        row = planned.rows[0]
        records = "records" if row.records_count is None else counted(row.records_count, "record")
        yield _of_trim(
            "F", planned.plan, path, each.offset, row.freed_bytes,
            f"oldest, of {_day(each.oldest_ms)}", records,
            f"{path}  offsets {row.log_start_offset}..{each.offset - 1}",
        )  # fmt: skip


def _day(time_ms: int) -> str:
    """Return the day of a time in UTC: rows do not depend on the zone of this machine."""
    try:
        return f"{datetime.fromtimestamp(time_ms // 1000, UTC):%Y-%m-%d}"
    except (ValueError, OverflowError, OSError):
        return str(time_ms)


def _of_trim(
    reclaim_class: str,
    plan: Plan,
    directory: str,
    offset: int,
    freed: int,
    why: str,
    costs: str,
    path: str,
) -> Reclaimable:
    removed = [each for each in plan.steps if each.before is not None and not each.after_bytes]
    return Reclaimable(
        reclaim_class=reclaim_class,
        path=path,
        files=tuple(each.path for each in removed if each.directory.endswith(Path(directory).name)),
        size_bytes=sum(each.backup_bytes for each in removed),
        freed_bytes=freed,
        why=why,
        costs=costs,
        is_taken_by_start=False,
        directory=directory,
        offset=offset,
    )


# -- rows and lines

COLUMNS = Columns(
    ("class", "path", "files_count", "size_bytes", "freed_bytes", "why", "costs",
     "is_taken_by_start"),
)  # fmt: skip
_FOR_PEOPLE = Columns(("class", "freed_bytes", "files_count", "path", "why"))


def _report(found: FoundItems, output: OutputFormat) -> Report:
    """Return the rows. For people the items of one class and reason are one row."""
    if is_for_people(output):
        alike: dict[tuple[str, str], list[Reclaimable]] = {}
        for each in found.chosen:
            alike.setdefault((each.reclaim_class, each.why), []).append(each)
        short = [
            (
                name,
                sum(each.freed_bytes for each in items),
                sum(len(each.files) for each in items),
                _place(items),
                why,
            )
            for (name, why), items in alike.items()
        ]
        short.sort(key=lambda row: (row[0], -row[1]))
        return Report("reclaimable", _FOR_PEOPLE, short)
    rows = [
        (
            each.reclaim_class, each.path, len(each.files), each.size_bytes, each.freed_bytes,
            each.why, each.costs, each.is_taken_by_start,
        )
        for each in found.chosen
    ]  # fmt: skip
    return Report("reclaimable", COLUMNS, rows)


def _place(items: Sequence[Reclaimable]) -> str:
    if len(items) == 1:
        return items[0].path
    return f"{os.path.commonpath([each.path for each in items])}: {len(items)} places"


def _shown(found: FoundItems, options: ReclaimOptions, output: OutputFormat) -> int:
    """Print rows and notes, and return the exit status."""
    if found.chosen or not is_for_people(output):
        emit(_report(found, output), output)
    for each in found.notes:
        message(each)
    message(
        "after a start the log cleaner begins at 15 s, retention at 30 s, and a deleted file is"
        " unlinked 60 s later (defaults)"
    )
    is_short = options.need_bytes is not None and found.freed_bytes < options.need_bytes
    return EXIT_FINDINGS if is_short else EXIT_OK


def _what_goes(found: FoundItems) -> str:
    """Return the classes of the chosen items in words."""
    names = sorted({each.reclaim_class for each in found.chosen})
    text = ", ".join(_WHAT[each] for each in names)
    return f"{text}, class {','.join(names)}"


def _files(found: FoundItems) -> str:
    return counted(sum(len(each.files) for each in found.chosen), "file")


def _plan_lines(
    found: FoundItems, options: ReclaimOptions, change: ChangeOptions
) -> Iterator[Said]:
    """Yield the lines of a plan."""
    if not found.chosen:
        yield Said("Plan", f"nothing: there is nothing to remove, class {_listed(options.classes)}")
        yield Said("Frees", _frees(found, options))
        yield from _room_lines(found, frees=False)
        return
    yield Said("Plan", f"remove {_what_goes(found)}; {_files(found)} go")
    yield Said("Frees", _frees(found, options))
    costs = list(dict.fromkeys(each.costs for each in found.chosen if each.costs != NOTHING))
    if all(each.reclaim_class == "A" for each in found.chosen):
        costs = [NOTHING, *costs]
    has_loss = any(each.reclaim_class in "DEF" for each in found.chosen)
    rank = Severity.WARNING.rank if has_loss else 0
    yield Said("Costs", "; ".join(costs), rank)
    yield from _room_lines(found, frees=True)
    yield Said("Undo", _undo(found, change))
    yield Said("Next", command_line.again("--apply"))


def _listed(classes: str) -> str:
    return ",".join(classes)


def _frees(found: FoundItems, options: ReclaimOptions) -> str:
    text = size_text(found.freed_bytes)
    if options.need_bytes is not None:
        text += f" of {size_text(options.need_bytes)} that are needed"
    more = [name for name, size in found.left.items() if size]
    if more:
        size = size_text(sum(found.left.values()))
        text += f"; {', '.join(more)} {size} more"
    is_short = options.need_bytes is not None and found.freed_bytes < options.need_bytes
    if is_short and "F" not in options.classes:
        text += "; then --class with F, the oldest records"
    return text


def _undo(found: FoundItems, change: ChangeOptions) -> str:
    if not found.planned:
        has_journal = any(each.journal is not None for each in found.chosen)
        return "no: the backups are gone" if has_journal else "no: no start would read them"
    if change.no_backup:
        return "no: with --no-backup nothing is kept for an undo"
    log_dirs = [each.path for each in found.discovery.log_dirs]
    if is_on_log_disk(log_dirs, change.backup_dir):
        return "pass --backup-dir DIR on another disk, or --no-backup --i-accept-the-loss"
    direct = len(found.planned) < len(found.chosen)
    return f"yes{', of classes D to F' if direct else ''}: copies in {change.backup_dir}"


def _room_lines(found: FoundItems, *, frees: bool) -> Iterator[Said]:
    """Yield whether a start has the room that it needs, of the tightest disk."""
    rooms = _rooms(found, frees=frees)
    if not rooms:
        return
    room, freed = min(rooms, key=lambda each: each[0].free_bytes + each[1] - each[0].needed_bytes)
    after = room.free_bytes + freed
    text = (
        f"a start needs up to {size_text(room.needed_bytes)}, {size_text(room.free_bytes)} are free"
    )
    if freed:
        text += f", {size_text(after)} afterwards"
    is_enough = after >= room.needed_bytes
    where = f"{room.path}: " if len(found.discovery.log_dirs) > 1 else ""
    rank = 0 if is_enough else Severity.ERROR.rank
    yield Said("Room", f"{where}{text}: {'enough' if is_enough else 'NOT enough'}", rank)


def _rooms(found: FoundItems, *, frees: bool) -> list[tuple[StartRoom, int]]:
    """Return for each disk what a start of its log dirs needs, and what is freed there."""
    by_device: dict[int, tuple[StartRoom, int]] = {}
    planned = {
        absolute_path(Path(each.files[0]).parent.parent) for each in found.planned if each.files
    }
    for log_dir in found.discovery.log_dirs:
        if not log_dir.is_log_dir:
            continue
        is_clean = log_dir.stopped is StoppedState.CLEAN
        room = room_of(log_dir, is_clean=is_clean and absolute_path(log_dir.path) not in planned)
        freed = sum(
            each.freed_bytes
            for each in (found.chosen if frees else ())
            if _is_of(each, log_dir.path)
        )
        device = Path(log_dir.path).stat().st_dev
        known = by_device.get(device)
        if known is not None:
            room = room._replace(needed_bytes=room.needed_bytes + known[0].needed_bytes)
            freed += known[1]
        by_device[device] = room, freed
    return list(by_device.values())


def _is_of(item: Reclaimable, log_dir: str) -> bool:
    path = os.path.realpath(item.files[0] if item.files else item.path)
    own = os.path.realpath(log_dir)
    return path.startswith((f"{own}/", f"{own}.eoctl/"))


# -- apply


def _apply(
    paths: Sequence[str], options: ReclaimOptions, change: ChangeOptions, output: OutputFormat
) -> int:
    """Remove under the locks, what frees room without a backup first."""
    fs = fsio.FileSystem()
    log_dirs = [each.path for each in discover(paths).log_dirs]
    done: list[Reclaimable] = []
    applied: list[Applied] = []
    with take(log_dirs, broker_is_stopped=change.broker_is_stopped, fs=fs):
        require_finished(log_dirs)
        found = _gather(paths, options)
        if found.planned and not change.no_backup and is_on_log_disk(log_dirs, change.backup_dir):
            raise RefusedError(
                "the backups of classes D to F would be on the disk that is to be freed;"
                " nothing was removed",
                next_step="--backup-dir DIR on another disk; or --no-backup --i-accept-the-loss",
            )
        try:
            for each in found.chosen:
                if each.reclaim_class in DIRECT_CLASSES:
                    remove_item(fs, each)
                else:
                    for plan in _plans_of(each, options):
                        made = apply_one(fs, plan, change)
                        message(how_to_undo(made))
                        applied.append(made)
                done.append(each)
        except EoctlError as exc:
            if done:
                stays = f"{counted(len(done), 'group')} of files before it are removed"
                exc.next_step = f"{exc.next_step}; {stays}" if exc.next_step else stays
            raise
    found = found._replace(chosen=tuple(done))
    status = _shown(found, options, output)
    report_answer(list(_done_lines(found, options, applied)), output)
    return status


def _plans_of(item: Reclaimable, options: ReclaimOptions) -> Iterator[Plan]:
    """Yield the plan of an item, made for the files as they are now."""
    if item.offset is None:
        steps = [remove_step(absolute_path(each), item.why) for each in item.files]
        arguments = {"partition": absolute_path(item.path)}
        yield make_plan("reclaim", arguments, steps, {"freed_bytes": item.freed_bytes})
        return
    wanted = _trim_options(item.reclaim_class, item.offset, options)
    plan = plan_trim_run(item.directory, wanted).plan
    if plan is not None:
        yield plan


def _done_lines(
    found: FoundItems, options: ReclaimOptions, applied: Sequence[Applied]
) -> Iterator[Said]:
    if not found.chosen:
        yield Said(
            "Done", f"nothing: there was nothing to remove, class {_listed(options.classes)}"
        )
        return
    yield Said("Done", f"removed {_what_goes(found)}; {_files(found)}")
    yield Said("Freed", _frees(found, options))
    after = found._replace(
        discovery=found.discovery._replace(
            log_dirs=tuple(read_log_dir(each.path) for each in found.discovery.log_dirs)
        )
    )
    yield from _room_lines(after, frees=False)
    if not applied:
        yield Said("Undo", "no: no start would have read them")
    for each in applied:
        kept = each.journal.has_backup
        yield Said("Undo", f"eoctl undo {each.journal.path}" if kept else "no: without a backup")
