"""What a plan comes to in four lines, and what was done in three; for a terminal.

Plan    cut txn-0 back from 318 to 300; 9 files change
Loses   13 records, 6 acknowledged; 6 transactions changed
Undo    yes: backups are made first, eoctl undo puts every byte back
Next    eoctl truncate kafka/txn-0 --to-offset 300 --apply
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from eoctl import call
from eoctl.face.columns import size_text
from eoctl.face.style import screen_size
from eoctl.runs.told import LABEL_WIDTH, NO_UNDO, Line, Said, counted, fitting, said_line
from recovery.changes.journals.journal import Status
from recovery.changes.journals.losses import lost_by_cut
from recovery.rules.findings import Severity
from storage.errors import call_text
from storage.file_names import METADATA_TOPIC

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from eoctl.change_options import ChangeOptions
    from recovery.changes.journals.backups import Applied
    from recovery.changes.journals.journal import Journal
    from recovery.changes.plans.plan import Plan

NO_RECORD = "no record: only files that are derived from the log"


class PlanAnswer(NamedTuple):
    """What a plan does and what is lost by it, each from the longest to the shortest words.

    Attributes:
        verbs: of what is to be done, and of what was done.
        does: what follows the verb.
        loses: records, of them acknowledged, transactions.
        is_loss: something of it was in the log.
        blocks: what read_committed consumers wait for afterwards; empty: for nothing.
    """

    verbs: tuple[str, str]
    does: tuple[str, ...]
    loses: tuple[str, ...]
    is_loss: bool = False
    blocks: tuple[str, ...] = ()


def plan_lines(
    answer: PlanAnswer | None,
    plans: Sequence[Plan],
    change: ChangeOptions,
    nothing: str,
    width: int,
) -> Iterator[Line]:
    """Tell a plan that was not applied."""
    room = width - LABEL_WIDTH
    if not plans:
        if nothing:
            yield said_line(Said("Plan", fitting([f"nothing: {nothing}"], room)))
        return
    if answer is not None:
        files = counted(sum(len(each.steps) for each in plans), "file")
        does = [f"{answer.verbs[0]} {each}" for each in answer.does]
        yield said_line(Said("Plan", fitting([f"{does[0]}; {files} change", *does], room)))
        yield _loses("Loses", answer, room)
        yield from _blocks(answer, room)
    undo = "yes: backups are made first, eoctl undo puts every byte back"
    yield said_line(Said("Undo", NO_UNDO if change.no_backup else undo))
    saved = change.save_plan
    command = call.again("--apply") if saved is None else call_text(["eoctl", "apply", saved])
    yield said_line(Said("Next", command))


def done_lines(
    answer: PlanAnswer | None,
    applied: Sequence[Applied],
    *,
    with_later: bool,
    width: int,
) -> Iterator[Line]:
    """Tell what was applied, and how it is taken back."""
    if not applied:
        return
    room = width - LABEL_WIDTH
    if answer is not None:
        yield said_line(
            Said("Done", fitting([f"{answer.verbs[1]} {e}" for e in answer.does], room))
        )
        yield _loses("Lost", answer, room)
        yield from _blocks(answer, room)
    for each in applied:
        found = each.journal
        later = ["--with-later"] if with_later and not each.was_done else []
        command = call_text(["eoctl", "undo", *later, found.path])
        if not found.has_backup:
            command = "no: it was applied without a backup"
        yield said_line(Said("Undo", command))


def applied_lines(applied: Applied, price: dict[str, Any]) -> Iterator[Line]:
    """Tell what became of a saved plan, or of what was interrupted, and how it is taken back."""
    found = applied.journal
    files = counted(len(found.steps), "file")
    before = ", applied before" if applied.was_done else ""
    yield said_line(Said("Done", f"{found.command}: {files} changed{before}"))
    if "cut_start_offset" in price:
        answer = cut_answer("", price, path=found.arguments.get("partition", ""))
        room = screen_size()[0] - LABEL_WIDTH
        yield _loses("Lost", answer, room)
        yield from _blocks(answer, room)
    if found.status is Status.KEPT:
        undo = "no: it was gone on with since"
    elif not found.has_backup:
        undo = "no: it was applied without a backup"
    else:
        undo = call_text(["eoctl", "undo", found.path])
    yield said_line(Said("Undo", undo))


def undone_lines(journals: Sequence[Journal], *, is_dry: bool) -> Iterator[Line]:
    """Tell what was taken back, or could be."""
    for each in journals:
        files = counted(len(each.steps), "file")
        if is_dry:
            yield said_line(Said("Undo", f"{each.command} can be taken back: {files}"))
            yield said_line(Said("Next", call_text(["eoctl", "undo", each.path])))
        else:
            yield said_line(Said("Done", f"took back {each.command}: {files} as before it"))


def _loses(label: str, answer: PlanAnswer, room: int) -> Line:
    rank = Severity.ERROR if answer.is_loss else Severity.NOTE
    return said_line(Said(label, fitting(answer.loses, room), rank.rank))


def _blocks(answer: PlanAnswer, room: int) -> Iterator[Line]:
    """Tell what hangs afterwards; a command is never cut, for it is there to be pasted."""
    if answer.blocks:
        text = next((each for each in answer.blocks if len(each) <= room), answer.blocks[0])
        yield said_line(Said("Blocks", text, Severity.WARNING.rank))


# --- the commands ---------------------------------------------------------------------------------


def cut_answer(name: str, price: dict[str, Any], *, path: str, then: str = "") -> PlanAnswer:
    """Tell what a truncation comes to, or the cut of a rejoin, by its price.

    `path` is the partition, for the command that ends what is left open.
    """
    start, end = price["cut_start_offset"], price["cut_end_offset"]
    does = f"{name} back from {end} to {start}"
    records_count = price["records_count"]
    lost = lost_by_cut(price).text
    if records_count is None:
        lost = f"up to {lost}; something there cannot be read"
    changed = price["transactions_count"]
    transactions = ["its transactions are not known"] if changed is None else _transactions(changed)
    changes = [f"{counted(sum(changed.values()), 'transaction')} changed"] if changed else []
    return PlanAnswer(
        verbs=("cut", "cut"),
        does=(f"{does}{then}", does),
        loses=(
            "; ".join([lost, *transactions]),
            "; ".join([lost, *changes]),
            lost,
        ),
        is_loss=records_count != 0,
        blocks=_blocked(price, path),
    )


def _blocked(price: dict[str, Any], path: str) -> tuple[str, ...]:
    """Tell where read_committed stops for transactions that lose their marker and keep data."""
    count = (price["transactions_count"] or {}).get("reopened", 0)
    reopened = [each for each in price["transactions"] or () if each["outcome"] == "reopened"]
    if not count or not reopened:
        return ()
    first = min(reopened, key=lambda each: each["first_offset"])
    stops = f"read_committed stops at {first['first_offset']} of {price['cut_start_offset']}"
    until = f"{counted(count, 'transaction')} {'is' if count == 1 else 'are'} ended"
    call = ["eoctl", "txn", "abort", path, "--producer-id", str(first["producer_id"])]
    return (f"{stops} until {until}: {call_text(call)}",)


def _transactions(counts: dict[str, int]) -> list[str]:
    words = {
        "removed": "{} removed",
        "reopened": "{} left without a marker",
        "shortened": "{} shortened",
    }
    parts = [text.format(counts[name]) for name, text in words.items() if counts.get(name)]
    return [f"transactions: {', '.join(parts)}"] if parts else []


def abort_answer(row: dict[str, Any], price: dict[str, Any]) -> PlanAnswer:
    """Tell what the end of a transaction comes to."""
    name = f"{row['topic']}-{row['partition']}"
    marker = f"an ABORT marker of producer {row['producer_id']} to {name} at {row['marker_offset']}"
    records = counted(price["aborted_records_count"], "record")
    cut_bytes = price.get("cut_bytes") or 0
    torn = f"; {size_text(cut_bytes)} behind the last whole batch" if cut_bytes else ""
    after = row["last_stable_offset_after"]
    return PlanAnswer(
        verbs=("write", "wrote"),
        does=(marker, f"an ABORT marker to {name}"),
        loses=(
            f"{records} become aborted; read_committed goes on to {after}{torn}",
            f"{records} become aborted{torn}",
        ),
        is_loss=bool(price["aborted_records_count"] or cut_bytes),
    )


def commit_answer(price: dict[str, Any]) -> PlanAnswer:
    """Tell what a commit from outside comes to."""
    count = price["transactions_count"]
    markers = counted(price["markers_count"], "COMMIT marker")
    records = counted(price["committed_records_count"], "record")
    return PlanAnswer(
        verbs=("commit", "committed"),
        does=(
            f"{counted(count, 'transaction')}: {markers}, and what its coordinator writes"
            if count == 1
            else f"{counted(count, 'transaction')}: {markers}, and what their coordinators write",
            f"{counted(count, 'transaction')}: {markers}",
        ),
        loses=(
            f"no record; {records} come to read_committed consumers",
            "no record",
        ),
    )


def compared_lines(
    others_count: int, files_count: int, instead: Sequence[str] | None, *, is_changeable: bool
) -> Iterator[Line]:
    """Tell how derived files compare with what the log says, and how to go on.

    Args:
        others_count: of files that differ.
        files_count: of all.
        instead: if a log is damaged, what to do first, in words.
        is_changeable: a partition that differs is not `__cluster_metadata`.
    """
    files = counted(files_count, "derived file")
    equal = f"{files_count - others_count:,} of {files} equal what the log says"
    rank = Severity.WARNING if others_count else Severity.NOTE
    yield said_line(Said("Found", f"{equal}, {others_count:,} do not", rank.rank))
    if instead is not None:
        yield said_line(Said("Next", f"{call_text(instead)}   # the log is damaged"))
    elif others_count and not is_changeable:
        yield said_line(Said("Next", f"nothing to apply: {METADATA_TOPIC} is never changed"))
    elif others_count:
        yield said_line(Said("Loses", NO_RECORD))
        yield said_line(Said("Next", call.again("--apply")))
    yield Line("")


def derived_answer(files_count: int, partitions_count: int) -> PlanAnswer:
    """Tell what a rebuild comes to."""
    files, partitions = counted(files_count, "file"), counted(partitions_count, "partition")
    return PlanAnswer(
        verbs=("derive", "derived"),
        does=(f"{files} of {partitions} anew from the log", f"{files} anew"),
        loses=(NO_RECORD,),
    )
