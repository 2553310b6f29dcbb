"""`eoctl sim explore` and `table`: search for a scenario with a loss, and show the results."""

from __future__ import annotations

from textwrap import wrap
from typing import TYPE_CHECKING, Any, NamedTuple

from eoctl.lab.environment.faults import CLASSES, KINDS
from eoctl.lab.guarantees.matrix import (
    DEFAULTS,
    DIMENSIONS,
    EFFECTS,
    FAULTS,
    CellResult,
    GuaranteeCell,
    all_cells,
    effect_of,
    grouped,
    load_matrix,
    text_of_value,
)
from eoctl.lab.guarantees.scenarios import (
    explore,
    require_new,
    save_scenario,
    saved,
    simulate_scenario,
    steps,
)
from eoctl.lab.sim.simulate import (
    EventRow,
    event_row,
    require_isolation,
    require_possible,
    require_producer,
)
from eoctl.messages import report_first
from eoctl.output import OutputFormat, Report, emit, message
from eoctl.progress import Progress
from storage.counts import counted
from storage.errors import EXIT_FINDINGS, UsageError, pasted

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from eoctl.lab.checker.rules import HistoryFinding
    from eoctl.lab.environment.settings import PlaySettings, RunSettings
    from eoctl.lab.guarantees.matrix import CellGroup
    from eoctl.lab.guarantees.scenarios import Scenario


def explore_cluster(
    settings: PlaySettings,
    run: RunSettings,
    faults: str,
    seeds: range,
    output: OutputFormat,
    witness: str,
) -> int:
    """Search for a loss, save it in the file `witness` if given, and return the exit status.

    Raises:
        UsageError: the settings are impossible. RefusedError: the file exists.
        RefusedError, AccessError: no run was possible, or the file cannot be written.
    """
    require_possible(settings)
    require_producer(run)
    require_isolation(run, has_transactions=False)
    if witness:
        require_new(witness)
    kinds = parse_kinds(faults)
    with Progress("playing", len(seeds), unit="seeds") as progress:
        scenario = explore(settings, run, kinds, seeds, on_seed=lambda _: progress.advance(1))
    if scenario is None:
        words = f"nothing is lost, doubled or different in {counted(len(seeds), 'seed')}"
        report_first([words], output)
        emit(Report("event", EventRow._fields, []), output)
        return 0
    report_first(_words(scenario), output)
    rows = [event_row(each) for each in steps(scenario)]
    rows += [
        EventRow(
            time_us=scenario.events[-1].time_us,
            event=each.kind,
            node="",
            partition=each.partition,
            words=each.words,
        )
        for each in _first_of_each(scenario)
    ]
    repeats = calls(settings, scenario.run)
    if witness:
        save_scenario(witness, saved(settings, scenario, title_of(scenario)))
        repeats = replay_calls(witness)
    emit(Report("event", EventRow._fields, rows, notes=[*repeats]), output)
    message(f"of {counted(len(scenario.findings), 'finding')} one of each kind is shown")
    return EXIT_FINDINGS


OTHER_WORDS = {"crash": "kill"}


def parse_kinds(text: str) -> tuple[str, ...]:
    """Read --faults of explore. Raises UsageError."""
    named = [each.strip() for each in text.split(",") if each.strip()]
    kinds = tuple(dict.fromkeys(OTHER_WORDS.get(each, each) for each in named))
    known = (*KINDS, *CLASSES)
    wrong = [each for each in kinds if each not in known]
    if wrong or not kinds:
        what = f"{wrong[0]!r} is none of {', '.join(known)}" if wrong else "names no kind of fault"
        raise UsageError(f"--faults {pasted(text)}: {what}", next_step="--faults kill,power")
    return kinds


def _first_of_each(scenario: Scenario) -> list[HistoryFinding]:
    first: dict[str, HistoryFinding] = {}
    for each in scenario.findings:
        first.setdefault(each.kind, each)
    return [*first.values()]


def _words(scenario: Scenario) -> Iterator[str]:
    yield f"seed {scenario.run.seed}: {', '.join(sorted(scenario.kinds))}"


def title_of(scenario: Scenario) -> str:
    """Return the title of a saved scenario."""
    return f"{', '.join(sorted(scenario.kinds))} after {scenario.run.faults or 'nothing'}"


def replay_calls(witness: str) -> Iterator[str]:
    """Yield the commands that repeat a saved scenario."""
    yield f"eoctl sim run ./play --replay {pasted(witness)}"
    yield "eoctl sim check ./play"


def calls(settings: PlaySettings, run: RunSettings) -> Iterator[str]:
    """Yield the commands that repeat a scenario."""
    yield f"eoctl sim init ./play {_options(INIT_OPTIONS, settings)}".rstrip()
    options = RUN_OPTIONS | (TRANSACTION_OPTIONS if run.is_transactional else {})
    yield f"eoctl sim run ./play {_options(options, run)}".rstrip()
    yield "eoctl sim check ./play"


# Option -> field. A boolean option has no value, and is given if the field differs from the
# default.
INIT_OPTIONS = {
    "--nodes": "nodes",
    "--partitions": "partitions",
    "--replication-factor": "replication_factor",
    "--min-insync-replicas": "min_insync",
    "--unclean-leader-election": "is_unclean",
    "--elr": "has_elr",
    "--truncation": "truncation",
    "--fsync": "fsync",
}
RUN_OPTIONS = {
    "--acks": "acks",
    "--retries": "retries",
    "--no-idempotence": "is_idempotent",
    "--records": "records",
    "--rate": "rate",
    "--burst": "burst",
    "--in-flight": "in_flight",
    "--faults": "faults",
    "--seed": "seed",
}
TRANSACTION_OPTIONS = {
    "--transaction-records": "transaction_records",
    "--abort-every": "abort_every",
    "--isolation": "isolation",
}


def _options(options: dict[str, str], settings: PlaySettings | RunSettings) -> str:
    words = []
    for name, field in options.items():
        value = getattr(settings, field)
        if isinstance(value, bool):
            if value != name.startswith("--no-"):
                words.append(name)
        elif name == "--acks":
            words.append(f"{name} {'all' if value < 0 else value}")
        else:
            words.append(f"{name} {pasted(str(value))}")
    return " ".join(words)


# -- `sim table`: the guarantee matrix, and the scenario that shows its worst effect


# Class of faults -> its description for a person.
WORDS = {
    "kill-one": "one broker is killed",
    "kill-in-turn": "brokers are killed one after the other",
    "partition-leader": "the leader is cut off",
    "kill-then-power": "followers are killed, then the leader loses power",
    "stop-then-power": "followers are stopped, then the leader loses power",
    "power-all": "all machines lose power at once",
}
_EFFECT_WORDS = {
    "lose": "loses what was acknowledged or read",
    "duplicate": "has records twice",
    "diverge": "has replicas that differ for good",
}


WIDTH = 78
# For a group of cells. The options have the whole names.
SHORT = {
    "acks": "acks",
    "idempotence": "idempotent",
    "min_insync_replicas": "min.insync",
    "replication_factor": "replicas",
    "unclean": "unclean",
    "truncation": "truncation",
    "elr": "elr",
    "fsync": "fsync",
}


class GuaranteeRow(NamedTuple):
    """A cell of the matrix."""

    acks: str
    is_idempotent: bool
    min_insync_replicas: int
    replication_factor: int
    is_unclean: bool
    has_elr: bool
    truncation: str
    fsync: str
    faults: str
    verdict: str
    seeds_count: int
    violations_count: int


class CellGroupRow(NamedTuple):
    """Cells with the same result."""

    settings: str
    faults: str
    verdict: str


def table(filters: Mapping[str, str], output: OutputFormat, witness: str) -> int:
    """Show the cells that the filters leave. `witness` is the file for the scenario that is shown.

    Raises:
        UsageError: no cell is left. RefusedError: the file exists, or the matrix is damaged.
        AccessError: a file cannot be read or written.
    """
    if witness:
        require_new(witness)
    by_cell = load_matrix().by_cell()
    chosen = {name: _parse(name, text) for name, text in filters.items() if text != "any"}
    cells = {each: by_cell[each.canonical] for each in all_cells() if _fits(each, chosen)}
    if not cells:
        raise UsageError(
            f"no release of Kafka has {_named(chosen)} together",
            next_step="leave one of them out: eoctl sim table",
        )
    reported = _reported(cells, chosen)
    scenario = None
    if reported is not None:
        effect = reported.effects[0]
        run = load_matrix().witnesses[reported.witnesses[effect]].run_in(reported.cell)
        with Progress("playing", unit="courses"):
            scenario = simulate_scenario(reported.cell.settings, run)
    answer = [*_answer(cells, chosen)]
    if reported is not None and scenario is not None:
        answer += ["", *_scenario(reported.cell, scenario)]
    if witness and reported is not None and scenario is not None:
        save_scenario(witness, saved(reported.cell.settings, scenario, title_of(scenario)))
        answer += ["", *replay_calls(witness)]
    elif witness:
        raise UsageError(
            "--witness: nothing was found to lose, duplicate or diverge here",
            next_step="the same call without --witness shows which cells these are",
        )
    report_first(answer, output)
    is_grouped = output is OutputFormat.TEXT
    emit(_report(cells, chosen, is_grouped=is_grouped), output)
    return 0


def _parse(name: str, text: str) -> Any:
    for each in DIMENSIONS[name]:
        if text_of_value(each) == text:
            return each
    raise UsageError(
        f"--{_option(name)} {text}: one of {', '.join(map(text_of_value, DIMENSIONS[name]))}",
        next_step="without it all of them are shown: eoctl sim table",
    )


def _option(name: str) -> str:
    return "unclean-leader-election" if name == "unclean" else name.replace("_", "-")


def _fits(cell: GuaranteeCell, chosen: Mapping[str, Any]) -> bool:
    return all(getattr(cell, name) == value for name, value in chosen.items())


def _named(chosen: Mapping[str, Any]) -> str:
    return ", ".join(f"{_option(name)}={text_of_value(value)}" for name, value in chosen.items())


# --- rows -----------------------------------------------------------------------------------------


def _report(
    cells: Mapping[GuaranteeCell, CellResult],
    chosen: Mapping[str, Any],
    *,
    is_grouped: bool,
) -> Report:
    """Return all cells for programs, and cells with the same result in groups for people."""
    if not is_grouped:
        rows = [_row(cell, result) for cell, result in cells.items()]
        return Report("guarantee", GuaranteeRow._fields, rows)
    groups = grouped({cell: each.verdict for cell, each in cells.items()})
    found = [
        CellGroupRow(
            ", ".join(settings_of(each, chosen)) or "any",
            each.text_of("faults"),
            str(each.comes_to),
        )
        for each in groups
    ]
    return Report("guarantees", CellGroupRow._fields, found)


def settings_of(group: CellGroup, chosen: Mapping[str, Any]) -> Iterator[str]:
    """Yield the settings of a group, except chosen settings and settings without effect."""
    for name in DIMENSIONS:
        text = group.text_of(name)
        if name != "faults" and name not in chosen and text != "any":
            yield f"{SHORT[name]}={text.replace(', ', '/')}"


def _row(cell: GuaranteeCell, result: CellResult) -> GuaranteeRow:
    return GuaranteeRow(
        acks=cell.acks,
        is_idempotent=cell.idempotence,
        min_insync_replicas=cell.min_insync_replicas,
        replication_factor=cell.replication_factor,
        is_unclean=cell.unclean,
        has_elr=cell.elr,
        truncation=cell.truncation,
        fsync=cell.fsync,
        faults=cell.faults,
        verdict=result.verdict,
        seeds_count=result.seeds_count,
        violations_count=result.violations_count,
    )


# --- the answer -----------------------------------------------------------------------------------


def defaults_for(chosen: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values for the rest: Kafka's defaults, adapted to the chosen values."""
    rest = {**DEFAULTS, **chosen}
    if "idempotence" not in chosen and (rest["acks"] != "all" or rest["truncation"] == "hw"):
        rest["idempotence"] = False
    if "elr" not in chosen and rest["truncation"] == "hw":
        rest["elr"] = False
    return rest


def _of_defaults(
    cells: Mapping[GuaranteeCell, CellResult], chosen: Mapping[str, Any]
) -> dict[str, CellResult]:
    """Return the result of each class of faults with default settings."""
    rest = defaults_for(chosen)
    found = {}
    for faults in FAULTS:
        cell = GuaranteeCell(**{**rest, "faults": faults})
        if cell in cells:
            found[faults] = cells[cell]
    return found


def _reported(
    cells: Mapping[GuaranteeCell, CellResult], chosen: Mapping[str, Any]
) -> CellResult | None:
    """Return the cell to show: a cell with a loss under the defaults, else any cell with a loss."""
    candidates = [*_of_defaults(cells, chosen).values(), *cells.values()]
    for effect in EFFECTS:
        for each in candidates:
            if effect in each.effects:
                return each
    return None


def _answer(cells: Mapping[GuaranteeCell, CellResult], chosen: Mapping[str, Any]) -> Iterator[str]:
    rest = {name: value for name, value in defaults_for(chosen).items() if name not in chosen}
    asked = _named(chosen) or "all settings"
    tried = {each.cell: each for each in cells.values()}.values()
    losing = sum(bool(each.effects) for each in tried)
    none = [each.seeds_count for each in tried if not each.effects]
    yield f"{asked}:"
    yield f"{losing} of {counted(len(tried), 'cell')} may lose, duplicate or diverge."
    if none:
        words = f"{range_words(none)} courses of events"
        yield f"Nothing was found in the other {len(none)}, in {words} each."
    found = _of_defaults(cells, chosen)
    if not found:
        return
    yield ""
    yield from wrap(f"With {_named(rest)}:", WIDTH, break_on_hyphens=False)
    for faults, each in found.items():
        words = each.verdict if each.effects else f"{each.verdict} in {each.seeds_count:,}"
        yield f"  {words:27}{WORDS[faults]}"


def range_words(counts: Collection[int]) -> str:
    """Return the smallest and the largest count, or the count if all are equal."""
    least, most = min(counts), max(counts)
    return f"{least:,}" if least == most else f"{least:,} to {most:,}"


def _scenario(cell: GuaranteeCell, scenario: Scenario) -> Iterator[str]:
    """Yield the scenario in at most 12 steps, and its result."""
    effect = next(
        each for each in EFFECTS if each in {effect_of(found.kind) for found in scenario.findings}
    )
    found = min(
        (each for each in scenario.findings if effect_of(each.kind) == effect),
        key=lambda each: each.kind != "lost-write",
    )
    settings = _named({name: value for name, value in cell._asdict().items() if name != "faults"})
    yield from wrap(
        f"How it {_EFFECT_WORDS[effect]}, with {settings}:", WIDTH, break_on_hyphens=False
    )
    for number, each in enumerate(steps(scenario), 1):
        begun = f"{number:3}. {each.time_us / 1e6:8.3f} s  "
        yield from wrap(f"{begun}{each.words}", WIDTH, subsequent_indent=" " * len(begun))
    yield from wrap(f"     {found.words}", WIDTH, subsequent_indent=" " * 5)


def survived_words(results: Iterable[CellResult]) -> Iterator[str]:
    """Yield how many deaths in turn replicas survive, and the requirement of a majority rule."""
    by_cell = {each.cell: each for each in results}
    for replicas in (2, 3):
        cells = [
            GuaranteeCell(
                **{**DEFAULTS, "replication_factor": replicas, "elr": elr, "faults": faults}
            )
            for elr in (False, True)
            for faults in ("kill-one", "kill-in-turn")
        ]
        if all(not by_cell[each].effects for each in cells):
            deaths = replicas - 1
            seeds_count = min(by_cell[each].seeds_count for each in cells)
            yield (
                f"acks=all: {replicas} replicas lose nothing by {counted(deaths, 'death')} in turn"
                f" ({seeds_count:,} courses each); a majority of replicas would need"
                f" {2 * deaths + 1} to survive them"
            )
