"""`describe --picture` and `txn list --picture`: numbers of the tables, places, widths, refusals."""

from __future__ import annotations

import re
import shutil
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from eoctl.commands.reporting.report_options import ReportRequest
from eoctl.commands.reporting.report_rows import gather
from eoctl.console.style import Color, Inspection
from eoctl.report.offsets_chart import draw_offsets
from eoctl.report.terminal import UNICODE, Canvas, Scale
from eoctl.report.transactions_chart import draw_transactions
from tests.changes import rows_of
from tests.kafka.broker import copy_log_dir

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from eoctl.report.model import Model
    from tests.running import Outcome

STATES = [
    *("kafka-4.3.1/clean", "kafka-4.3.1/crash", "kafka-4.3.1/hard", "kafka-4.3.1/tv2"),
    *("kafka-4.3.1-tiered/crash", "kafka-0.10.2-legacy"),
    "kafka-4.3.1-three-brokers/diverged/broker-1",
]
ALL = ("--max-lanes", "100000")
LOG = "00000000000000000000.log"
SUMS = {"c": "committed", "a": "aborted", "o": "open"}
HOSTILE = ["\x1b[2J\x07\r\n", "\u202eneddih\u2066", "א" * 249, "\udcff\xff", "名" * 120, "{border}"]


@pytest.fixture
def state(golden: Callable[[str], Path], request: pytest.FixtureRequest) -> Path:
    name, _, rest = request.param.partition("/")
    return golden(name) / rest


@pytest.fixture
def model(crash: Path) -> Model:
    return gather(ReportRequest([str(crash)], now="dir", topics=("txn",), is_picture=True))


def blocks(text: str) -> dict[str, str]:
    """What stands below each line that is not indented, by its first word and the broker."""
    found = re.split(r"^(?=\S)", text, flags=re.MULTILINE)
    return {each.partition("  ")[0].rstrip(): each for each in found if each}


def words_of(block: str) -> list[str]:
    return re.split(r"  +|\n", block)


def drawn(draw: Callable[..., None], model: Model, *rest: Any, **options: Any) -> str:
    has_unicode, width = options.pop("has_unicode", True), options.pop("width", 80)
    canvas = Canvas(
        width, has_unicode=has_unicode, inspect=Inspection(color=Color.NEVER, is_utc=True)
    )
    draw(canvas, model, *rest, **options)
    return canvas.text()


# --- the numbers are those of the tables ----------------------------------------------------------


@pytest.mark.share(2)
@pytest.mark.parametrize("state", STATES, indirect=True)
def test_offsets_are_those_of_describe(state: Path, eoctl: Callable[..., Outcome]) -> None:
    done = eoctl("describe", state, "--picture", *ALL)
    check = eoctl("check", state, "--output", "jsonl")
    assert done.status == check.status
    found = blocks(done.text)
    wrong = {each["path"]: each for each in rows_of(check, "partition")}
    rows = rows_of(eoctl("describe", state, "--output", "jsonl"), "partition")
    assert rows
    for row in rows:
        words = words_of(found[f"{row['topic']}-{row['partition']}"])
        for name, label in (
            ("log_start_offset", "log start"),
            ("high_watermark", "HW"),
            ("last_stable_offset", "LSO"),
            ("log_end_offset", "log end"),
        ):
            value = row[name]
            assert f"{label} {'unknown' if value is None else value}" in words, (row, words)
        count = row["segments_count"]
        assert f"{count:,} segment{'s' * (count != 1)}" in words
        if row["open_transactions_count"]:
            assert f"{row['open_transactions_count']:,} open" in words
        for name in ("error", "warning", "note"):
            count = wrong[row["path"]][f"{name}s"]
            assert not count or f"{count:,} {name}{'s' * (count != 1)}" in words


def tallies(text: str) -> Counter[tuple[str, str, str]]:
    """How many transactions there are, by partition, producer id and letter of the state."""
    found: Counter[tuple[str, str, str]] = Counter()
    partition = ""
    for line in text.splitlines():
        lane = re.fullmatch(r"  (several|\d+)\b.*?  ((?:[\d,]+[cao] ?)+)", line)
        if lane:
            for count, letter in re.findall(r"([\d,]+)([cao])", lane[2]):
                found[partition, lane[1], letter] += int(count.replace(",", ""))
        elif line and not line.startswith(" "):
            partition = line.partition("  ")[0]
    return found


@pytest.mark.exhaustive
@pytest.mark.parametrize("state", STATES, indirect=True)
def test_transactions_are_those_of_txn_list(state: Path, eoctl: Callable[..., Outcome]) -> None:
    clock = ("--now", "dir")
    listed = rows_of(
        eoctl("txn", "list", state, "--all", *clock, "--output", "jsonl"), "transaction"
    )
    expected = Counter(
        (f"{each['topic']}-{each['partition']}", str(each["producer_id"]), each["state"][0])
        for each in listed
    )
    every = eoctl("txn", "list", state, "--all", "--picture", *clock, *ALL).text
    assert tallies(every) == expected
    opened = eoctl("txn", "list", state, "--picture", *clock, *ALL).text
    assert tallies(opened) == {key: n for key, n in expected.items() if key[2] == "o"}
    ended = sum(n for key, n in expected.items() if key[2] != "o")
    assert (f"{ended:,} more have ended: --all" in opened) == bool(ended)
    # What is not drawn is summed up.
    few = eoctl("txn", "list", state, "--all", "--picture", *clock, "--max-lanes", "2").text
    sums: Counter[str] = Counter()
    for (_, _, letter), count in tallies(few).items():
        sums[letter] += count
    rest = re.search(r"^and .* not drawn,.*(?:\n.*)?", few, re.MULTILINE)
    for letter, word in SUMS.items():
        more = re.search(rf"([\d,]+) {word}", rest[0]) if rest else None
        reported = sums[letter] + (int(more[1].replace(",", "")) if more else 0)
        assert reported == sum(n for key, n in expected.items() if key[2] == letter)


def test_of_many_partitions_the_worst_are_drawn_and_the_rest_is_summed_up(
    crash: Path, eoctl: Callable[..., Outcome]
) -> None:
    text = eoctl("describe", crash, "--picture", "--max-lanes", "2").text
    assert [*blocks(text)][:2] == ["txn-0", "txn-1"]
    rows = rows_of(eoctl("check", crash, "--output", "jsonl"), "partition")
    batches = sum(
        each["batches"] for each in rows if (each["topic"], each["partition"]) not in
        {("txn", 0), ("txn", 1)}
    )  # fmt: skip
    assert f"and {len(rows) - 2} more partitions, not drawn:  {batches:,} batches" in text


# --- what is where --------------------------------------------------------------------------------


def test_what_is_wrong_is_told_with_its_rule_and_stands_at_its_place(
    crash: Path, eoctl: Callable[..., Outcome], tmp_path: Path
) -> None:
    log_dir = copy_log_dir(crash, tmp_path / "kafka")
    log = log_dir / "plain-0" / LOG
    data = bytearray(log.read_bytes())
    data[len(data) // 2] ^= 1
    log.write_bytes(data)
    done = eoctl("describe", log_dir, "--topic", "plain", "--picture")
    assert done.status == 1
    (bad,) = (
        each for each in rows_of(eoctl("check", log_dir / "plain-0", "--output", "jsonl"), "finding")
        if each["severity"] == "error"
    )  # fmt: skip
    assert next(iter(blocks(done.text))) == "plain-0"  # before plain-1, which is sound
    lines = blocks(done.text)["plain-0"].splitlines()
    assert "1 error" in lines[0]
    scale = Scale(0, 179, 78)
    marked = {place for place, each in enumerate(lines[3][2:]) if each == "!"}
    assert marked == {*scale.covered(bad["base_offset"], bad["last_offset"])}
    reported = next(line for line in lines if line.startswith(f"  ! {bad['check_id']}"))
    assert f"offset {bad['base_offset']}, position {bad['start_pos']} of {LOG}" in reported
    # What was lost is blank among what was written.
    assert " " in lines[1][2:]


def test_what_could_not_be_read_is_no_bar(
    crash: Path, eoctl: Callable[..., Outcome], tmp_path: Path
) -> None:
    log_dir = copy_log_dir(crash, tmp_path / "kafka")
    shutil.rmtree(log_dir / "plain-0")
    (log_dir / "plain-0").mkdir()
    (log_dir / "plain-0" / LOG).mkdir()
    done = eoctl("describe", log_dir, "--picture")
    assert done.status == eoctl("check", log_dir).status != 0
    assert "not read" in blocks(done.text)["plain-0"]
    done = eoctl("txn", "list", log_dir, "--picture", "--now", "dir")
    assert done.status != 0
    assert "Traceback" not in done.errors


def test_of_nothing_there_is_a_picture_too(eoctl: Callable[..., Outcome], log_dir: Path) -> None:
    for call in (("describe",), ("txn", "list")):
        done = eoctl(*call, log_dir, "--picture")
        assert done.status == eoctl("check", log_dir).status
        assert "Traceback" not in done.errors
    assert "no open transactions in 0 partitions" in done.text


def test_the_one_that_holds_is_apart(model: Model) -> None:
    text = drawn(draw_transactions, model, 40, is_all=True)
    lines = blocks(text)["txn-0"].splitlines()
    assert "18 offsets blocked since offset 311" in lines[0]
    assert lines[2].startswith("  40 open-1") or lines[1].startswith("  40 open-1")
    holder = next(line for line in lines if line.startswith("  40 open-1"))
    assert UNICODE.holder in holder
    assert not [line for line in lines[1:] if line is not holder and UNICODE.holder in line]
    offsets = drawn(draw_offsets, model, 40)
    block = blocks(offsets)["txn-0"]
    assert "18 offsets blocked by producer 40 (open-1) since offset 311" in block
    marks = block.splitlines()[2][2:]
    scale = Scale(0, 329, 78)
    assert marks.index("L") == scale.cell(311)
    assert marks[scale.cell(311) + 1 : -1] == UNICODE.held * (76 - scale.cell(311))
    assert marks[-1] == "E"


@pytest.mark.parametrize("first", [0, -5, 10**18])
def test_each_value_of_an_axis_has_a_place(first: int) -> None:
    for span in (0, 1, 7, 77, 78, 79, 10**12):
        scale = Scale(first, first + span, 78)
        places = [scale.cell(first + span * part // 10) for part in range(11)]
        assert places == sorted(places)
        assert places[0] == 0
        assert places[-1] == (77 if span else 0)
        assert (scale.cell(first - 9), scale.cell(first + span + 10**13)) == (0, 77)


# --- who sees it ----------------------------------------------------------------------------------


@pytest.mark.share(4)
@pytest.mark.parametrize("has_unicode", [True, False])
@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_names_move_nothing(model: Model, text: str, has_unicode: bool) -> None:
    def named(rows: Any) -> Any:
        names = {"topic", "transactional_id", "message", "reason", "command", "start"}
        return tuple(
            each._replace(**{
                name: text for name in names & {*each._fields}
                if getattr(each, name) not in {None, ""}
            })
            for each in rows
        )  # fmt: skip

    changed = {
        field: named(rows)
        for field, rows in model._asdict().items()
        if isinstance(rows, tuple) and rows and hasattr(rows[0], "_fields")
    }
    odd = model._replace(**changed)
    for reported in (
        drawn(draw_offsets, odd, 40, has_unicode=has_unicode),
        drawn(draw_transactions, odd, 40, is_all=True, has_unicode=has_unicode),
    ):
        assert reported.replace("\n", "").isprintable()
        assert "\u05d0" not in reported
        assert has_unicode or reported.isascii()
        bars = [each for each in reported.splitlines() if re.match(r"  \d+ .*[cao]$", each)]
        plain = drawn(draw_transactions, model, 40, is_all=True, has_unicode=has_unicode)
        counted = [each for each in plain.splitlines() if re.match(r"  \d+ .*[cao]$", each)]
        assert len(bars) in {0, len(counted)}
        from rich.cells import cell_len

        assert all(cell_len(each) <= 80 for each in bars)


@pytest.mark.share(2)
@pytest.mark.parametrize("width", [1, 40, 80, 200, 10_000])
def test_lines_fit(model: Model, width: int) -> None:
    for text in (
        drawn(draw_offsets, model, 40, width=width),
        drawn(draw_transactions, model, 40, is_all=True, width=width),
    ):
        lines = [each for each in text.splitlines() if each.startswith("  ")]
        bars = [each for each in lines if set(each) & {*UNICODE.heights, UNICODE.committed}]
        assert bars
        assert all(len(each) <= min(max(width, 40), 200) for each in bars)


def test_plain_characters_in_a_pipe(
    crash: Path, eoctl: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch
) -> None:
    """No colours; ASCII where the locale has nothing else, whoever asked for UTF-8 in between."""
    for locale, is_ascii in (
        ({"LC_ALL": "C"}, True),
        ({"LC_ALL": "POSIX"}, True),
        ({"LANG": "de_DE.ISO-8859-1"}, True),
        ({"LC_CTYPE": "C.UTF-8", "LANG": "C"}, True),  # Python's own word for it
        ({"LC_ALL": "C.UTF-8", "LANG": "C"}, False),
        ({"LANG": "en_US.utf8"}, False),
        ({}, False),
    ):
        for name in ("LC_ALL", "LC_CTYPE", "LANG"):
            monkeypatch.delenv(name, raising=False)
        for name, value in locale.items():
            monkeypatch.setenv(name, value)
        text = eoctl("describe", crash / "txn-0", "--picture").text
        assert text.isascii() == is_ascii, locale
        assert "\x1b" not in text


@pytest.mark.parametrize(
    "arguments",
    [
        ("describe", "{}", "--picture", "--output", "jsonl"),
        ("describe", "{}", "--picture", "--output", "json"),
        ("describe", "{}", "--picture", "--output", "msgpack"),
        ("describe", "{}", "--picture", "--columns", "topic"),
        ("describe", "{}", "--picture", "--columns", "all"),
        ("describe", "{}", "--picture", "--segments"),
        ("describe", "{}", "--picture", "--max-lanes", "0"),
        ("describe", "{}", "--max-lanes", "3"),
        ("describe", "--picture"),
        ("txn", "list", "{}", "--picture", "--output", "jsonl"),
        ("txn", "list", "{}", "--max-lanes", "3"),
        ("txn", "list", "--picture"),
        ("txn", "list", "{}", "--picture", "--now", "soon"),
    ],
)
def test_what_a_picture_is_not(
    crash: Path, eoctl: Callable[..., Outcome], arguments: tuple[str, ...]
) -> None:
    done = eoctl(*(each.format(crash) for each in arguments))
    assert done.status == 2, done.errors
    assert done.stdout in {b"", b"[]\n"}  # what --output json says of nothing
    assert "Traceback" not in done.errors


def test_a_picture_takes_one_pass(
    crash: Path, eoctl: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What lies around, or is read once more for a page, is not asked for."""
    import eoctl.commands.reporting.report_rows as gathering

    def asked(*_: Any) -> None:
        raise AssertionError

    for name in ("commit_rows", "copies_of", "change_rows", "duplicate_rows"):
        monkeypatch.setattr(gathering, name, asked)
    assert eoctl("describe", crash, "--picture").status in {0, 1}
    assert eoctl("txn", "list", crash, "--picture", "--all").status in {0, 1}
