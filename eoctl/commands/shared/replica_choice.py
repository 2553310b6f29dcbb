"""The copy to take of each partition, and the options required before it can be taken."""

from __future__ import annotations

import os
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from eoctl.commands.shared.replica_rows import CompareRun
from eoctl.progress import Progress
from recovery.checks.partition_check import CheckOptions
from recovery.new_log_dir.adopted_topics import Lack, resolve_topics
from recovery.new_log_dir.adoption import TakenCopy, inspect_coordinators
from recovery.new_log_dir.survey import SurveyJob, last_ids, survey_copy
from recovery.pool import MIN_PARTITION_BYTES, map_in_order, paying_jobs
from recovery.rebuild.derive import RebuildSettings
from recovery.repair.plan import RepairJob, repair_many
from recovery.repair.repaired import repair_checkpoints
from storage.counts import counted
from storage.dirs.topic_settings import read_log_config
from storage.errors import EoctlError, RefusedError, UsageError, pasted
from storage.file_names import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from eoctl.clock import Now
    from eoctl.commands.shared.replica_rows import RecommendationRow
    from recovery.checks.context.broker_version import BrokerVersion
    from recovery.new_log_dir.adopted_topics import AdoptedTopic, WantedTopics
    from recovery.new_log_dir.adoption import FoundByCoordinators
    from recovery.new_log_dir.dead_brokers import DeadBrokers, DeadCopy
    from recovery.new_log_dir.survey import LastIds, Survey
    from recovery.repair.repaired import Repaired
    from recovery.repair.strategies import Strategy


NAMED_COUNT = 3


class SourceSearch(NamedTuple):
    """The command line options for the copies."""

    preferred: tuple[str, ...]
    wanted: WantedTopics
    repair: Strategy | None
    jobs: int


class Choice(NamedTuple):
    """A chosen copy with the reason. `others` are not taken."""

    key: TopicPartition
    copy: DeadCopy
    reason: str
    others: tuple[DeadCopy, ...] = ()
    lost_records_count: int | None = 0


class FoundCopies(NamedTuple):
    """All chosen copies, and the facts about them.

    Attributes:
        choices: by partition.
        seen: latest epoch and greatest producer id of the other copies.
    """

    brokers: DeadBrokers
    topics: tuple[AdoptedTopic, ...]
    choices: tuple[Choice, ...]
    taken: tuple[TakenCopy, ...]
    coordinators: FoundByCoordinators
    seen: tuple[LastIds, ...]
    notes: tuple[str, ...]


def choose_copies(
    brokers: DeadBrokers, search: SourceSearch, moment: Now, version: BrokerVersion
) -> FoundCopies:
    """Find the copies, compare them if there are several, and read the chosen copies.

    Raises:
        UsageError, AccessError: the options do not match the log dirs, or these cannot be read.
        RefusedError: options are missing. It lists all of them, with the command that has them.
    """
    lacks: list[Lack] = []
    notes = [*brokers.notes]
    if brokers.damaged and search.repair is None:
        lacks += (Lack(each, ("--repair", "salvage")) for each in brokers.damaged)
    resolved = resolve_topics(brokers, search.wanted)
    lacks += resolved.lacks
    notes += resolved.notes
    choices = _choose(resolved.topics, search, moment, lacks)
    if search.repair is not None and brokers.damaged:
        choices = _with_repaired_checkpoints(choices, notes)
    surveys = _survey(choices, search.jobs, moment, version)
    seen = {e.path: last_ids(e.selected) for choice in choices for e in choice.others}
    lacks += _lacking_repair(surveys, search.repair)
    repaired = _repair(surveys, choices, search, brokers, moment)
    epochs = _last_epochs(choices, surveys, seen, brokers)
    taken = tuple(
        TakenCopy(
            key=choice.key,
            copy=choice.copy,
            survey=survey,
            last_epoch=epochs[choice.key],
            repaired=repaired.get(survey.path),
        )
        for choice, survey in zip(choices, surveys, strict=True)
    )
    certain = {*search.wanted.partitions_counts}
    if brokers.image is not None:
        certain |= brokers.image.topics.keys()
    coordinators = inspect_coordinators(
        brokers.log_dirs, taken, resolved.topics, now_ms=moment.ms, given=certain
    )
    lacks += coordinators.lacks
    _require_all(brokers, taken)
    if lacks:
        raise _refused(lacks)
    return FoundCopies(
        brokers=brokers,
        topics=resolved.topics,
        choices=tuple(choices),
        taken=taken,
        coordinators=coordinators,
        seen=tuple(seen.values()),
        notes=tuple(notes),
    )


# --- one of several copies ------------------------------------------------------------------------


def _choose(
    topics: Iterable[AdoptedTopic], search: SourceSearch, moment: Now, lacks: list[Lack]
) -> list[Choice]:
    preferred = [os.path.realpath(each) for each in search.preferred]
    used: set[str] = set()
    choices = []
    for topic in topics:
        for number in sorted(topic.copies):
            key, copies = TopicPartition(topic.name, number), topic.copies[number]
            best = _preferred(copies, preferred, used)
            if best is not None:
                choice = Choice(key=key, copy=best, reason="as you prefer")
            elif len(copies) == 1:
                choice = Choice(key=key, copy=copies[0], reason="the only copy")
            else:
                choice = _recommended(key, copies, moment, lacks)
            others = tuple(each for each in copies if each is not choice.copy)
            choices.append(choice._replace(others=others))
    unused = [each for each in preferred if each not in used]
    if unused:
        raise UsageError(
            f"--prefer {unused[0]}: no copy that could be taken is there",
            next_step="a log dir among the sources, or a partition in one",
        )
    return choices


def _preferred(
    copies: Sequence[DeadCopy], preferred: Sequence[str], used: set[str]
) -> DeadCopy | None:
    found = None
    for each in preferred:
        for copy in copies:
            real = os.path.realpath(copy.path)
            if each in (real, str(Path(real).parent)):
                used.add(each)
                found = copy if found is None else found
    return found


def _recommended(
    key: TopicPartition, copies: Sequence[DeadCopy], moment: Now, lacks: list[Lack]
) -> Choice:
    """Choose the copy that `replicas compare` puts first."""
    paths = [each.path for each in copies]
    try:
        run = CompareRun(
            paths, now=None, expiration_ms=None, moment=moment,
            replicas=[each.selected for each in copies],
        )  # fmt: skip
    except EoctlError as error:
        if error.exit_status == UsageError.exit_status:
            raise
        why = f"{key}: its copies cannot be compared: {error}"
        lacks.append(Lack(why, ("--prefer", paths[0])))
        return Choice(key=key, copy=copies[0], reason="")
    [row] = run.recommendations
    best = next(each for each in copies if each.path == row.leader)
    return Choice(
        key=key, copy=best, reason=_reason(row), lost_records_count=row.lost_records_count
    )


def _reason(row: RecommendationRow) -> str:
    lost = row.lost_records_count
    if not lost:
        return (
            row.reason
            if lost == 0
            else (f"{row.reason}; the number of additional records in the others is unknown")
        )
    return f"{row.reason}; the others have {counted(lost, 'record')} more, lost"


# --- chosen copies --------------------------------------------------------------------------------


def _survey(
    choices: Sequence[Choice], jobs: int, moment: Now, version: BrokerVersion
) -> list[Survey]:
    options = CheckOptions(now_ms=moment.ms, broker_version=version)
    work = [SurveyJob(each.copy.selected, options) for each in choices]
    sizes = [each.selected.log_bytes() for each in work]
    jobs = paying_jobs(jobs, sizes, least_bytes=MIN_PARTITION_BYTES)
    with Progress("reading", sum(sizes)) as progress:
        return [
            *map_in_order(
                survey_copy,
                work,
                jobs,
                name_of=lambda job: job.selected.partition.path,
                on_done=lambda each: progress.advance(each.log_bytes),
            )
        ]


def _lacking_repair(surveys: Iterable[Survey], repair: Strategy | None) -> list[Lack]:
    if repair is not None:
        return []
    return [
        Lack(
            f"{each.path}: is damaged: {each.damage[0]}{_more(each.damage)}; eoctl repair"
            f" {pasted(each.path)} shows what can be saved",
            ("--repair", "salvage"),
        )
        for each in surveys
        if each.damage
    ]


def _more(damage: Sequence[str]) -> str:
    return f" and {len(damage) - 1} more" if len(damage) > 1 else ""


def _repair(
    surveys: Sequence[Survey],
    choices: Sequence[Choice],
    search: SourceSearch,
    brokers: DeadBrokers,
    moment: Now,
) -> dict[str, Repaired]:
    """Plan the repair of damaged copies, as done during the adoption."""
    if search.repair is None:
        return {}
    work = []
    for survey, choice in zip(surveys, choices, strict=True):
        if not survey.damage:
            continue
        config = read_log_config(brokers.image, choice.key.topic)
        settings = RebuildSettings(moment.ms, interval_bytes=config.index_interval_bytes)
        work.append(RepairJob(choice.copy.selected, settings, search.repair, is_named=True))
    done = repair_many(work, search.jobs, on_done=lambda _: None)
    for each in done:
        if each.error is not None:
            raise each.error
    return {each.path: each for each in done}


def _with_repaired_checkpoints(choices: Iterable[Choice], notes: list[str]) -> list[Choice]:
    """Replace unreadable checkpoints by their readable lines."""
    repaired = {}
    result = []
    for each in choices:
        log_dir = each.copy.selected.log_dir
        if log_dir is not None:
            if log_dir.path not in repaired:
                repaired[log_dir.path] = repair_checkpoints(log_dir)
                notes += repaired[log_dir.path].notes
            selected = each.copy.selected._replace(log_dir=repaired[log_dir.path].log_dir)
            each = each._replace(copy=each.copy._replace(selected=selected))  # noqa: PLW2901
        result.append(each)
    return result


def _last_epochs(
    choices: Sequence[Choice],
    surveys: Sequence[Survey],
    seen: Mapping[str, LastIds],
    brokers: DeadBrokers,
) -> dict[TopicPartition, int]:
    """Return the latest epoch of each partition in any copy, or in the metadata."""
    found = {}
    for choice, survey in zip(choices, surveys, strict=True):
        known = [survey.last_epoch, *(seen[each.path].epoch for each in choice.others)]
        placed = None if brokers.image is None else brokers.image.partition(*choice.key)
        found[choice.key] = max([*known, -1 if placed is None else placed.leader_epoch])
    return found


# --- missing options ------------------------------------------------------------------------------


def _require_all(brokers: DeadBrokers, taken: Iterable[TakenCopy]) -> None:
    """Refuse to leave out records that only a directory with a suffix has."""
    ends = {each.key: each.end_offset for each in taken}
    left = [each for each in brokers.blocked if each.end_offset > ends.get(each.key, 0)]
    if not left:
        return
    reported = [
        f"{each.path}: has {each.missing.offsets} of {each.key}, which no copy has"
        for each in left[:NAMED_COUNT]
    ]
    if len(left) > NAMED_COUNT:
        reported.append(f"and {len(left) - NAMED_COUNT} more like it")
    target = Path(left[0].log_dir.path, str(left[0].key))
    raise RefusedError(
        f"{'; '.join(reported)}; nothing was touched",
        next_step=f"rename it to {target}, or move it out of the log dir, then run it again",
    )


def _refused(lacks: Sequence[Lack]) -> RefusedError:
    """Return a refusal that lists everything missing, with the command that has it."""
    from eoctl.command_line import again

    by_options: dict[tuple[str, ...], list[str]] = {}
    for each in lacks:
        by_options.setdefault(each.options, []).append(each.why)
    reported = []
    for whys in by_options.values():
        more = len(whys) - NAMED_COUNT
        reported += [*whys[:NAMED_COUNT], *([f"and {more} more like it"] if more > 0 else [])]
    words = again(*chain.from_iterable(by_options))
    return RefusedError(
        f"{'; '.join(reported)}; nothing was touched",
        next_step=f"if that is what you want: {words}",
    )
