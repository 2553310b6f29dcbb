"""The page of `eoctl report` in a real Chromium: clicks, keys, widths, themes, hostile names."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from collections import Counter
from time import monotonic
from typing import TYPE_CHECKING, Any

import pytest

from tests.broken import BROKEN, plant
from tests.changes import rows_of
from tests.kafka.broker import copy_log_dir

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.running import Outcome

pytestmark = [pytest.mark.browser, pytest.mark.exhaustive]
ARGUMENTS = ["--no-sandbox", "--disable-gpu"]
LIMIT_S = 180  # of whatever is waited for: only a page that hangs takes so long
READY = "document.documentElement.dataset.ready === 'yes'"
# What axe looks at: contrast, names, tables, and all else of these standards.
RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "best-practice"]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        program = shutil.which("chromium")
        browser = playwright.chromium.launch(executable_path=program, args=ARGUMENTS)
        yield browser
        browser.close()


# Whether the mark of a lane is seen, by offset and by time: it may begin where the lane ends, and a
# line that crosses the lane there is one pixel.
IS_PAINTED = """["time", "offset"].every((axis) => {{
  eoctlReport.setAxis(axis);
  const lane = eoctlReport.lanes[{number}], {{ marks, canvas }} = lane;
  lane.near = lane.stale = true;
  eoctlReport.drawVisible();
  const {{ first, last }} = axis === "time" ? eoctlReport.range
    : {{ first: lane.first_offset, last: lane.end_offset }};
  const x = ((marks.at[axis][0][{mark}] - first) / (last - first)) * canvas.width;
  const row = lane.rows[eoctlReport.looks[marks.look[{mark}]].row], left = Math.floor(x) - 3;
  const copy = document.createElement("canvas").getContext("2d", {{ willReadFrequently: true }});
  copy.drawImage(canvas, -Math.max(left, 0), -Math.floor(row[0] + row[1] / 2));
  return copy.getImageData(0, 0, 8, 1).data.filter((each, place) => place % 4 === 3 && each > 99).length > 1;
}})"""


class Watched:
    """A page, and all that went wrong on it."""

    def __init__(self, browser: Any, path: Path, **options: Any) -> None:
        self.errors: list[str] = []
        self.requests: list[str] = []
        context = browser.new_context(offline=True, **options)
        context.set_default_timeout(LIMIT_S * 1000)
        self.page = context.new_page()
        self.page.on("console", self._console)
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.on("dialog", lambda dialog: self.errors.append(f"dialog {dialog.message}"))
        self.page.goto(path.as_uri())
        if options.get("java_script_enabled", True):
            self.wait_until(READY)

    def _console(self, message: Any) -> None:
        if message.type in {"error", "warning"}:
            self.errors.append(message.text)

    def ask(self, script: str) -> Any:
        return self.page.evaluate(script)

    def wait_until(self, script: str) -> None:
        """Ask again and again, from outside.

        What waits within the page, as Playwright's own waiting does after its first look, is code
        that the policy of the page forbids.
        """
        limit = monotonic() + LIMIT_S
        while not self.ask(script):
            assert monotonic() < limit, f"never true: {script}"
            self.page.wait_for_timeout(20)

    def lane(self, title: str, kind: str = "partition") -> Any:
        number = self.ask(
            f"eoctlReport.lanes.findIndex((e) => e.kind === {kind!r} && e.title === {title!r})"
        )
        return self.page.locator(".lane canvas").nth(number)

    def lay_out_all(self) -> None:
        """Tables far below are not laid out before somebody comes near."""
        self.ask(
            """document.querySelectorAll(".scroll")
            .forEach((each) => { each.style.contentVisibility = "visible"; })"""
        )

    def is_clean(self) -> bool:
        assert self.errors == []
        assert len(self.requests) == 1  # itself
        return True


@pytest.fixture
def page_of(eoctl: Callable[..., Outcome], tmp_path: Path) -> Callable[..., Path]:
    def made(*arguments: Any) -> Path:
        to = tmp_path / "report.html"
        done = eoctl("report", *arguments, "--now", "dir", "--to", to, "--force")
        assert done.status in {0, 1}, done.errors
        return to

    return made


@pytest.fixture
def opened(browser: Any, page_of: Callable[..., Path], crash: Path) -> Iterator[Watched]:
    watched = Watched(browser, page_of(crash), viewport={"width": 1440, "height": 1000})
    yield watched
    assert watched.is_clean()


# --- what is drawn --------------------------------------------------------------------------------


@pytest.mark.share(2)
@pytest.mark.parametrize("state", ["clean", "crash", "hard", "tv2"])
def test_lanes_hold_what_the_commands_say(
    browser: Any,
    page_of: Callable[..., Path],
    golden: Callable[[str], Path],
    eoctl: Callable[..., Outcome],
    state: str,
) -> None:
    path = golden("kafka-4.3.1") / state
    watched = Watched(browser, page_of(path))
    counted = watched.ask(
        """eoctlReport.lanes.filter((e) => e.kind === "partition").map((lane) =>
        [lane.key, Array.from(lane.marks.table)])"""
    )
    drawn = {key: Counter(kinds) for key, kinds in counted}
    jsonl = ("--output", "jsonl", "--now", "dir")
    listed = Counter(each["path"] for each in rows_of(eoctl("txn", "list", path, "--all", *jsonl)))
    assert {
        key: each["transaction"] for key, each in drawn.items() if each["transaction"]
    } == listed
    found = Counter(
        re.sub(r"/[^/]*\.[a-z]+$", "", each["path"])
        for each in rows_of(eoctl("check", path, *jsonl), "finding")
    )
    assert {key: each["finding"] for key, each in drawn.items() if each["finding"]} == found
    doubled = rows_of(eoctl("duplicates", path, "--kind", "proved", "--output", "jsonl"))
    assert sum(each["duplicate"] for each in drawn.values()) == len(doubled)
    assert watched.is_clean()


def test_a_click_shows_the_row_and_a_call_that_gives_it(
    opened: Watched, eoctl: Callable[..., Outcome]
) -> None:
    opened.page.get_by_role("button", name="by offset").click()
    canvas = opened.lane("txn-0")
    canvas.scroll_into_view_if_needed()
    box = canvas.bounding_box()
    # The open transaction, offset 311 of 329, in the row of open ones.
    top, tall = opened.ask("eoctlReport.lanes.find((e) => e.title === 'txn-0').rows[3]")
    canvas.click(position={"x": box["width"] * 315 / 329, "y": top + tall / 2})
    detail = opened.page.locator("#detail")
    text = detail.inner_text()
    assert "311" in text
    assert "open-1" in text
    assert "00000000000000000000.log" in text
    words = shlex.split(detail.locator("code").first.inner_text())
    listed = rows_of(eoctl(*words[1:], "--output", "jsonl"), "transaction")
    assert any(each["first_offset"] == 311 for each in listed)
    assert opened.ask("location.hash") == "#txn-0@311"


def test_a_link_leads_to_an_offset(browser: Any, page_of: Callable[..., Path], crash: Path) -> None:
    to = page_of(crash)
    watched = Watched(browser, to)
    watched.page.goto(f"{to.as_uri()}#txn-0@311")
    watched.page.wait_for_selector("#detail:not([hidden])")
    assert "open-1" in watched.page.locator("#detail").inner_text()


def test_all_of_it_by_keyboard(opened: Watched) -> None:
    page = opened.page
    page.locator("#search").focus()
    for _ in range(3):
        page.keyboard.press("Tab")
        if opened.ask("document.activeElement.tagName") == "CANVAS":
            break
    first = opened.ask("document.activeElement.getAttribute('aria-label')")
    assert "txn-0" in first
    page.keyboard.press("ArrowRight")
    assert page.locator("#detail").is_visible()
    selected = opened.ask("eoctlReport.view.selected.place")
    page.keyboard.press("ArrowRight")
    assert opened.ask("eoctlReport.view.selected.place") != selected
    page.keyboard.press("ArrowDown")
    assert opened.ask("document.activeElement.getAttribute('aria-label')") != first
    page.keyboard.press("+")
    assert opened.ask("eoctlReport.view.to - eoctlReport.view.from") == pytest.approx(0.5)
    page.keyboard.press("0")
    assert opened.ask("[eoctlReport.view.from, eoctlReport.view.to]") == [0, 1]
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    assert opened.ask("document.activeElement.className") == "copy"
    # What the button says for two seconds is noted: on a busy machine nobody looks in time.
    opened.ask(
        """(() => { const said = (window.said = []), button = document.activeElement;
        new MutationObserver(() => said.push(button.textContent)).observe(button, { childList: true }); })()"""
    )
    page.keyboard.press("Enter")
    opened.wait_until("window.said.some((each) => /copied|selected/.test(each))")


def test_drag_zooms_and_search_finds(opened: Watched) -> None:
    canvas = opened.lane("txn-0")
    box = canvas.bounding_box()
    opened.page.mouse.move(box["x"] + 200, box["y"] + 10)
    opened.page.mouse.down()
    opened.page.mouse.move(box["x"] + 400, box["y"] + 10, steps=4)
    opened.page.mouse.up()
    assert opened.ask("eoctlReport.view.to - eoctlReport.view.from") < 0.25
    opened.page.get_by_role("button", name="all", exact=True).click()
    for text, wanted in (("open-1", "txn-0"), ("rolled", "rolled-0"), ("40", "txn-0")):
        opened.page.locator("#search").fill(text)
        shown = opened.page.locator(".lane:visible .name bdi").all_inner_texts()
        assert wanted in shown
        assert len(shown) < 10
    opened.page.locator("#search").fill("no such thing")
    assert opened.page.locator(".lane:visible").count() == 0


def test_something_is_drawn_and_both_axes_differ(opened: Watched) -> None:
    def drawn() -> Any:
        return opened.ask("(eoctlReport.drawVisible(), eoctlReport.lanes[0].canvas.toDataURL())")

    empty = opened.ask("document.createElement('canvas').toDataURL()")
    by_time = drawn()
    opened.ask("eoctlReport.setAxis('offset')")
    by_offset = drawn()
    assert len({empty, by_time, by_offset}) == 3


def test_a_lane_is_painted_by_pixels_not_by_marks(opened: Watched) -> None:
    """Each of many marks is seen, whatever their order, and rectangles are as many as pixels."""
    found = opened.ask(
        """(() => {
        eoctlReport.setAxis("offset");
        const lane = eoctlReport.lanes.find((each) => each.title === "txn-0");
        const marks = lane.marks = new lane.marks.constructor();
        const { first_offset: first, end_offset: end } = lane, span = end - first, places = [];
        let seed = 1;
        for (let number = 0; number < 50000; number++) {
          seed = (seed * 16807) % 2147483647;
          const place = seed / 2147483647;
          if ((place * 10) % 1 < 0.3) continue; // gaps that must stay
          if (number % 5) places.push(place);
          const offset = first + place * span;
          marks.add(number % 5 ? "committed" : "error", "transaction", 0, null, null, offset, offset);
        }
        marks.finish();
        const { prototype } = CanvasRenderingContext2D, own = prototype.fillRect;
        let count = 0;
        prototype.fillRect = function (...box) { count += this.canvas === lane.canvas; own.apply(this, box); };
        eoctlReport.zoomTo(0, 1);
        eoctlReport.drawVisible();
        prototype.fillRect = own;
        const { canvas } = lane, ctx = canvas.getContext("2d"), [top, tall] = lane.rows[1];
        const line = ctx.getImageData(0, top + tall / 2, canvas.width, 1).data;
        const isPainted = (x) => line[4 * Math.floor(x) + 3] > 0;
        const unseen = places.filter((each) => !isPainted(each * canvas.width)).length;
        const gaps = Array.from(Array(10).keys(), (each) => (each / 10 + 0.015) * canvas.width);
        return [places.length, count, canvas.width, unseen, gaps.filter(isPainted).length];
        })()"""
    )
    marks, rectangles, width, unseen, filled = found
    assert marks > 25_000
    assert rectangles < 4 * width
    assert unseen == 0
    assert filled == 0


# --- who reads it ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("width", "scheme"), [(1440, "light"), (360, "dark")])
def test_nothing_is_cut_and_axe_has_no_complaint(
    browser: Any, page_of: Callable[..., Path], crash: Path, width: int, scheme: str
) -> None:
    from axe_playwright_python.sync_playwright import Axe

    watched = Watched(
        browser,
        page_of(crash, "--topic", "txn"),
        viewport={"width": width, "height": 900},
        color_scheme=scheme,
        bypass_csp=True,  # axe itself is a script from outside
    )
    watched.lay_out_all()
    assert watched.ask("document.documentElement.scrollWidth") <= width
    watched.lane("txn-0").focus()
    watched.page.keyboard.press("ArrowRight")
    options = {"runOnly": {"type": "tag", "values": RULES}}
    found = Axe().run(watched.page, options=options)
    assert [
        (each["id"], [node["html"][:120] for node in each["nodes"][:3]])
        for each in found.response["violations"]
    ] == []
    assert watched.errors == []


def test_it_can_be_read_without_javascript(
    browser: Any, page_of: Callable[..., Path], golden: Callable[[str], Path]
) -> None:
    path = page_of(golden("kafka-4.3.1") / "hard")
    watched = Watched(browser, path, java_script_enabled=False)
    page = watched.page
    assert page.locator("svg.static").is_visible()
    assert page.locator("svg.static rect").count() > 50
    assert "idem-none-0" in page.locator("#verdict").inner_text()
    for name in ("inventory", "findings", "transactions", "producers", "made"):
        assert page.locator(f"#{name}").is_visible()
    assert page.locator("#findings tbody tr").count() > 10
    assert not page.locator("#controls").is_visible()
    assert watched.errors == []


def test_a_table_far_below_is_found_and_printed(
    browser: Any, page_of: Callable[..., Path], crash: Path
) -> None:
    """What is not laid out yet is in the page for all that: for a search, a link, and on paper."""
    watched = Watched(browser, page_of(crash), viewport={"width": 1000, "height": 600})
    watched.ask("document.querySelectorAll('details.rows').forEach((e) => { e.open = true; })")
    last = "Array.from(document.querySelectorAll('.scroll')).pop()"
    laid_out = f"{last}.querySelector('td').checkVisibility({{ contentVisibilityAuto: true }})"
    # Whether it is near is known after a frame only, and each frame is waited for.
    watched.wait_until(f"!{laid_out}")
    watched.page.emulate_media(media="print")
    watched.wait_until(laid_out)
    watched.page.emulate_media(media="screen")
    watched.wait_until(f"!{laid_out}")
    word = watched.ask(f"{last}.closest('details').querySelector('summary').textContent")
    assert watched.ask(f"document.body.textContent.split({word!r}).length") == 2
    assert watched.ask(f"find({word!r}, true)")
    watched.ask(f"{last}.scrollIntoView()")
    watched.wait_until(laid_out)
    assert watched.is_clean()


def test_paper(opened: Watched) -> None:
    data = opened.page.pdf(format="A4", print_background=True)
    assert data.startswith(b"%PDF")
    assert len(data) > 50_000
    assert 2 <= data.count(b"/Type /Page\n") <= 6


# --- what must not happen -------------------------------------------------------------------------

HOSTILE = [
    "</script><script>window.hit=1</script>",
    "<img src=x onerror=window.hit=1>",
    "javascript:alert(1)",
    "\u202eneddih\u2066",
    "' onclick='window.hit=1",
    "a" * 249,
]


def test_hostile_names_do_nothing(
    browser: Any, eoctl: Callable[..., Outcome], crash: Path, tmp_path: Path
) -> None:
    """Topics of a broker are tame; directories, ids and titles need not be."""
    from eoctl.commands.reporting.report_options import ReportRequest
    from eoctl.commands.reporting.report_rows import gather
    from eoctl.report.page import page_of

    model = gather(ReportRequest([str(crash)], now="dir", topics=("txn",)))
    bad = b"\xff\xfe</title>".decode("utf-8", "surrogateescape")
    for number, text in enumerate([*HOSTILE, bad]):

        def named(rows: Any, text: str = text) -> Any:
            names = {"topic", "transactional_id", "group", "client_id", "host", "path", "file",
                     "message", "reason", "command", "start", "text"}  # fmt: skip
            return tuple(
                each._replace(**{
                    name: text
                    for name in names & {*each._fields}
                    if isinstance(getattr(each, name), str) and getattr(each, name)
                })
                for each in rows
            )  # fmt: skip

        changed = {
            field: named(rows)
            for field, rows in model._asdict().items()
            if isinstance(rows, tuple) and rows and hasattr(rows[0], "_fields")
        }
        to = tmp_path / f"{number}.html"
        to.write_bytes(page_of(model._replace(**changed, title=text), max_lanes=200))
        watched = Watched(browser, to)
        canvas = watched.page.locator(".lane canvas").first
        canvas.focus()
        watched.page.keyboard.press("ArrowRight")
        assert watched.ask("window.hit") is None
        assert watched.page.locator("img").count() == 0
        assert watched.page.locator("script").count() == 2
        assert "\u202e" not in watched.page.content()
        assert watched.is_clean()


def test_the_policy_holds(opened: Watched) -> None:
    """What is put into the page by somebody else is not run, and nothing is fetched."""
    opened.ask(
        """(() => { const added = document.createElement("script");
        added.textContent = "window.hit = 1"; document.body.append(added); })()"""
    )
    assert opened.ask("window.hit") is None
    failed = opened.ask("fetch('https://example.org/').then(() => 'went', () => 'refused')")
    assert failed == "refused"
    assert opened.errors  # Chromium tells of both
    opened.errors.clear()
    opened.requests[:] = opened.requests[:1]


def test_damage_is_seen_with_its_rule_and_place(
    browser: Any, page_of: Callable[..., Path], crash: Path, tmp_path: Path
) -> None:
    log_dir = copy_log_dir(crash, tmp_path / "kafka")
    log = log_dir / "txn-0" / "00000000000000000000.log"
    data = bytearray(log.read_bytes())
    data[5000] ^= 1
    log.write_bytes(data)
    watched = Watched(browser, page_of(log_dir))
    assert watched.ask("eoctlReport.lanes[0].title") == "txn-0"
    found = json.loads(
        watched.ask(
            """JSON.stringify(Array.from(eoctlReport.tables.finding.columns.check_id)
            .map((id, row) => eoctlReport.tables.finding.row(row)))"""
        )
    )
    assert any(each["severity"] == "error" and each["start_pos"] is not None for each in found)
    assert "damaged" in watched.page.locator("#verdict").inner_text()


# --- planted damage -------------------------------------------------------------------------------


def test_every_planted_fault_is_seen_with_its_rule_and_place(
    browser: Any, page_of: Callable[..., Path], golden: Callable[[str], Path], tmp_path: Path
) -> None:
    """In a lane, in what is shown of its mark, and in the table; the worst ones at the top."""
    log_dir = copy_log_dir(golden("kafka-4.3.1") / "clean", tmp_path / "kafka")
    expected = plant(log_dir)
    assert len(expected) >= len(BROKEN)
    watched = Watched(browser, page_of(log_dir), viewport={"width": 1440, "height": 900})
    found = watched.ask(
        """eoctlReport.lanes.flatMap((lane, number) => Array.from(lane.marks.table)
        .map((table, place) => [number, place, table, lane.marks.row[place]])
        .filter(([, , table]) => table === "finding")
        .map(([number, place, table, row]) => [number, place, eoctlReport.tables[table].row(row)]))"""
    )
    watched.lay_out_all()
    listed = watched.page.locator("#findings tbody tr").all_inner_texts()
    for each in expected:
        partition, _, name = each.path.rpartition("/")
        place = "" if each.start_pos is None else str(each.start_pos)
        assert any(
            each.check_id in line and each.path in line and {place} <= {"", *line.split()}
            for line in listed
        ), each
        if not partition and not re.fullmatch(r".*-\d+", name):
            continue  # of the log dir itself: it has no lane
        marks = [
            (number, mark)
            for number, mark, row in found
            if row["check_id"] == each.check_id
            and row["file"].endswith(f"/{each.path}")
            and each.start_pos in {None, row["start_pos"]}
        ]
        assert marks, each
        number, mark = marks[0]
        assert watched.ask(IS_PAINTED.format(number=number, mark=mark)), each
        watched.ask(f"eoctlReport.select(eoctlReport.lanes[{number}], {mark})")
        shown = watched.page.locator("#detail").inner_text()
        assert each.check_id in shown
        assert each.path in shown
        assert place in shown
    top = watched.page.locator("#verdict").inner_text()
    assert "will NOT start" in top
    assert "lost+found" in top
    errors = [each for each in expected if each.severity == "error"]
    assert sum(each.check_id in top for each in errors) >= 4
    assert "BAT-1 in 2 files, first " in top
    assert "eoctl repair" in top
    assert watched.is_clean()


def test_a_coordinators_lane_has_what_it_was_not_asked_for(
    browser: Any, page_of: Callable[..., Path], crash: Path
) -> None:
    """Fencing and times out beside the states; a producer's state until it expires."""
    watched = Watched(browser, page_of(crash))
    inspections = watched.ask(
        """Object.fromEntries(eoctlReport.lanes.filter((e) => e.kind === "id" || e.kind === "producer")
        .map((e) => [e.title, Array.from(e.marks.look, (each) => eoctlReport.looks[each].name)]))"""
    )
    assert inspections["fenced"].count("event") == 2
    assert inspections["open-1"].count("deadline") == 1
    assert "deadline" not in inspections["fenced"]
    assert "kept" in inspections["producer 40"]
    lane = watched.lane("fenced", "id")
    lane.scroll_into_view_if_needed()
    place = watched.ask(
        """eoctlReport.lanes.filter((e) => e.title === "fenced")[0].marks.look
        .findIndex((each) => eoctlReport.looks[each].name === "event")"""
    )
    watched.ask(f"eoctlReport.select(eoctlReport.lanes.find((e) => e.title === 'fenced'), {place})")
    assert "fenced: aborted" in watched.page.locator("#detail").inner_text()
    assert watched.is_clean()


def test_the_lag_of_a_group_is_a_line_to_the_log_end(
    browser: Any, page_of: Callable[..., Path], crash: Path
) -> None:
    watched = Watched(browser, page_of(crash))
    lags = watched.ask(
        """eoctlReport.lanes.flatMap((e) => Array.from(e.marks.table.keys())
        .filter((at) => e.marks.table[at] === "commit")
        .map((at) => [e.marks.at.offset[0][at], e.marks.at.offset[1][at],
            eoctlReport.tables.commit.row(e.marks.row[at])]))"""
    )
    assert lags
    for first, last, row in lags:
        assert first == row["committed_offset"]
        assert last == max(row["log_end_offset"], first)
    assert watched.is_clean()


def test_the_first_screen_is_no_longer_than_a_screen(
    browser: Any, page_of: Callable[..., Path], golden: Callable[[str], Path]
) -> None:
    """What is wrong, who is held and what to do are seen without scrolling; no time is broken."""
    for state in ("crash", "hard", "tv2"):
        to = page_of(golden("kafka-4.3.1") / state)
        watched = Watched(browser, to, viewport={"width": 1440, "height": 900})
        box = watched.page.locator("#verdict").bounding_box()
        assert box["y"] + box["height"] < 700, state
        assert watched.page.locator("#verdict time").count() or state == "tv2"
        broken = watched.ask(
            """Array.from(document.querySelectorAll("time"))
            .filter((each) => each.getClientRects().length > 1).length"""
        )
        assert broken == 0
        assert watched.is_clean()


def test_the_top_says_it_in_one_sentence(opened: Watched, crash: Path) -> None:
    """With where the data are from; what is fine is closed, and the page is short."""
    page = opened.page
    assert re.fullmatch(
        r"Kafka \d\S+ will start; no record is known to be lost; read_committed is blocked in 2"
        r" partitions for [\d a-z]+",
        page.locator("h1").inner_text(),
    )
    facts = page.locator("dl.facts").inner_text()
    for name in ("cluster id", "node", "read on host", "directory", "digest"):
        assert name in facts
    assert str(crash) in facts
    closed = page.locator("details.group > summary").all_inner_texts()
    assert closed[0] == "22 partitions without a finding"
    assert opened.ask("document.documentElement.scrollHeight") <= 3000
    assert page.locator(".lane:visible .name bdi").all_inner_texts() == ["txn-0", "txn-1"]


def test_a_finding_leads_to_its_lane_and_back(opened: Watched) -> None:
    page = opened.page
    page.locator("#findings td a").first.click()
    opened.wait_until("document.activeElement.tagName === 'CANVAS'")
    assert "txn-0" in opened.ask("document.activeElement.getAttribute('aria-label')")
    page.locator(".lane .name a").nth(1).click()
    assert opened.ask("decodeURIComponent(document.activeElement.hash)") == "#txn-1@282"


def test_a_row_is_one_line_and_its_fix_is_seen(opened: Watched) -> None:
    """At 1,440 pixels; numbers stand on the right."""
    row = opened.page.locator("#findings tbody tr").first
    assert row.bounding_box()["height"] < 40
    fix = row.locator("code").first
    assert fix.bounding_box()["x"] + fix.bounding_box()["width"] < 1440
    align = "getComputedStyle(document.querySelector('#findings td.number')).textAlign"
    assert opened.ask(align) == "right"


def test_a_table_as_csv(opened: Watched) -> None:
    page = opened.page
    with page.expect_download() as found:
        page.locator("#findings details > button").click()
    text = found.value.path().read_bytes().decode()
    lines = text.split("\r\n")
    assert lines[0].startswith("check id,severity,partition,base offset,message,fix,")
    assert lines[1].startswith("TXO-1,note,txn-0,311,")
    assert len(lines) == 4


def test_a_pointer_over_a_mark_is_told_what_it_is(opened: Watched) -> None:
    canvas = opened.lane("txn-0")
    box = canvas.bounding_box()
    top, tall = opened.ask("eoctlReport.lanes.find((e) => e.title === 'txn-0').rows[3]")
    opened.page.mouse.move(box["x"] + box["width"] - 5, box["y"] + top + tall / 2)
    tip = opened.page.locator("#tip")
    opened.wait_until("!document.getElementById('tip').hidden")
    assert re.match(
        r"transaction open \w+, offset 311, 2026-11-21T02:59:00Z: open-1", tip.inner_text()
    )
    opened.page.mouse.move(box["x"] + box["width"] - 5, 5)
    opened.wait_until("document.getElementById('tip').hidden")


def test_the_map_moves_what_is_shown(opened: Watched) -> None:
    opened.ask("eoctlReport.zoomTo(0, 0.2)")
    box = opened.page.locator(".map canvas").bounding_box()
    opened.page.mouse.move(box["x"] + box["width"] * 0.5, box["y"] + 5)
    opened.page.mouse.down()
    opened.page.mouse.up()
    assert opened.ask("[eoctlReport.view.from, eoctlReport.view.to]") == pytest.approx(
        [0.4, 0.6], abs=0.01
    )
