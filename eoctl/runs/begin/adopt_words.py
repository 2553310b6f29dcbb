"""What an adoption comes to, in words: what is lost, and what the first start will do."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from eoctl.runs.changes.plan_words import PlanAnswer
from eoctl.runs.changes.repair_words import cost_of
from eoctl.runs.notes import first_of
from eoctl.runs.told import counted, listing
from recovery.begin.adoption import other_owners
from storage.errors import pasted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from eoctl.runs.begin.chosen_copies import FoundCopies
    from recovery.begin.adoption import Adoption, TakenCopy

TIMEOUT_SETTING = "transaction.abort.timed.out.transaction.cleanup.interval.ms"
A_DAY_MS = 86_400_000


def adopt_answer(adoption: Adoption, found: FoundCopies) -> PlanAnswer:
    """Sum a plan up."""
    partitions = sum(len(each.leader_epochs) for each in adoption.starts)
    does = (
        f"{adoption.log_dir} with {counted(len(adoption.topics), 'topic')},"
        f" {counted(partitions, 'partition')}"
    )
    losses = list(_losses(found))
    return PlanAnswer(
        verbs=("make", "made"),
        does=(does,),
        loses=("; ".join(losses),) if losses else ("nothing that is in the sources",),
        is_loss=bool(losses),
    )


def _losses(found: FoundCopies) -> Iterator[str]:
    others = [each for each in found.choices if each.lost_records_count != 0]
    if any(each.lost_records_count is None for each in others):
        yield "what other copies have more is not known"
    elif others:
        lost = sum(each.lost_records_count or 0 for each in others)
        yield f"{counted(lost, 'record')} of other copies"
    repaired = [each.repaired for each in found.taken if each.repaired is not None]
    damaged = cost_of(repaired).lost
    if damaged.is_something:
        yield f"in what is damaged: {damaged.text}"


def adopt_notes(adoption: Adoption, found: FoundCopies, way: str) -> Iterator[str]:
    """Tell what a start does there, and what is lost."""
    yield from found.notes
    yield from _told_of_copies(found)
    yield from _told_of_start(found)
    yield from _told_of_transactions(found)
    yield from _told_of_groups(found)
    yield from _told_of_sources(adoption, found, way)
    yield (
        f"each partition has one replica; the next producer id is {adoption.next_producer_id:,};"
        " verified: headers and checksums of all batches that are taken"
    )
    if found.brokers.image is None:
        yield (
            "no metadata of the old cluster: settings are guessed from the logs, and partitions"
            " behind the last one that is here are not missed (--partitions NAME=N)"
        )


def _told_of_copies(found: FoundCopies) -> Iterator[str]:
    lossy = [each for each in found.choices if each.lost_records_count != 0]
    yield from first_of([f"{each.key}: {each.reason}" for each in lossy], "partitions")
    holes = [each for taken in found.taken for each in taken.survey.holes]
    yield from first_of([f"{each} are lost" for each in holes], "holes")
    for each in found.taken:
        if each.repaired is not None:
            lost = cost_of([each.repaired]).lost.text
            yield f"{each.copy.path}: repaired on the way (lost: {lost}); it stays as it is"
    for path in found.brokers.set_aside[:3]:
        yield (
            f"{path}: left out, a broker had set it aside; to have it taken, give it the name of a"
            " partition first"
        )
    if len(found.brokers.set_aside) > 3:
        yield f"and {len(found.brokers.set_aside) - 3} more directories that were set aside"


def _told_of_start(found: FoundCopies) -> Iterator[str]:
    recovered = sum(each.survey.recovered_bytes for each in found.taken)
    if recovered:
        yield f"a start verifies {recovered:,} bytes of .log files"
    cut = [each for each in found.taken if _is_cut(each)]
    yield from first_of(
        [
            f"{each.key}: a start cuts the log at {each.survey.start_end_offset}, of"
            f" {each.survey.end_offset}"
            for each in cut
        ],
        "partitions that a start cuts",
    )
    yield from first_of(
        [
            f"{each.key}: a compaction did not end there: a start puts"
            f" {counted(each.survey.swapped_count, 'new segment')} in the place of what"
            " they replace"
            for each in found.taken
            if each.survey.swapped_count
        ],
        "partitions with a compaction that did not end",
    )
    unloaded = [each for each in found.taken if each.survey.start_end_offset is None]
    yield from (
        f"{each.key}: a broker would not load it as it is; see eoctl check {pasted(each.copy.path)}"
        for each in unloaded
        if each.repaired is None and each.survey.log_bytes
    )


def _is_cut(taken: TakenCopy) -> bool:
    survey = taken.survey
    is_shorter = survey.start_end_offset is not None and survey.start_end_offset < survey.end_offset
    return taken.repaired is None and is_shorter


def _told_of_transactions(found: FoundCopies) -> Iterator[str]:
    coordinators = found.coordinators
    if coordinators.ongoing:
        ids = listing(coordinators.ongoing, "transactional ids")
        yield (
            f"{counted(len(coordinators.ongoing), 'transaction')} open ({ids}): a start aborts them"
            f" once they time out; {TIMEOUT_SETTING}={A_DAY_MS} in server.properties keeps them"
            " for a day"
        )
    if coordinators.prepared:
        ids = listing(coordinators.prepared, "transactional ids")
        yield (
            f"{counted(len(coordinators.prepared), 'transaction')} decided but not ended ({ids}): a"
            " start carries the decisions out"
        )
    if coordinators.expired_ids_count:
        yield (
            f"{coordinators.expired_ids_count} of {coordinators.transactional_ids_count}"
            " transactional ids have been idle for seven days: a start forgets them, unless"
            " transactional.id.expiration.ms is set higher first"
        )
    hanging = [
        f"{each.key}: the transaction of producer {opened.producer_id} is open since offset"
        f" {opened.first_offset}, and no coordinator here knows of it: consumers wait there, see"
        " eoctl txn hanging"
        for each in found.taken
        for opened in each.survey.open_transactions or ()
        if opened.producer_id not in coordinators.ongoing_producer_ids
    ]
    yield from first_of(hanging, "transactions that nobody ends")


def _told_of_groups(found: FoundCopies) -> Iterator[str]:
    coordinators = found.coordinators
    if coordinators.expired_offsets_count:
        yield (
            f"{coordinators.expired_offsets_count} offsets of groups without members are older than"
            " seven days: a broker deletes them minutes after its start, unless its"
            " offsets.retention.minutes is set higher first"
        )
    yield from first_of(
        [
            f"group {each.group}: has {each.offset} committed for {each.key}, whose log ends at"
            f" {each.end_offset}: auto.offset.reset decides where it goes on"
            for each in coordinators.beyond_end
        ],
        "committed offsets beyond the end of their log",
    )
    yield from first_of(list(coordinators.problems), "problems")


def _told_of_sources(adoption: Adoption, found: FoundCopies, way: str) -> Iterator[str]:
    if way == "link":
        yield (
            ".log files of closed segments are one file with the source: neither a broker nor eoctl"
            " writes to them, and what one of them deletes stays for the other"
        )
    elif way == "move":
        yield (
            "the sources keep their directories with partition.metadata; what was in them stays in"
            " the backup, if one is kept, until it is pruned"
        )
    others = other_owners(
        adoption.log_dir, [str(Path(each.copy.path).parent) for each in found.taken]
    )
    if others:
        yield (
            f"{listing(others, 'sources')}: of another owner than {adoption.log_dir} will be: give"
            " it to the user that the broker runs as (chown -R) before the start"
        )
