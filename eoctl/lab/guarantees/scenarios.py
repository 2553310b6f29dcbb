"""Scenarios: simulated in memory, searched, shortened, saved."""

from __future__ import annotations

import fcntl
import io
import json
import os
from contextlib import contextmanager, suppress
from functools import cache, lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir
from typing import TYPE_CHECKING, Any, NamedTuple

from eoctl.lab.checker.directories import read_contents
from eoctl.lab.checker.findings import judge
from eoctl.lab.checker.histories import HistorySource
from eoctl.lab.checker.rules import RULES
from eoctl.lab.environment.faults import Size, drawn_faults, parse_faults
from eoctl.lab.environment.network import Scheduler
from eoctl.lab.environment.settings import PlaySettings, RunSettings, problem_of
from eoctl.lab.layout import make_cluster
from eoctl.lab.simulation import Simulation
from storage.dirs.state_file import StateSchema, read_as
from storage.errors import EoctlError, RefusedError, UsageError, os_errors, pasted
from storage.files import fsio
from storage.files.fsio import FileAttributes, FileSystem, remove_tree
from storage.files.positioned_file import read_small_file

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    from eoctl.lab.checker.directories import ReplicaContent
    from eoctl.lab.checker.rules import HistoryFinding
    from eoctl.lab.environment.network import TraceEvent
    from eoctl.lab.layout import SimulatedCluster
    from eoctl.lab.simulation import RunResult
    from storage.file_names import TopicPartition
    from storage.files.fsio import OpenFile

    _Entries = tuple[tuple[str, bytes | None], ...]


# -- scenarios in files: the output of `sim explore`, and the scripts of the package.
#
# A file is JSON. It has name and version of the schema, the settings of the cluster and of the run,
# and the faults, one per line. It also has the findings of `sim check` at the end. By the digest of
# the history, a release knows that it has simulated the same.


MAX_FILE_BYTES = 1 << 20
SCRIPTS = Path(__file__).with_name("scripts")


class SavedCourse(NamedTuple):
    """A scenario that can be repeated.

    Attributes:
        run: without the faults.
        kinds: of findings.
        digest: of the history, "" if unknown.
    """

    title: str
    settings: PlaySettings
    run: RunSettings
    faults: tuple[str, ...]
    kinds: tuple[str, ...] = ()
    digest: str = ""

    @property
    def whole_run(self) -> RunSettings:
        """The run with its faults."""
        return self.run._replace(faults=", ".join(self.faults))


SCHEMA = StateSchema("eoctl course", 5, (SavedCourse, PlaySettings, RunSettings))


# Earlier version -> values of settings that it does not have.
EARLIER: dict[int, tuple[str, dict[str, Any]]] = {
    2: ("run", {"consumer_commit": "none"}),
    3: (
        "run",
        {
            "transaction_records": 0,
            "abort_every": 0,
            "transaction_timeout_ms": 60_000,
            "isolation": "read_committed",
        },
    ),
    4: ("settings", {"fetch_min_bytes": 1, "fetch_wait_max_ms": 500}),
}


_PARTS = ("settings", "run")


def saved(settings: PlaySettings, scenario: Scenario, title: str) -> SavedCourse:
    """Return a scenario in its saved form."""
    faults = tuple(each for each in scenario.run.faults.split(", ") if each)
    return SavedCourse(
        title=title,
        settings=settings,
        run=scenario.run._replace(faults=""),
        faults=faults,
        kinds=tuple(sorted(scenario.kinds)),
        digest=scenario.result.digest,
    )


def encode_scenario(scenario: SavedCourse) -> bytes:
    """Encode a scenario as JSON."""
    value: dict[str, Any] = {"schema": SCHEMA.name, "version": SCHEMA.version}
    value |= scenario._asdict()
    value["settings"] = scenario.settings._asdict()
    value["run"] = scenario.run._asdict()
    return json.dumps(value, indent=1).encode() + b"\n"


def require_new(path: str) -> None:
    """Require a path without a file, in an existing directory. Raises RefusedError."""
    place = Path(path)
    if os.path.lexists(path):
        raise RefusedError(
            f"{path}: is there already; nothing was touched",
            next_step="name a file that is not there yet",
        )
    if not place.parent.is_dir():
        parent = str(place.parent)
        if os.path.lexists(parent):
            raise RefusedError(f"{path}: {parent} is no directory", next_step="name another file")
        raise RefusedError(
            f"{path}: there is no directory {parent}", next_step=f"mkdir -p {pasted(parent)}"
        )


def save_scenario(path: str, scenario: SavedCourse) -> None:
    """Write a new file in one step. Raises AccessError."""
    attributes = FileAttributes(os.geteuid(), os.getegid(), 0o644)
    fsio.replace_file(FileSystem(), path, encode_scenario(scenario), attributes=attributes)


def load_scenario(path: str) -> SavedCourse:
    """Read a file.

    Raises:
        RefusedError: the file has no scenario, or a scenario of another release.
        AccessError: the file cannot be read.
    """
    with os_errors(path):
        data = read_small_file(path, MAX_FILE_BYTES)
    return parse_scenario(data, path)


def parse_scenario(data: bytes, path: str) -> SavedCourse:
    """Parse the result of `encode_scenario`. Raises RefusedError as `load_scenario`."""
    value = _parse_json(data, path)
    try:
        schema, version = value.pop("schema"), value.pop("version")
    except (KeyError, TypeError, AttributeError):
        schema = version = None
    if schema != SCHEMA.name:
        raise _refused(f"{path}: is no course of events that eoctl sim saved")
    if version in EARLIER and all(isinstance(value.get(each), dict) for each in _PARTS):
        for each in range(version, SCHEMA.version):
            part, said = EARLIER[each]
            value[part] = said | value[part]
        version = SCHEMA.version
    if version != SCHEMA.version:
        raise _refused(
            f"{path}: a course of version {version}; version {SCHEMA.version} is read here"
        )
    _require_types(value, path)
    try:
        scenario = read_as(SavedCourse, value)
    except ValueError as error:
        raise _refused(f"{path}: is damaged: {error}") from None
    problem = problem_of(scenario.settings) or problem_of(scenario.run)
    if problem:
        raise _refused(f"{path}: {problem}")
    for number, fault in enumerate(scenario.faults, 1):
        try:
            parse_faults(fault, scenario.settings.nodes, scenario.run.clients)
        except UsageError as error:
            words = str(error).removeprefix("--faults: ")
            raise RefusedError(
                f"{path}: fault {number}: {words}", next_step=error.next_step
            ) from None
    return scenario


def _refused(words: str) -> RefusedError:
    step = "write one with --witness FILE of eoctl sim explore, or of table"
    return RefusedError(words, next_step=step)


def _parse_json(data: bytes, path: str) -> Any:
    """Read JSON. Raises RefusedError."""
    try:
        return json.loads(data)
    except json.JSONDecodeError as error:
        raise _refused(f"{path}: line {error.lineno}: no JSON ({error.msg})") from None
    except (ValueError, RecursionError):
        raise _refused(f"{path}: is no course of events that eoctl sim saved") from None


def _require_types(value: dict[str, Any], path: str) -> None:
    """Refuse settings of a wrong type, by name. Raises RefusedError."""
    for name, kind in (("settings", PlaySettings), ("run", RunSettings)):
        given = value.get(name)
        if not isinstance(given, dict):
            continue
        for field, default in kind._field_defaults.items():
            if field in given and type(given[field]) is not type(default):
                words = f"{str(given[field])[:40]!r} is no {type(default).__name__}"
                raise _refused(f"{path}: {name}.{field}: {words}")


def script_names() -> list[str]:
    """Return the names of the scripts."""
    return sorted(each.stem for each in SCRIPTS.glob("*.json"))


def load_script(name: str) -> SavedCourse:
    """Read a script. Raises UsageError for an unknown name."""
    if name not in script_names():
        raise UsageError(
            f"--script {name}: there is none of that name",
            next_step=f"one of {', '.join(script_names())}: eoctl sim scripts",
        )
    return load_scenario(str(SCRIPTS / f"{name}.json"))


# -- scratch directories in memory for scenarios.
#
# A killed process leaves its directory behind. A directory in use is locked (flock), so the next
# process removes only unlocked directories.


MEMORY = "/dev/shm"  # noqa: S108 - a directory in memory, where there is one
PREFIX = "eoctl-course-"
ATTEMPTS = 9


@contextmanager
def scratch() -> Iterator[Path]:
    """Yield an empty directory for one scenario, and remove it afterwards.

    Raises:
        AccessError: the directory cannot be made.
    """
    place = MEMORY if Path(MEMORY).is_dir() else gettempdir()
    remove_abandoned(place)
    fs = FileSystem()
    for attempt in range(1, ATTEMPTS + 1):
        with TemporaryDirectory(prefix=PREFIX, dir=place, ignore_cleanup_errors=True) as directory:
            lock = _locked(fs, directory)
            # Another process took it as abandoned before the lock. Or the file system has no such
            # locks, and then no process can remove it.
            if lock is None and attempt < ATTEMPTS:
                continue
            try:
                yield Path(directory)
            finally:
                if lock is not None:
                    fs.close(lock)
            return


def _locked(fs: FileSystem, directory: str) -> OpenFile | None:
    """Lock a directory. Return None if another process has it, or if it does not exist."""
    try:
        lock = fs.open_dir(directory)
    except OSError:
        return None
    try:
        fcntl.flock(lock.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.path.samestat(os.fstat(lock.fd), Path(directory).stat()):
            return lock
    except OSError:
        pass
    fs.close(lock)
    return None


@cache
def remove_abandoned(place: str) -> None:
    """Remove the directories of killed processes, once per process."""
    fs = FileSystem()
    for each in Path(place).glob(f"{PREFIX}*"):
        lock = _locked(fs, str(each))
        if lock is None:
            continue
        try:
            with suppress(EoctlError):  # another user's
                remove_tree(fs, each)
        finally:
            fs.close(lock)


# -- one scenario: create, run and judge a small cluster in a scratch directory


MAX_STEPS = 12
MADE_MAX = 8  # clusters kept as created, because a cell is simulated many times in a row
# Events that a person needs less, in the order of their removal from a long scenario.
_LESS_REPORTED = ("session", "start", "isr", "refused", "election")


class Scenario(NamedTuple):
    """One run, with the findings of the checker."""

    run: RunSettings
    result: RunResult
    events: list[TraceEvent]
    findings: list[HistoryFinding]

    @property
    def kinds(self) -> set[str]:
        """Names of the findings."""
        return {each.kind for each in self.findings}


def simulate_scenario(settings: PlaySettings, run: RunSettings) -> Scenario:
    """Create a cluster, run it, judge it, and leave no files behind.

    Raises:
        RefusedError, AccessError: the run was not possible.
    """
    made = _as_made(settings)  # first, because it takes a scratch directory itself
    with scratch() as directory:
        cluster = _made_again(str(directory.resolve() / "play"), *made)
        lines: list[bytes] = []
        simulation = Simulation(cluster.root, cluster.cluster, settings, run, 1, write=lines.append)
        result = simulation.run()
        history = b"".join(lines)

        def replicas_of(key: TopicPartition) -> list[ReplicaContent]:
            name = f"{key.topic}-{key.partition}"
            nodes = settings.assignment[key.partition]
            return read_contents(
                (f"node-{each}", f"{cluster.node_path(each)}/{name}") for each in nodes
            )

        source = HistorySource("history", lambda: io.BytesIO(history))
        verdict = judge([source], replicas_of, checks=False)
    found = [each for each in verdict.findings if RULES[each.kind].is_finding]
    return Scenario(run=run, result=result, events=simulation.trace.events, findings=found)


def _made_again(root: str, cluster: SimulatedCluster, entries: _Entries) -> SimulatedCluster:
    """Create a cluster with the files of an earlier `make_cluster` with these settings."""
    fs = FileSystem()
    fs.make_dir(root)
    for name, content in entries:
        if content is None:
            fs.make_dir(f"{root}/{name}")
        else:
            with fs.open_new(f"{root}/{name}") as file:
                fs.write(file, content)
    return cluster._replace(root=root)


@lru_cache(MADE_MAX)
def _as_made(settings: PlaySettings) -> tuple[SimulatedCluster, _Entries]:
    """Return a new cluster and its entries, directories first: name, and content or None."""
    with scratch() as directory:
        cluster = make_cluster(str(Path(directory, "play")), settings)
        root = Path(cluster.root)
        entries = tuple(
            (str(each.relative_to(root)), None if each.is_dir() else each.read_bytes())
            for each in sorted(root.rglob("*"))
        )
    return cluster, entries


def steps(scenario: Scenario) -> list[TraceEvent]:
    """Return the events of a scenario, at most MAX_STEPS, without the first starts."""
    begun = next((each.time_us for each in scenario.events if each.kind == "fault"), 0)
    reported = [each for each in scenario.events if each.time_us >= begun]
    # The clean stop at the end is left out, because everything is decided by then.
    healed = [
        place for place, each in enumerate(reported) if each.words.startswith("all is healed")
    ]
    if healed:
        last = reported[healed[-1]].time_us
        reported = [
            each for each in reported if each.time_us <= last or each.kind in {"cut", "lost"}
        ]
    for kind in _LESS_REPORTED:
        while len(reported) > MAX_STEPS and any(each.kind == kind for each in reported):
            reported.remove(next(each for each in reversed(reported) if each.kind == kind))
    return reported[:MAX_STEPS]


# -- many scenarios, one per seed, and the shortest scenario with a finding.
#
# A seed draws faults of the wanted kinds or classes (`faults.CLASSES`). A scenario with findings is
# shortened while it has the same findings. First faults are left out, then records.


def faults_of_seed(seed: int, kinds: tuple[str, ...], settings: PlaySettings) -> str:
    """Return the faults that a seed draws, as text."""
    size = Size(settings.nodes, settings.replication_factor)
    return drawn_faults(Scheduler(seed).draw, kinds, size)


def explore(
    settings: PlaySettings,
    run: RunSettings,
    kinds: tuple[str, ...],
    seeds: range,
    *,
    on_seed: Callable[[int], None],
) -> Scenario | None:
    """Search for a scenario with findings, and return it shortened, None without one.

    Raises as `simulate_scenario`.
    """
    for seed in seeds:
        tried = run._replace(seed=seed, faults=faults_of_seed(seed, kinds, settings))
        scenario = simulate_scenario(settings, tried)
        on_seed(seed)
        if scenario.findings:
            return shortened(settings, scenario, scenario.kinds)
    return None


def shortened(settings: PlaySettings, scenario: Scenario, wanted: Collection[str]) -> Scenario:
    """Leave out parts of a scenario that a wanted kind of finding does not need."""
    is_shorter = True
    while is_shorter:
        is_shorter = False
        for run in _shorter(scenario.run):
            tried = simulate_scenario(settings, run)
            if not tried.kinds.isdisjoint(wanted):
                scenario, is_shorter = tried, True
                break
    return scenario


def _shorter(run: RunSettings) -> Iterator[RunSettings]:
    faults = run.faults.split(", ")
    if len(faults) > 1:
        for place in range(len(faults)):
            yield run._replace(faults=", ".join(faults[:place] + faults[place + 1 :]))
    if run.records > 10:
        yield run._replace(records=run.records // 2)
