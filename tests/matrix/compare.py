"""Where readers of one damaged log dir contradict each other, or what is on disk."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, NamedTuple

from tests.matrix.judge import good_batches
from tests.matrix.readers import CHECKSUMS, HEADERS, RECORDS, is_in

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.matrix.judge import Good
    from tests.matrix.readers import Context, Place, Row, Said

# What a scan of a `.log` says of a stretch of it; other rules are about what good batches hold.
SCAN_RULES = frozenset(
    {"", "BAT-1", "BAT-2", "BAT-3", "BAT-4", "BAT-7", "SEG-2", "SEG-3", "SEG-5", "SEG-6"}
)
_DEPTH = {None: 0, HEADERS: 1, CHECKSUMS: 2, RECORDS: 3}
# Who tells what is lost in rows of its own; the others name a place in a sentence.
_GIVERS = ("consume --skip-corrupt", "export")
_COUNTERS = ("describe", "dump-segment", "spark-audit")


class Contradiction(NamedTuple):
    """`kind` is place, field, status, sum, ... and `detail` is for people."""

    kind: str
    reader: str
    detail: str


def contradictions(context: Context, said: dict[str, Said]) -> Iterator[Contradiction]:
    """Everything that does not fit."""
    yield from _statuses(context, said)
    yield from _places(context, said)
    yield from _given(context, said)
    yield from _missing(said)
    yield from _sums(context, said)
    yield from _derived(context, said)


def _statuses(context: Context, said: dict[str, Said]) -> Iterator[Contradiction]:
    """Exit status 0 is for what is good as far as the reader looked."""
    unread = [log for each in context.partitions for log in each.glob("*.log") if not log.is_file()]
    alone = [log for log in unread if [*log.parent.glob("*.log")] == [log]]
    missing = [
        row for row in _findings(said) if row["check_id"] == "OFS-3" and row["severity"] == "error"
    ]
    errors = {row["check_id"] for row in _findings(said) if row["severity"] == "error"}
    for name, each in said.items():
        is_plan = name.startswith("repair")
        # Of a partition that is asked for alone, and whose only `.log` is no file, nothing is read.
        is_all_unread = alone and each.status == 3 and (is_plan or "recover-state" in name)
        if each.status not in {0, 1, 4, 5} and not is_all_unread:
            yield Contradiction("status", name, f"{each.status}: {each.words}")
        if unread and not each.status:
            yield Contradiction("false green", name, f"{unread[0]} was not read")
        # A dump is of the files that are there; who says nothing of all batches claims nothing.
        if missing and each.layer and not each.status and name != "dump-segment":
            yield Contradiction("false green", name, missing[0]["message"])
        reported = errors & set(re.findall(r"\[([A-Z]+-\d+b?)\]", each.words))
        if reported and not each.status and not is_plan:
            yield Contradiction("told and green", name, each.words)


# Of what was acknowledged and is not given.
_NOT_GIVEN = re.compile(r"(offsets \d+ to \d+ \(\d+\)) are (?:missing|on disk)")
_OF_WHOLE_LOGS = ("describe", "consume --skip-corrupt", *("export", "duplicates", "producers"))


def _missing(said: dict[str, Said]) -> Iterator[Contradiction]:
    """Who reads whole logs misses the same offsets as `check`."""
    expected = {each for row in _findings(said) for each in _NOT_GIVEN.findall(row["message"])}
    for name in (*_OF_WHOLE_LOGS, "spark-audit"):
        found = set(_NOT_GIVEN.findall(said[name].words))
        if name == "export":  # bytes at the end of a log are listed with the offsets they cost
            found |= {
                f"offsets {each.base_offset} to {each.last_offset}"
                f" ({each.last_offset - each.base_offset + 1})"
                for each in said[name].places
                if each.base_offset is not None and each.last_offset is not None
            } & expected
        if found != expected:
            yield Contradiction("missing", name, f"{sorted(found)}, check: {sorted(expected)}")
        if expected and not said[name].status:
            yield Contradiction("false green", name, f"{sorted(expected)} are missing")


def _findings(said: dict[str, Said]) -> list[Row]:
    return [row for row in said["check --deep"].rows if row["kind"] == "finding"]


def _derived(context: Context, said: dict[str, Said]) -> Iterator[Contradiction]:
    """`check`, `rebuild`, `recover-state` and `repair` say the same of a derived file."""
    spoiled = {each.path.split("/")[0] for each in known_places(context, said)}
    rebuilt = {
        f"{row['partition']}/{row['file']}": row["state"]
        for row in said["rebuild"].rows
        if row["kind"] == "derived_file"
    }
    found: dict[str, Row] = {}
    is_clean = (context.log_dir / ".kafka_cleanshutdown").exists()
    started = {
        os.path.relpath(context.log_dir / row["path"], context.log_dir)
        for row in said["check --predict"].rows
        if row["kind"] not in {"finding", "partition"}
    }
    for row in _findings(said):
        path = os.path.relpath(context.log_dir / row["path"], context.log_dir)
        # A missing index is told of its .log.
        found.setdefault(
            path.replace(".log", ".index") if row["check_id"] == "SEG-8" else path, row
        )
        yield from _fixes(said, row, path)
        if row["severity"] != "note" and rebuilt.get(path) == "equal":
            yield Contradiction("rebuild", "rebuild", f"{path}: equal, check: {row['message']}")
        is_state = path.endswith(".snapshot") and row["severity"] != "note"
        state = said["recover-state"]
        if is_state and not state.status and "was not compared" not in state.words:
            yield Contradiction("state", "recover-state", f"{path}: {row['message']}")
    for path, state in rebuilt.items():
        partition = path.split("/")[0]
        if state == "equal" or partition in spoiled or found.keys() & {path, partition}:
            continue
        if path in started:
            continue  # a start puts it right: no finding
        if path.endswith(".snapshot") and state == "missing" and not is_clean:
            continue  # a crash leaves none at the end
        yield Contradiction("unfounded", "rebuild", f"{path}: {state}, check: nothing")


def _fixes(said: dict[str, Said], row: Row, path: str) -> Iterator[Contradiction]:
    """What is to mend a finding has something to do."""
    command = row["fix"].split(" ")[1:2]
    if command and command[0] in {"rebuild", "recover-state"} and not said[command[0]].status:
        yield Contradiction("fix", command[0], f"{path}: {row['message']}: nothing to do")


class _Known(NamedTuple):
    """A place, what is known of it, and whether it is damage (or normal in this state)."""

    path: str
    start_pos: int
    end_pos: int
    layer: str
    is_bad: bool
    is_marker: bool
    reported: dict[str, Place]

    def holds(self, place: Place) -> bool:
        return place.path == self.path and self.start_pos <= place.start_pos < self.end_pos


def known_places(context: Context, said: dict[str, Said]) -> list[_Known]:
    """Stretches of `.log` files that any reader has something to say of, as a scan would."""
    reported = [
        (name, place) for name, each in said.items() for place in sorted(each.places, key=str)
    ]
    grave = {
        (row["check_id"], row["start_pos"])
        for row in said["check --deep"].rows
        if row["kind"] == "finding" and row["severity"] != "note"
    }
    known: list[_Known] = []
    for name, place in reported:
        is_range = place.end_pos is not None and place.end_pos > place.start_pos
        if not is_range or name.startswith("repair"):
            continue
        if not (place.verdict or place.check_id in SCAN_RULES):
            continue
        if any(each.holds(place) for each in known):
            continue
        # A position in a batch is as good as that of the batch.
        start = min(
            other.start_pos
            for _, other in reported
            if (other.path, other.end_pos) == (place.path, place.end_pos)
        )
        known.append(_Known(place.path, start, place.end_pos, RECORDS, False, False, {}))
    for number, each in enumerate(known):
        held = [(name, place) for name, place in reported if each.holds(place)]
        rules = SCAN_RULES | {place.check_id for _, place in held if place.verdict}
        mine: dict[str, Place] = {}
        for name, place in held:
            if place.check_id in rules:
                mine.setdefault(name, place)
        is_marker = any(
            batch.is_control and batch.pos == each.start_pos
            for batch in good_batches(context.log_dir / each.path)
        )
        layer = CHECKSUMS if {"check", "dump-segment"} & mine.keys() and not is_marker else RECORDS
        is_bad = any((place.check_id, place.start_pos) in grave for place in mine.values())
        known[number] = each._replace(
            layer=layer, is_bad=is_bad, is_marker=is_marker, reported=mine
        )
    return known


_FIELDS = ("end_pos", "verdict", "check_id", "base_offset", "last_offset")


def _places(context: Context, said: dict[str, Said]) -> Iterator[Contradiction]:
    """One place, one verdict, and a status that goes with it."""
    for each in known_places(context, said):
        where = f"{each.path} {each.start_pos}..{each.end_pos}"
        for field in _FIELDS:
            yield from _differing(each, field, where)
        for name, one in said.items():
            if name.startswith("repair") or _DEPTH[one.layer] < _DEPTH[each.layer]:
                continue
            if each.is_marker and one.is_of_data:
                continue
            if name not in each.reported:
                yield Contradiction("silence", name, where)
            if each.is_bad and not one.status:
                yield Contradiction("false green", name, where)


def _differing(each: _Known, field: str, where: str) -> Iterator[Contradiction]:
    """Fields that readers fill differently; the value of most is taken for the right one."""
    by_value: dict[object, list[str]] = {}
    for name, place in each.reported.items():
        value = getattr(place, field)
        if value is None or (field == "check_id" and not value):
            continue
        if field in {"end_pos", "last_offset"} and "as-broker" in name:
            continue  # all that a broker cuts from there on
        by_value.setdefault(value, []).append(name)
    ranked = sorted(by_value.items(), key=lambda item: -len(item[1]))
    for value, names in ranked[1:]:
        for name in names:
            yield Contradiction(field, name, f"{where}: {value}, others {ranked[0][0]}")


def _given(context: Context, said: dict[str, Said]) -> Iterator[Contradiction]:
    """Who gives records gives those of a place as the others do, or not as they do not.

    A place without a good batch has none: who lists a loss there or not is compared by offsets.
    """
    for each in known_places(context, said):
        batches = good_batches(context.log_dir / each.path)
        if not any(each.start_pos <= batch.pos < each.end_pos for batch in batches):
            continue
        kept = {
            name: any(each.holds(place) for place in said[name].kept)
            for name in _GIVERS
            if name in each.reported
        }
        if len(set(kept.values())) > 1:
            where = f"{each.path} {each.start_pos}..{each.end_pos}"
            for name, is_kept in kept.items():
                if is_kept:
                    yield Contradiction("given", name, f"{where}: the other one gives none")


def _sums(context: Context, said: dict[str, Said]) -> Iterator[Contradiction]:
    """Records given, and those in places that are told, are the records on disk."""
    for partition in context.partitions:
        logs = [(each, good_batches(each)) for each in sorted(partition.glob("*.log"))]
        start = _log_start(context.log_dir, partition)
        for name in (*_GIVERS, *_COUNTERS):
            given = said[name].given
            if given is None or given.get(partition.name) is None:
                continue
            lost = [
                each for each in said[name].places - said[name].kept if each.verdict is not None
            ]
            expected = 0
            for log, batches in logs:
                path = f"{partition.name}/{log.name}"
                for batch in batches:
                    if not is_in(lost, path, batch.pos):
                        expected += _expected(batch, start if name in _GIVERS else None)
            if given[partition.name] != expected:
                detail = f"{partition.name}: {given[partition.name]} given, {expected} on disk"
                yield Contradiction("sum", name, detail)


def _expected(batch: Good, start: int | None) -> int:
    """Records that a reader has of a batch; `start`: where a client begins, who sees no markers."""
    if start is None:
        return batch.count
    if batch.is_control or batch.last_offset < start:
        return 0
    if batch.base_offset >= start:
        return batch.count
    return min(batch.count, batch.last_offset + 1 - start)  # it has no gaps


def _log_start(log_dir: Path, partition: Path) -> int:
    """From the checkpoint, or 0."""
    topic, _, number = partition.name.rpartition("-")
    try:
        lines = (log_dir / "log-start-offset-checkpoint").read_text().splitlines()[2:]
    except OSError:
        return 0
    for line in lines:
        fields = line.split(" ")
        if len(fields) == 3 and fields[:2] == [topic, number] and fields[2].isdigit():
            return int(fields[2])
    return 0
