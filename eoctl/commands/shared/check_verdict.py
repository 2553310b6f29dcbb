"""The verdict of a check in words: at most six lines, the worst first."""

from __future__ import annotations

import re
import textwrap
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from eoctl.console.columns import TIE, size_text, with_durations
from eoctl.console.style import style_of
from eoctl.messages import (
    LABEL_WIDTH,
    Line,
    Said,
    broken,
    fitting,
    listing,
    moment,
    said_line,
    span,
    step_text,
)
from recovery.checks.context.broker_version import (
    CHECKED,
    check_release,
    is_passed_over,
    parse_broker_version,
    refused_settings,
    unsupported_features,
)
from recovery.checks.context.collector import MAX_KEPT_COUNT, Collector
from recovery.checks.log_dirs.log_dirs import DELETES
from recovery.cluster.placement import DirFate, nodes_of
from recovery.fsck.next_command import Found, find_next_command
from recovery.fsck.start_loss import start_loss
from recovery.fsck.verdict import (
    Answer,
    Checked,
    Held,
    NodeFacts,
    Obstacle,
    node_start,
    verdict_of,
)
from recovery.rules.findings import Severity
from recovery.start.files import StartAction
from storage.counts import agreeing, counted
from storage.dirs.partition import Partition
from storage.errors import AccessError, EoctlError, call_text, pasted
from storage.file_names import METADATA_TOPIC, DirState, FileKind, classify, is_below

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from eoctl.commands.shared.check_run import CheckRequest, CheckRun
    from recovery.checks.context.broker_version import BrokerVersion
    from recovery.forecast.one_forecast import LogForecast
    from recovery.fsck.one_pass import PartitionRow
    from recovery.fsck.start_loss import StartLoss
    from recovery.fsck.verdict import DirectoryVerdict, Folded, NodeStart
    from recovery.rules.findings import Finding
    from storage.dirs.cluster_image import ClusterImage
    from storage.dirs.log_dir import LogDir


MAX_FINDINGS = 200  # lines; -v prints all of them
# Files that a broker uses for the closed part of a log. A finding names its file if it is not the
# .log.
_OWN_NAMES = frozenset({FileKind.INDEX, FileKind.TIMEINDEX, FileKind.TXNINDEX, FileKind.SNAPSHOT})
# Offsets without a record inside a batch of a topic that is not compacted.
_GAPS = frozenset({"BAT-5"})
_WHEN = re.compile(r" of \d{4}-\S+ \S+ UTC \(journal .*\)$")  # time of a change by eoctl


def lines(verdict: DirectoryVerdict, width: int, cluster: str = "") -> Iterator[Line]:
    """Yield the lines of a verdict for a terminal of this many columns.

    `cluster`: the states of the checked replicas in the metadata, "" if unknown.
    """
    for each in top(verdict, width):
        yield from broken(said_line(each), width)
    yield Line("")
    yield from _findings(verdict, width)
    yield from _clean(verdict)
    if cluster:
        label = f"{'cluster':{LABEL_WIDTH}}"
        yield from map(
            Line,
            textwrap.wrap(f"{label}{cluster}", max(width, 40), subsequent_indent=" " * LABEL_WIDTH),
        )
    yield from _left_out(verdict, width)


def top(verdict: DirectoryVerdict, width: int) -> list[Said]:
    """Return the first lines: at most eight, each within `width` columns except a command."""
    room = width - LABEL_WIDTH
    return [
        _start_line(verdict, room),
        *_other_releases(verdict),
        *_cut(verdict, room),
        *_takes(verdict, room),
        *_lost(verdict, room),
        *_blocked_line(verdict, room),
        _next(verdict, room),
        Said("Checked", fitting(_checked_line(verdict.checked), room)),
    ]


def _other_releases(verdict: DirectoryVerdict) -> Iterator[Said]:
    """Yield the command for the matching release, if the metadata are of another release."""
    of_release = [
        each
        for each in verdict.starts
        if each.answer is Answer.NO and any(one.check_id == "KRF-4" for one in each.obstacles)
    ]
    if of_release:
        paths = " ".join(pasted(path) for each in of_release for path in each.log_dirs)
        yield Said("Other", f"eoctl releases {paths}   # which releases start there")


# --- start ----------------------------------------------------------------------------------------


def _start_line(verdict: DirectoryVerdict, room: int) -> Said:
    release = f"Kafka {verdict.release}"
    if len(verdict.starts) > 1:
        return _start_of_many(verdict, room)
    start = next(iter(verdict.starts), None)
    if start is None:
        why = "the log dir around is none that can be read"
        return Said("Start", f"unknown: {why}", Severity.WARNING.rank)
    if start.answer is Answer.YES:
        gone_on = [f"without the log dir {each}: {one}" for each, one in _offline(start)]
        text = f"{release} will start, as far as its files show"
        if verdict.cuts or verdict.not_served:
            takes = f"{release} will start, and removes what follows"
            return Said("Start", fitting([takes], room), _cut_rank(verdict).rank)
        if gone_on:
            long = f"{release} will start {gone_on[0]}"
            return Said("Start", fitting([long], room), Severity.ERROR.rank)
        goes = _removed(verdict)
        return Said(
            "Start", fitting([f"{text}, and {goes}", f"{release} will start, and {goes}"], room)
        )
    return Said("Start", _stopped(start, release, room), _rank_of(start))


def _removed(verdict: DirectoryVerdict) -> str:
    """Return what a start removes that truncates no log, in words."""
    if not verdict.deleted:
        return "removes no record"
    directories = counted(len(verdict.deleted), "-delete directory", "-delete directories")
    return f"removes only {directories}"


def _rank_of(start: NodeStart) -> int:
    if start.answer is Answer.NO:
        return Severity.ERROR.rank + 1  # before all else
    is_found = any(each.check_id for each in start.obstacles)
    return (Severity.ERROR if is_found else Severity.WARNING).rank


def _offline(start: NodeStart) -> list[tuple[str, str]]:
    return [(each.path, each.what) for each in start.offline]


def _stopped(start: NodeStart, release: str, room: int) -> str:
    """Return "no" with the reason for the failed start, or "unknown" with the reason."""
    is_no = start.answer is Answer.NO
    heads = [f"{release} will NOT start: ", "will NOT start: ", "NO: "] if is_no else ["unknown: "]
    first, *others = start.obstacles
    more = f" (and {len(others)} more)" if others else ""
    whys = [f"{each}{end}" for each in _shorter(first) for end in (more, "")]
    texts = [f"{head}{each}" for head in heads for each in whys]
    return fitting([*texts, f"{heads[0]}{whys[-1]}"], room)  # the last text may be shortened


def _shorter(obstacle: Obstacle) -> Iterator[str]:
    """Yield texts of an obstacle, longest first. Each names the file."""
    if not obstacle.path:
        yield obstacle.what
        return
    path = Path(obstacle.path)
    for each in (str(path), str(Path(*path.parts[-2:])), path.name):
        yield f"{each}: {obstacle.what}"
    if path.name in obstacle.what:
        yield obstacle.what


def _start_of_many(verdict: DirectoryVerdict, room: int) -> Said:
    counts = {each: [start for start in verdict.starts if start.answer is each] for each in Answer}
    words = {
        Answer.NO: f"Kafka {verdict.release} will NOT start",
        Answer.UNKNOWN: "unknown",
        Answer.YES: f"Kafka {verdict.release} will start",
    }
    parts = [
        f"{listing([_node(each) for each in counts[answer]], 'nodes')}: {words[answer]}"
        for answer in (Answer.NO, Answer.UNKNOWN, Answer.YES)
        if counts[answer]
    ]
    worst = min(verdict.starts, key=lambda each: [*words].index(each.answer))
    why = next(iter(_shorter(worst.obstacles[0])), "") if worst.obstacles else ""
    texts = [f"{'; '.join(parts)} ({why})"] if why else []
    rank = 0 if worst.answer is Answer.YES else _rank_of(worst)
    return Said("Start", fitting([*texts, "; ".join(parts), parts[0]], room), rank)


def _node(start: NodeStart) -> str:
    return "a node" if start.node_id is None else f"node {start.node_id}"


# --- truncated records ----------------------------------------------------------------------------


def _cut_rank(verdict: DirectoryVerdict) -> Severity:
    is_record = any(each.records_count or each.is_least for each in verdict.cuts)
    return Severity.ERROR if is_record or verdict.not_served else Severity.NOTE


def _cut(verdict: DirectoryVerdict, room: int) -> Iterator[Said]:
    """Yield what the start truncates: records, acknowledged records, their times and places."""
    if not verdict.cuts and not verdict.not_served:
        return
    aside = ""
    if verdict.not_served:
        names = [f"{each.topic}-{each.partition}" for each in verdict.not_served]
        does = "deletes" if verdict.not_served[0].start == DELETES else "sets aside"
        aside = f"{does} {listing(names, 'partitions')} as none of its own"
    texts = _cut_texts(verdict.cuts)
    both = [f"{texts[0]}; {aside}", f"{texts[-1]}; {aside}"] if texts and aside else []
    yield Said("Removes", fitting([*both, *(texts or [aside])], room), _cut_rank(verdict).rank)


def _cut_texts(cuts: Sequence[StartLoss]) -> list[str]:
    """Return the texts, longest first."""
    losing = [each for each in cuts if each.records_count]
    if not losing:
        places = listing([f"{each.topic}-{each.partition}" for each in cuts], "partitions")
        log_bytes = sum(each.log_bytes for each in cuts)
        what = (
            "which cannot be read"
            if any(e.is_least for e in cuts)
            else "which hold no whole record"
        )
        return [f"{size_text(log_bytes)} of {places}, {what}"] if cuts else []
    places = listing([f"{each.topic}-{each.partition}" for each in losing], "partitions")
    topics = listing(list(dict.fromkeys(each.topic for each in losing)), "topics")
    count = _count(sum(each.records_count for each in cuts), cuts)
    acknowledged = _acknowledged(losing)
    return [
        f"{count} of {places}, {acknowledged}, {_when(losing)}",
        f"{count} of {topics}, {acknowledged}, {_when(losing)}",
        f"{count} of {topics}, {acknowledged}, {_when(losing, is_short=True)}",
        f"{count}, {acknowledged}, {_when(losing, is_short=True)}",
        f"{count}, {acknowledged}",
    ]


def _count(records_count: int, cuts: Sequence[StartLoss]) -> str:
    least = "at least " if any(each.is_least for each in cuts) else ""
    return f"{least}{counted(records_count, 'record')}"


def _acknowledged(cuts: Sequence[StartLoss]) -> str:
    counts = [each.acknowledged_count for each in cuts]
    if None in counts:
        return "how many acknowledged is unknown"
    total = sum(each or 0 for each in counts)
    if total == sum(each.records_count for each in cuts):
        return "all acknowledged"
    return f"{total:,} acknowledged" if total else "none acknowledged"


def _when(cuts: Sequence[StartLoss], *, is_short: bool = False) -> str:
    firsts = [each.first_ms for each in cuts if each.first_ms is not None]
    lasts = [each.last_ms for each in cuts if each.last_ms is not None]
    if not firsts or not lasts:
        return "without timestamps"
    return span(min(firsts), max(lasts), is_short=is_short)


def _cut_line(cut: StartLoss) -> str:
    """Return the line of a partition that a start truncates."""
    place = f"{cut.topic}-{cut.partition}"
    if not cut.records_count and cut.is_least:
        where = "" if cut.first_offset is None else f", from offset {cut.first_offset} on"
        return f"{place}: truncates {size_text(cut.log_bytes)} that cannot be read{where}"
    if not cut.records_count:
        return f"{place}: truncates {size_text(cut.log_bytes)} without a whole record"
    offsets = f"offsets {cut.first_offset}..{cut.last_offset}"
    what = f"takes {cut.first_offset} for the log end, and hides" if cut.is_hidden else "truncates"
    count = _count(cut.records_count, [cut])
    return f"{place}: {what} {offsets}, {count}, {_acknowledged([cut])}, {_when([cut])}"


# --- what the broker's tasks take after the start ---------------------------------------------


def _takes(verdict: DirectoryVerdict, room: int) -> Iterator[Said]:
    """Yield what retention deletes at its first run."""
    if not verdict.takes:
        return
    places = [f"{each.log.topic}-{each.log.partition}" for each in verdict.takes]
    what = taken_count(verdict.takes)
    texts = [
        f"retention deletes {what} of {listing(places, 'partitions')} at its first run",
        f"retention deletes {what} of {counted(len(places), 'partition')} at its first run",
        f"retention deletes {what} at its first run",
    ]
    yield Said("Takes", fitting(texts, room), Severity.WARNING.rank)


def taken_count(forecasts: Iterable[LogForecast]) -> str:
    """Return the number of records that first runs take, or of segments if it is unknown."""
    rows = [row for each in forecasts for row in each.first_run]
    counts = [row.records_count for row in rows]
    if None in counts:
        return counted(len(rows), "segment")
    return counted(sum(count or 0 for count in counts), "record")


def takes_text(forecast: LogForecast) -> str:
    """Return what the first run of retention deletes of a partition, and why."""
    rows = forecast.first_run
    first, last = rows[0], rows[-1]
    size = size_text(sum(row.size_bytes or 0 for row in rows))
    why = first.by if not first.setting else f"{first.setting}={first.setting_value}"
    return (
        f"{forecast.log.topic}-{forecast.log.partition}: the first run of retention after the start"
        f" deletes offsets {first.base_offset}..{(last.end_offset or 0) - 1}, {size}, by {why}"
    )


# --- lost and blocked records ---------------------------------------------------------------------


def _lost(verdict: DirectoryVerdict, room: int) -> Iterator[Said]:
    """Yield the damage that is in the log already, independent of a start."""
    parts, short = [], []
    if verdict.by_changes:
        first, *later = [each.message for each in verdict.by_changes]
        more = f", {len(later):,} more such changes" if later else ""
        parts.append(f"{first}{more}")
        short.append(f"{_WHEN.sub('', first)}{more}")
    if verdict.missing:
        offsets = [each.offsets_count for each in verdict.missing]
        count = None if None in offsets else sum(each or 0 for each in offsets)
        noun = "acknowledged offset"
        text = f"{noun}s missing" if count is None else f"{counted(count, noun)} missing"
        parts.append(f"{text}: {listing([_offsets(each) for each in verdict.missing], 'places')}")
        short.append(text)
    if verdict.damaged:
        places = listing([_offsets(each) for each in verdict.damaged], "places")
        short.append(counted(len(verdict.damaged), "damaged place"))
        parts.append(f"damaged: {places}")
    others_count = _other_errors_count(verdict)
    if parts:
        if others_count:
            short.append(counted(others_count, "other error"))
        texts = ["; ".join(parts), "; ".join([parts[0], *short[1:]]), "; ".join(short)]
        worst = max((each.severity.rank for each in verdict.by_changes), default=0)
        is_grave = bool(verdict.missing or verdict.damaged)
        rank = Severity.ERROR.rank if is_grave else worst
        yield Said("Lost", fitting(texts, room), rank)
    elif others_count:
        text = f"no record, but {counted(others_count, 'error')}, see below"
        yield Said("Lost", text, Severity.ERROR.rank)
    elif not verdict.checked.unread_count:
        yield Said("Lost", fitting(_nothing(verdict), room), _nothing_rank(verdict))


def _nothing(verdict: DirectoryVerdict) -> list[str]:
    """Return texts that nothing is lost, as far as known, longest first."""
    checked = verdict.checked
    how = "nothing by the headers" if checked.is_fast else "nothing: no damaged batch"
    if _gaps_count(verdict):
        gaps = counted(_gaps_count(verdict), "gap")
        return [f"unknown: {gaps} between offsets, but no damaged batch", f"unknown: {gaps}"]
    if verdict.suspected:
        text = f"suspected: {counted(_producers_count(verdict), 'producer')} with missing sequences"
        return [f"{text}, but no damaged batch", text]
    if not checked.unmarked_count:
        return [f"{how}, none missing below the high watermarks", how]
    unmarked = f"{checked.unmarked_count:,} of {checked.partitions_count:,} without high watermark"
    return [f"{how}; {unmarked}", unmarked]


def _producers_count(verdict: DirectoryVerdict) -> int:
    words = {(each.topic, each.partition, each.message.split(",")[0]) for each in verdict.suspected}
    return len(words)


def _nothing_rank(verdict: DirectoryVerdict) -> int:
    is_doubtful = bool(_gaps_count(verdict) or verdict.suspected)
    return Severity.WARNING.rank if is_doubtful else Severity.NOTE.rank


def _other_errors_count(verdict: DirectoryVerdict) -> int:
    """Return the number of errors other than damage or missing records, with consequences."""
    reported = {*verdict.missing, *verdict.damaged, *verdict.by_changes}
    return sum(
        each.severity is Severity.ERROR and each not in reported
        for folded in verdict.listed
        for each in (folded.finding, *folded.consequences)
    )


def _gaps_count(verdict: DirectoryVerdict) -> int:
    return sum(
        each.finding.check_id in _GAPS and each.finding.severity is not Severity.NOTE
        for each in verdict.listed
    )


def _offsets(finding: Finding) -> str:
    place = f"{finding.topic}-{finding.partition}"
    if finding.partition is None:
        return Path(finding.path).name
    return f"{place} {_range(finding)}".rstrip()


def _range(finding: Finding) -> str:
    first, last = finding.base_offset, finding.last_offset
    if first is None:
        return "" if last is None else f"..{last}"
    if last is None:
        return f"{first}.."
    return str(first) if first == last else f"{first}..{last}"


def _blocked_line(verdict: DirectoryVerdict, room: int) -> Iterator[Said]:
    """Yield the partition that blocks, its offset, and the time since when."""
    if not verdict.held:
        return
    first, *others = verdict.held
    where = f"{first.topic}-{first.partition}"
    stops = f"stops at {first.first_offset}"
    if first.end_offset is not None:
        stops += f" of {first.end_offset}"
    times = [""]
    if first.since_ms is not None:
        times = [f" since {moment(first.since_ms, is_short=each)}" for each in (False, True)]
    more = f", {len(others):,} more" if others else ""
    late = "" if first.is_late else "; not late"
    texts = [f"read_committed of {where} {stops}{each}{more}{late}" for each in times]
    texts += [f"{where} {stops}{each}{more}{late}" for each in times]
    texts.append(f"{counted(len(verdict.held), 'partition')} with open transactions{late}")
    rank = Severity.WARNING if first.is_late else Severity.NOTE
    yield Said("Blocked", fitting(texts, room), rank.rank)


# --- next command and scope -----------------------------------------------------------------------


def _next(verdict: DirectoryVerdict, room: int) -> Said:
    call = verdict.call
    if call is None:
        return Said("Next", "nothing to do")
    if not call.words:
        return Said("Next", step_text(call.sentence))  # with its paths
    command = call_text(call.words)
    reads = f"reads {size_text(call.reads_bytes)}, " if call.reads_bytes else ""
    texts = [
        f"{command}   # {reads}{call.why}",
        f"{command}   # {call.why}",
        f"{command}   # {reads.rstrip(', ')}" if reads else command,
    ]
    # A command is never shortened, ready to paste.
    return Said("Next", next((each for each in texts if len(each) <= room), command))


def next_command(verdict: DirectoryVerdict) -> str:
    """Return the next command, ready to paste, or "" if there is none."""
    return "" if verdict.call is None else call_text(verdict.call.words)


def _checked_line(checked: Checked) -> list[str]:
    what = "headers, checksums; not the records (--deep)"
    if checked.is_deep:
        what = "headers, checksums, records"
    if checked.is_fast:
        what = "headers only, no checksums (--fast)"
    count = counted(checked.partitions_count, "partition")
    amount = f"{count}, {size_text(checked.log_bytes)}"
    unread = f"; {checked.unread_count:,} NOT READ" if checked.unread_count else ""
    skipped = f"; {checked.skipped_count:,} left out" if checked.skipped_count else ""
    return [
        f"{amount}: {what}{unread}{skipped}",
        f"{count}: {what}{unread}{skipped}",
        f"{what}{unread}{skipped}",
    ]


# --- findings -------------------------------------------------------------------------------------


class _Row(NamedTuple):
    severity: str
    text: str


def _findings(verdict: DirectoryVerdict, width: int) -> Iterator[Line]:
    several = len({path for each in verdict.starts for path in each.log_dirs}) > 1
    rows = [_Row("start", _cut_line(each)) for each in verdict.cuts]
    rows += [_Row("start", takes_text(each)) for each in verdict.takes[:MAX_FINDINGS]]
    rows += [
        _Row(each.finding.severity, _finding_text(each, has_path=several))
        for each in verdict.listed[:MAX_FINDINGS]
    ]
    for severity, text in rows:
        first, *others = textwrap.wrap(
            text,
            max(width, 40),
            initial_indent=f"{severity:{LABEL_WIDTH}}",
            subsequent_indent=" " * LABEL_WIDTH,
            break_long_words=False,
            break_on_hyphens=False,
        )
        yield Line(first.replace(TIE, " "), style_of(severity))
        yield from (Line(each.replace(TIE, " ")) for each in others)


def _finding_text(folded: Folded, *, has_path: bool) -> str:
    """Return place, message, the broker's action, and the number of consequences."""
    each = folded.finding
    action = each.broker_action
    # The action on an open transaction concerns its file, not the transaction.
    is_idle = action in {"", "nothing"} or each.check_id == "TXO-1"
    cuts = f"{StartAction.TRUNCATES} to "
    if action.startswith(cuts):
        action = f"truncates the file at byte {action.removeprefix(cuts)}"
    does = "" if is_idle else f"; broker {action}"
    following = len(folded.consequences)
    worst = max((one.severity.rank for one in folded.consequences), default=0)
    more = ""
    if following:
        error = " (errors too)" if worst == Severity.ERROR.rank else ""
        more = f" [+{following} that follow{error}]"
    message = with_durations(each.message, TIE)
    return f"{_place(folded, has_path=has_path)}: {message}{does}{more} ({each.check_id})"


def _place(folded: Folded, *, has_path: bool) -> str:
    each = folded.finding
    if each.partition is None:
        return each.path
    name = Path(each.path).name
    kind = classify(name).kind
    file = f" {Path(name).suffix}" if kind in _OWN_NAMES else ""
    where = folded.directory if has_path and folded.directory else f"{each.topic}-{each.partition}"
    return f"{where}{file} {_range(each)}".rstrip()


def _clean(verdict: DirectoryVerdict) -> Iterator[Line]:
    count = verdict.checked.clean_count
    if count:
        text = f"{'clean':{LABEL_WIDTH}}{counted(count, 'partition')} without a finding"
        yield Line(text, style_of("clean"))


def _left_out(verdict: DirectoryVerdict, width: int) -> Iterator[Line]:
    """Yield what these lines do not show."""
    checked = verdict.checked
    following = sum(len(each.consequences) for each in verdict.listed)
    parts = [f"rows of {counted(checked.partitions_count, 'partition')}"]
    if following:
        verb = agreeing(following, "follows", "follow")
        parts.append(f"{counted(following, 'finding')} that {verb} from others")
    if len(verdict.listed) > MAX_FINDINGS:
        parts.append(counted(len(verdict.listed) - MAX_FINDINGS, "finding"))
    if checked.unlisted_count:
        parts.append(f"{checked.unlisted_count:,} more of the same kinds, in no output")
    text = f"not shown: {', '.join(parts)}; -v or --output jsonl shows all fields"
    yield from map(Line, textwrap.wrap(text, width, break_on_hyphens=False))


# -- from a run of check to its verdict: the given parts of each node, truncated and blocked records


def verdict_of_run(run: CheckRun, request: CheckRequest) -> DirectoryVerdict:
    """Return the verdict of a completed run.

    Truncated bytes, and a batch for each partition with an open transaction, are read here.
    """
    partitions = dict(_listable(run))
    cuts = [*_cuts(run, partitions)]
    held = [*_held(run, partitions)]
    takes = [each for each in run.forecasts if each.first_run]
    starts = [
        _start(run, request, each)
        for each in nodes_of(run.found.log_dirs, is_one=run.node is not None)
    ]
    call = find_next_command(
        Found(
            paths=tuple(request.paths),
            metadata_dir=request.metadata_dir,
            findings=run.placed,
            rows=run.rows,
            starts=starts,
            cuts=cuts,
            held=held,
            is_taken=bool(takes),
        )
    )
    return verdict_of(
        release=request.broker_version or str(CHECKED),
        starts=starts,
        findings=run.placed,
        rows=run.rows,
        cuts=cuts,
        held=held,
        checked=_checked(run, request, partitions.values()),
        call=call,
        takes=takes,
    )


def _listable(run: CheckRun) -> Iterator[tuple[str, Partition]]:
    """Yield partitions by directory, except those with a row that says they cannot be listed."""
    for each in run.jobs:
        with suppress(AccessError):
            yield each.selected.partition.path, Partition.of(each.selected, each.image)


def _checked(run: CheckRun, request: CheckRequest, partitions: Iterable[Partition]) -> Checked:
    counts = {row.path: _findings_count(row) for row in run.rows}
    listed = sum(bool(directory) for directory, _ in run.placed)
    # A finding on a directory as an entry of its log dir is its finding, too.
    reported = [each.path for directory, each in run.placed if not directory]
    return Checked(
        partitions_count=len(run.rows),
        clean_count=sum(
            not counts[row.path]
            and not row.unreadable
            and not any(is_below(each, row.path) for each in reported)
            for row in run.rows
        ),
        unread_count=run.unreadable_count,
        unlisted_count=sum(counts.values()) - listed,
        log_bytes=sum(row.log_bytes or 0 for row in run.rows),
        is_deep=request.is_deep,
        is_fast=request.is_fast,
        skipped_count=len(run.found.selected) - len(run.rows),
        unmarked_count=sum(
            each.high_watermark is None
            and each.directory.name.state is DirState.LIVE
            and each.topic != METADATA_TOPIC
            for each in partitions
        ),
    )


def _findings_count(row: PartitionRow) -> int:
    return (row.errors or 0) + (row.warnings or 0) + (row.notes or 0)


def _cuts(run: CheckRun, partitions: dict[str, Partition]) -> Iterator[StartLoss]:
    for row in run.rows:
        if row.path not in partitions:
            continue
        try:
            changes = run.changes_of.get(row.path, ())
            cut = start_loss(partitions[row.path], row, changes, _kept_end(run, row.path))
        except EoctlError:
            continue  # unreadable, as its row says
        if cut is not None:
            yield cut


def _kept_end(run: CheckRun, path: str) -> int | None:
    """Return the end of a -future directory that replaces a longer directory, or None."""
    for node in run.placements:
        placed = node.placed.get(path)
        if placed is not None and placed.fate is DirFate.REPLACED:
            shortfall = node.shortfall(node.placed[placed.other])
            return None if shortfall is None else shortfall[0]
    return None


def _held(run: CheckRun, partitions: dict[str, Partition]) -> Iterator[Held]:
    opened: dict[str, list[Finding]] = {}
    for directory, each in run.placed:
        if each.check_id == "TXO-1" and each.base_offset is not None:
            opened.setdefault(directory, []).append(each)
    rows = {row.path: row for row in run.rows}
    for path, found in opened.items():
        first_offset = min(each.base_offset or 0 for each in found)
        row = rows[path]
        yield Held(
            topic=row.topic,
            partition=row.partition,
            path=path,
            first_offset=first_offset,
            end_offset=row.end_offset,
            since_ms=_time_at(partitions[path], first_offset),
            is_late=any(each.severity is not Severity.NOTE for each in found),
            open_count=len(found),
            is_least=len(found) >= MAX_KEPT_COUNT,
        )


def _time_at(partition: Partition, offset: int) -> int | None:
    """Return the timestamp of the batch with an offset."""
    try:
        place = partition.find_offset(offset)
    except EoctlError:
        return None
    if place is None:
        return None
    header = place.batch.header
    first_ms = header.base_timestamp_ms
    return first_ms if first_ms >= 0 else None


# --- nodes ----------------------------------------------------------------------------------------


def _start(run: CheckRun, request: CheckRequest, log_dirs: list[LogDir]) -> NodeStart:
    paths = [each.path for each in log_dirs]
    rows = tuple(row for row in run.rows if any(is_below(row.path, each) for each in paths))
    image = run.clusters.image_for(log_dirs[0])
    return node_start(
        NodeFacts(
            log_dirs=tuple(log_dirs),
            whole_paths=frozenset(each.path for each in run.found.whole),
            rows=rows,
            findings=tuple(
                each
                for each in run.placed
                if any(is_below(each.finding.path, path) for path in paths)
            ),
            image=image,
            release_problems=tuple(_release_problems(log_dirs, image, request)),
            gaps=tuple(_gaps(run, request, rows)),
            refused=tuple(
                ()
                if request.broker_version is None
                else _refused(image, parse_broker_version(request.broker_version))
            ),
        )
    )


def _release_problems(
    log_dirs: list[LogDir], image: ClusterImage | None, request: CheckRequest
) -> Iterator[Obstacle]:
    """Yield why the default release may be wrong for these log dirs."""
    if request.broker_version is not None:
        return
    release = CHECKED.line
    yield from _refused(image, release)
    for log_dir in log_dirs:
        collector = Collector()
        check_release(log_dir, collector, release, is_kraft=bool(image and image.end_offset))
        for each in collector.kept:
            yield Obstacle(each.path, each.message, each.check_id, fix=_NAME_RELEASE)
    for feature in unsupported_features({} if image is None else image.features, release):
        yield Obstacle("", f"Kafka {release} does not know {feature}", "KRF-4", fix=_NAME_RELEASE)


def _refused(image: ClusterImage | None, release: BrokerVersion) -> Iterator[Obstacle]:
    """Yield topic settings with which a release loads no log at all."""
    if image is None or is_passed_over(image, release):
        return
    for each in refused_settings(image.configs, release).values():
        yield Obstacle("", f"Kafka {release} does not start with {each}", "KRF-4", fix=_SET_IT)


_SET_IT = "set a larger value with the release that runs now (kafka-configs.sh --alter)"
_NAME_RELEASE = "name the release that starts here: --broker-version VERSION"


def _gaps(run: CheckRun, request: CheckRequest, rows: tuple[PartitionRow, ...]) -> Iterator[str]:
    if len(run.rows) < len(run.found.selected):
        left_out_count = len(run.found.selected) - len(run.rows)
        yield (
            f"{counted(left_out_count, 'partition')} {agreeing(left_out_count, 'was', 'were')}"
            " left out, as requested"
        )
    if request.is_fast and any(row.recovered_bytes for row in rows):
        yield "it verifies checksums, and they were not verified (--fast)"
    if run.unread_count:
        partitions = counted(run.unread_count, "partition")
        yield f"{partitions} unchanged and not read again (--resume)"
    if run.unreadable_count:
        yield f"{counted(run.unreadable_count, 'file')} could not be read"
