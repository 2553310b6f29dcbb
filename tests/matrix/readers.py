"""All readers of a damaged log dir, and what each of them said, in one shape."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from tests.matrix.judge import is_good_at

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

Row = dict[str, Any]

# How deep a reader says it looked.
HEADERS, CHECKSUMS, RECORDS = "headers", "checksums", "records"
_PLACE = re.compile(
    r"(?P<path>[^ ]+\.log): positions? (?P<start>\d+)(?: to (?P<end>\d+))?: "
    r"(?P<verdict>corrupt|torn.tail|preallocated|unreadable)?(?P<words>.*)"
)
_RULE = re.compile(r"\[(?P<check_id>[A-Z]+-\d+b?)\]")
_OFFSETS = re.compile(r"; offsets (?P<base>\d+) to (?P<last>-?\d+|unknown)")
MISSING = "missing"  # what is in no file has no place in one
VERDICTS = frozenset({"corrupt", "torn_tail", "preallocated", "unreadable"})


class Place(NamedTuple):
    """A stretch of a `.log`, as a reader tells of it. What it does not tell is None."""

    path: str
    start_pos: int
    end_pos: int | None
    verdict: str | None
    check_id: str
    base_offset: int | None = None
    last_offset: int | None = None


class Said(NamedTuple):
    """What one reader said of one log dir.

    Attributes:
        layer: as deep as its words "verified: ..." go; None: it claims nothing of all batches.
        places: what it says is wrong with `.log` files.
        kept: those of them whose records it gives all the same.
        given: partition -> records that it gave or counted; None: it counts none.
        lost: partition -> offsets that it says are lost.
        rows: of its standard output.
    """

    reader: str
    status: int
    layer: str | None
    places: frozenset[Place]
    kept: frozenset[Place]
    given: dict[str, int] | None
    lost: dict[str, int]
    rows: list[Row]
    notes: list[Row]

    @property
    def is_of_data(self) -> bool:
        """It says that it looked into data batches only, not at markers."""
        return "data batches" in self.words

    @property
    def words(self) -> str:
        return "; ".join(str(each.get("message")) for each in self.notes)


class Context(NamedTuple):
    """A log dir, and how a command is run on it. `scratch` is a directory for what readers write."""

    log_dir: Path
    metadata_dir: Path
    scratch: Path
    run: Callable[..., Any]

    @property
    def partitions(self) -> list[Path]:
        """Directories with a name of a partition that is read alone."""
        return sorted(each for each in self.log_dir.iterdir() if _is_partition(each))


def _is_partition(path: Path) -> bool:
    return path.is_dir() and re.fullmatch(r".+-\d+", path.name) is not None


def all_said(context: Context) -> dict[str, Said]:
    """Let all readers read. Name -> what it said."""
    said = [
        *(_check(context, flag) for flag in ((), ("--deep",), ("--predict",))),
        _describe(context),
        _dump(context),
        _consume(context, "consume"),
        _consume(context, "consume --skip-corrupt", "--skip-corrupt"),
        _export(context),
        _audit(context),
        _loss(context),
        *(_notes_of(context, *command) for command in _WHOLE_DIR),
        _each(context, "recover-state", "recover-state"),
        _each(context, "recover-state --from-scratch", "recover-state", "--from-scratch"),
        _each(context, "rebuild", "rebuild", "--metadata-dir", context.metadata_dir),
    ]
    if any(each.name != "__cluster_metadata-0" for each in context.partitions):
        said += [_repair(context, each) for each in ("as-broker", "salvage", "move-away")]
    return {each.reader: each for each in said}


_WHOLE_DIR = (
    ("duplicates",),
    ("producers", "--now", "dir"),
    ("txn list", "--now", "dir"),
    ("txn hanging", "--now", "dir"),
    ("txn stats", "--now", "dir"),
)


class _Heard:
    """Gathers what one reader says in one call or several."""

    def __init__(self, context: Context, reader: str) -> None:
        self.context = context
        self.reader = reader
        self.status = 0
        self.rows: list[Row] = []
        self.notes: list[Row] = []
        self.places: set[Place] = set()
        self.given: dict[str, int] = {}
        self.lost: dict[str, int] = {}
        self.counts = False

    def call(self, *arguments: object) -> list[Row]:
        """Run it; the rows of this call."""
        outcome = self.context.run(*arguments, "--output", "jsonl")
        rows = [json.loads(line) for line in outcome.text.splitlines()]
        notes = []
        for line in outcome.errors.splitlines():
            assert line.startswith("{"), f"{self.reader}: {outcome.errors}"
            notes.append(json.loads(line))
        self.rows += rows
        self.notes += notes
        self.status = max(self.status, outcome.status)
        for note in notes:
            self.report(str(note.get("message")))
        return rows

    def report(self, message: str) -> None:
        """Take the place that a sentence names, if it names one."""
        found = _PLACE.search(message)
        if found is None:
            return
        rule, offsets = _RULE.search(found["words"]), _OFFSETS.search(found["words"])
        last = None if offsets is None else offsets["last"]
        self.places.add(
            Place(
                self.path(found["path"]),
                int(found["start"]),
                None if found["end"] is None else int(found["end"]),
                None if found["verdict"] is None else found["verdict"].replace(" ", "_"),
                "" if rule is None else rule["check_id"],
                None if offsets is None else int(offsets["base"]),
                None if last in {None, "unknown"} else int(last),
            )
        )

    def path(self, path: str) -> str:
        """A path relative to the log dir."""
        return os.path.relpath(self.context.log_dir / path, self.context.log_dir)

    def said(self, kept: Iterable[Place] = ()) -> Said:
        return Said(
            self.reader,
            self.status,
            _layer(self.notes, self.rows),
            frozenset(self.places),
            frozenset(kept),
            self.given if self.counts else None,
            self.lost,
            self.rows,
            self.notes,
        )


def _layer(notes: Iterable[Row], rows: Iterable[Row]) -> str | None:
    """The deepest layer of which a reader says that it saw all batches."""
    layers: set[str] = set()
    for row in rows:
        layers.update(row.get("verified", ()))
    for note in notes:
        found = re.search(r"verified: ([^;]*)", str(note.get("message")))
        if found is None or not re.search("all (data )?batches", found[1]):
            continue
        layers |= {each for each in (HEADERS, CHECKSUMS) if each in found[1]}
        if re.search(r"records of all|contents? of all|their content|and records of", found[1]):
            layers.add(RECORDS)
    if RECORDS in layers:
        return RECORDS
    return CHECKSUMS if layers & {CHECKSUMS, "crc"} else HEADERS if layers else None


def _check(context: Context, flags: tuple[str, ...]) -> Said:
    heard = _Heard(context, " ".join(("check", *flags)))
    for row in heard.call("check", context.log_dir, "--now", "dir", *flags):
        is_of_log = row["kind"] == "finding" and row["path"].endswith(".log")
        if is_of_log and row["start_pos"] is not None:
            heard.places.add(_check_place(heard, row))
    return heard.said()


def _check_place(heard: _Heard, row: Row) -> Place:
    return Place(
        heard.path(row["path"]),
        row["start_pos"],
        row["end_pos"],
        row.get("verdict"),
        row["check_id"],
        row["base_offset"],
        row["last_offset"],
    )


# A batch that is whole, at an offset that cannot be right or with a marker that is none.
DOUBTFUL = frozenset({"BAT-3", "SEG-1", "SEG-2", "SEG-3", "BAT-12"})
FRAME_CHECK_IDS = frozenset({"BAT-1", "BAT-2"})


def _is_proven(context: Context, place: Place) -> bool:
    """Is only the magic wrong, which no checksum covers? Then the records are given."""
    if place.check_id not in FRAME_CHECK_IDS or place.start_pos is None:
        return False
    return is_good_at(context.log_dir / place.path, place.start_pos)


def _counted(heard: _Heard) -> Said:
    """What counts records by headers counts those with a doubtful offset, too."""
    return heard.said(
        each
        for each in heard.places
        if each.check_id in DOUBTFUL or _is_proven(heard.context, each)
    )


def _describe(context: Context) -> Said:
    heard = _Heard(context, "describe")
    heard.counts = True
    for row in heard.call("describe", context.log_dir):
        if row["kind"] == "partition" and row["state"] == "live":
            heard.given[heard.path(row["path"])] = row["records_count"]
    return _counted(heard)


def _dump(context: Context) -> Said:
    heard = _Heard(context, "dump-segment")
    heard.counts = True
    logs = [log for each in context.partitions for log in sorted(each.glob("*.log"))]
    rows = heard.call("dump-segment", *logs) if logs else []
    for row in rows:
        if row["kind"] == "verdict" and row["verdict"] in VERDICTS:
            heard.places.add(
                Place(
                    heard.path(row["path"]),
                    row["start_pos"],
                    row["end_pos"],
                    row["verdict"],
                    row["check_id"] or "",
                )
            )
    lost = [
        each
        for each in heard.places
        if each.check_id not in DOUBTFUL and not _is_proven(context, each)
    ]
    wrappers = set()
    for row in rows:
        if row["kind"] == "batch":
            path = heard.path(row["path"])
            name = str(Path(path).parent)
            if row["magic"] < 2 and row["codec"] != "none":
                wrappers.add(name)  # what is inside is not counted
            elif not is_in(lost, path, row["pos"]):
                count = row["records_count"] if row["magic"] == 2 else 1
                heard.given[name] = heard.given.get(name, 0) + count
    heard.given = {name: count for name, count in heard.given.items() if name not in wrappers}
    return _counted(heard)


def is_in(places: Iterable[Place], path: str, pos: int) -> bool:
    """Is that position in one of these places?"""
    return any(
        each.path == path and each.start_pos <= pos < (each.end_pos or each.start_pos + 1)
        for each in places
    )


def _consume(context: Context, reader: str, *flags: str) -> Said:
    heard = _Heard(context, reader)
    heard.counts = True
    for each in context.partitions:
        heard.given[each.name] = len(heard.call("consume", each, *flags))
    heard.rows.clear()
    return heard.said(each for each in heard.places if _is_proven(context, each))


def _export(context: Context) -> Said:
    heard = _Heard(context, "export")
    heard.counts = True
    to = context.scratch / "export"
    flags = ("--format", "jsonl", "--engine", "local")
    for row in heard.call("export", context.log_dir, "--to", to, *flags):
        name = heard.path(row["path"])
        heard.given[name], heard.lost[name] = row["records"], row["lost_offsets"]
    listed: set[Place] = set()
    lost = to / "_lost.jsonl"
    for line in lost.read_text().splitlines() if lost.exists() else ():
        row = json.loads(line)
        if row["path"].endswith(".log") and row["start_pos"] is not None:
            listed.add(_place_of(heard, row, "kind"))
    # The list says more than the notes do; the notes are of what is given all the same, too.
    kept = {each for each in heard.places if not is_in(listed, each.path, each.start_pos)}
    heard.places = listed | kept
    return heard.said(kept)


def _loss(context: Context) -> Said:
    """What is lost is in its rows; it gives no record."""
    heard = _Heard(context, "loss")
    for row in heard.call("loss", context.log_dir):
        if row["kind"] == "lost" and row["path"].endswith(".log") and row["start_pos"] is not None:
            heard.places.add(_place_of(heard, row, None))
    return heard.said()


def _place_of(heard: _Heard, row: Row, verdict: str | None, path: str = "path") -> Place:
    return Place(
        heard.path(row[path]),
        row["start_pos"],
        row["end_pos"],
        None if verdict is None else row[verdict],
        row["check_id"],
        row["base_offset"],
        row["last_offset"],
    )


def _audit(context: Context) -> Said:
    heard = _Heard(context, "spark-audit")
    heard.counts = True
    rows = heard.call("spark-audit", context.log_dir, "--engine", "local", "--report", "all")
    heard.places.clear()  # the rows say more than the notes
    for row in rows:
        if row["kind"] == "partition":
            heard.given[heard.path(row["path"])] = row["records"]
        elif row["kind"] == "corrupt-range" and row["path"].endswith(".log"):
            heard.places.add(_place_of(heard, row, "finding"))
    return _counted(heard)


def _notes_of(context: Context, command: str, *flags: str) -> Said:
    heard = _Heard(context, command)
    heard.call(*command.split(), context.log_dir, *flags)
    return heard.said()


def _each(context: Context, reader: str, command: str, *flags: object) -> Said:
    heard = _Heard(context, reader)
    for each in context.partitions:
        heard.call(command, each, "--now", "dir", *flags)
    return heard.said()


def _repair(context: Context, strategy: str) -> Said:
    heard = _Heard(context, f"repair --strategy {strategy}")
    who = "--replicated" if strategy == "move-away" else "--single-copy"
    flags = ("--strategy", strategy, who, "--now", "dir", "--metadata-dir", context.metadata_dir)
    rows = heard.call("repair", context.log_dir, *flags)
    for row in rows:
        for lost in row.get("lost_ranges", ()):
            if lost["finding"] == MISSING:
                continue
            heard.places.add(_place_of(heard, lost, "finding", "file"))
    return heard.said()
