"""What all tests share: the golden directories, hypothesis profiles, and what may be left out."""

from __future__ import annotations

import gc
import itertools
import os
import signal
import stat
import tarfile
import tempfile
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from hypothesis import HealthCheck, settings

from recovery.transactions import unknown_ends
from storage.kernels.kernel_choice import native_module
from tests.drawn import examples, outside_share, seed_of_this_run
from tests.kafka import jars
from tests.kafka.metadata_shell import missing_shell
from tests.once import once_per_run
from tests.running import Outcome, runner

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# A shell starts background jobs with interrupts ignored, and programs that tests start inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)

GOLDEN_DIR = Path(__file__).parent / "golden"

# `local` (pytest by hand) and `ci` (make test) draw the same examples in every run; `all` (make
# test-all) and `fuzz` do not.
_SHARED: dict[str, Any] = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("all", database=None, print_blob=True, **_SHARED)
_SHARED["max_examples"] = examples(100)
settings.register_profile("ci", derandomize=True, database=None, print_blob=True, **_SHARED)
settings.register_profile("local", derandomize=True, database=None, **_SHARED)
settings.register_profile("fuzz", **{**_SHARED, "max_examples": 5000})
settings.load_profile("local")


# --- golden directories ---------------------------------------------------------------------------


class _Row(NamedTuple):
    name: str
    mode: int
    size_bytes: int
    mtime_ns: int


class _Golden(NamedTuple):
    root: Path
    inventory: list[_Row]


def _inventory(root: Path) -> list[_Row]:
    """What is below `root`, without reading it: cheap, and enough to see that it was changed."""
    rows = []
    for directory, subdirs, files in os.walk(root):
        for name in [*subdirs, *files]:
            path = Path(directory, name)
            found = path.lstat()
            size_bytes = found.st_size if stat.S_ISREG(found.st_mode) else 0
            relative = str(path.relative_to(root))
            rows.append(_Row(relative, found.st_mode, size_bytes, found.st_mtime_ns))
    return sorted(rows)


def _unpack(archive_path: Path, target: Path) -> _Golden:
    with tarfile.open(archive_path) as archive:
        if hasattr(tarfile, "data_filter"):  # Debian 12's Python 3.11.2 does not have it yet
            archive.extraction_filter = tarfile.data_filter
        archive.extractall(target)
    return _Golden(target, _inventory(target))


@pytest.fixture(scope="session")
def golden(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Path]]:
    """A function from an archive's name (without `.tar.xz`) to the directory it is unpacked in.

    Each archive is unpacked once per test run, mtimes kept, whatever the number of xdist workers.
    It is there to be read: copy what a test wants to change. Files stay writable, so that a copy
    is, too; the end of the session compares names, modes, sizes and mtimes with what was unpacked.
    """
    used: dict[str, _Golden] = {}

    def unpacked(name: str) -> Path:
        if name not in used:
            if "/" in name:  # as a directory it would lie inside of another golden directory
                raise ValueError(f"{name}: name the archive, and go on with / from its path")
            unpack = partial(_unpack, GOLDEN_DIR / f"{name}.tar.xz")
            used[name] = once_per_run(tmp_path_factory, name, unpack)
        return used[name].root

    yield unpacked

    for name, (root, before) in used.items():
        if (after := _inventory(root)) != before:
            changed = sorted({row.name for row in {*before} ^ {*after}})
            pytest.fail(f"tests changed the golden directory {name}: {changed[:10]}")


@pytest.fixture
def gaps_were_never_filled(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No absent offset hides an end marker: the log of the golden state `hard` was made with gaps.

    What readers keep of a log that they have read before is forgotten, before and afterwards.
    """
    kept = unknown_ends.log_files_of_places, unknown_ends.find_ends_of_places
    monkeypatch.setattr(unknown_ends, "gaps_are_losses", lambda _: False)
    for each in kept:
        each.cache_clear()
    yield
    for each in kept:
        each.cache_clear()


@pytest.fixture(scope="session")
def golden_names() -> list[str]:
    """The names of all golden archives, sorted."""
    return sorted(path.name.removesuffix(".tar.xz") for path in GOLDEN_DIR.glob("*.tar.xz"))


@pytest.fixture(scope="session")
def golden_log_dirs(
    golden: Callable[[str], Path], golden_names: list[str]
) -> dict[str, list[Path]]:
    """The log dirs with a segment of each golden archive that has any, by its name."""
    found = {
        name: sorted({log.parent.parent for log in golden(name).rglob("*.log")})
        for name in golden_names
    }
    return {name: log_dirs for name, log_dirs in found.items() if log_dirs}


# --- what may be left out -------------------------------------------------------------------------


def _missing_native() -> str:
    found = native_module()
    return "" if found is not None else "no native kernel: scripts/setup-env.sh makes it with cargo"


def _missing_browser() -> str:
    for name in ("playwright", "axe_playwright_python"):
        if find_spec(name) is None:
            return f"no {name}: pip install -c constraints.txt -e '.[test-browser]'"
    return jars.missing_tool("chromium")


# Marker -> why its tests cannot run here, "" when they can.
_MISSING: dict[str, Callable[[], str]] = {
    "broker": jars.missing_broker,
    "kafka_shell": missing_shell,
    "java": partial(jars.missing_tool, "java"),
    "native": _missing_native,
    "browser": _missing_browser,
    **{name: partial(jars.missing_tool, name) for name in ("mandoc", "zsh", "fish", "kcat")},
}
_REQUIRED = {name.strip() for name in os.environ.get("EOCTL_REQUIRE", "").split(",")} - {""}
_LEFT_OUT = pytest.StashKey[dict[str, int]]()
# A run shorter than that ends without its times.
SHORT_SECONDS = 60.0
SLOWEST_COUNT = 20
_LEFT_TO_ALL = "left to make test-all"


def pytest_configure(config: pytest.Config) -> None:
    """Refuse to run without what EOCTL_REQUIRE names; choose the seed of this run."""
    config.stash[_LEFT_OUT] = {}
    if not hasattr(config, "workerinput"):
        os.environ.setdefault("EOCTL_SEED", str(seed_of_this_run()))
        if unknown := _REQUIRED - set(_MISSING):
            raise pytest.UsageError(f"EOCTL_REQUIRE: {sorted(unknown)}, known: {sorted(_MISSING)}")
        # Where something is required, nothing at all may be left out.
        checks = _MISSING if _REQUIRED else {}
        if reasons := {name: why for name, check in checks.items() if (why := check())}:
            raise pytest.UsageError(f"EOCTL_REQUIRE is set, and tests cannot run: {reasons}")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out, in one place, the tests whose programs are missing, and what is not drawn."""
    kept = []
    left_out = config.stash[_LEFT_OUT]
    is_named = any("::" in argument for argument in config.args)
    not_drawn = set() if is_named else set(outside_share(items))
    if not_drawn:
        left_out[_LEFT_TO_ALL] = len(not_drawn)
    for item in items:
        if item in not_drawn:
            continue
        lacking = [name for name in _MISSING if item.get_closest_marker(name) and _MISSING[name]()]
        if lacking:
            left_out[lacking[0]] = left_out.get(lacking[0], 0) + 1
            continue
        kept.append(item)
    if len(kept) < len(items):
        chosen = set(kept)
        config.hook.pytest_deselected(items=[item for item in items if item not in chosen])
    # First of all, so that one worker does them (`--dist worksteal` steals from the other end):
    # they are the longest, and one broker at a time is enough.
    # Those of Spark follow for the same reason: the other worker then starts no session.
    items[:] = sorted(
        kept,
        key=lambda item: [item.get_closest_marker(name) is None for name in ("broker", "java")],
    )


def pytest_collection_finish() -> None:
    """Spare the garbage collector ten thousand items, which live as long as the run."""
    gc.collect()
    gc.freeze()


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Under xdist: hand the numbers from a worker to where the summary is printed."""
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["left_out"] = session.config.stash[_LEFT_OUT]


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Every worker collects every test, so the numbers of one of them are those of all."""
    node.config.stash[_LEFT_OUT].update(getattr(node, "workeroutput", {}).get("left_out", {}))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say where the time went, what was left out and why, and how to repeat this run."""
    config = terminalreporter.config
    _write_times(terminalreporter)
    left_out = dict(config.stash[_LEFT_OUT])
    if count := left_out.pop(_LEFT_TO_ALL, 0):
        terminalreporter.write_line(f"{_LEFT_TO_ALL}: {count} cases")
    for name, count in left_out.items():
        terminalreporter.write_line(f"left out: {count} {name} tests: {_MISSING[name]()}")
    terminalreporter.write_line(f"random data: EOCTL_SEED={os.environ['EOCTL_SEED']} repeats it")


def _write_times(terminalreporter: pytest.TerminalReporter) -> None:
    """Write the seconds of each folder, and the slowest tests."""
    tests: dict[str, float] = {}
    for report in itertools.chain.from_iterable(terminalreporter.stats.values()):
        if isinstance(report, pytest.TestReport):
            tests[report.nodeid] = tests.get(report.nodeid, 0.0) + report.duration
    if sum(tests.values()) < SHORT_SECONDS:
        return
    folders: dict[str, list[float]] = {}
    for test, seconds in tests.items():
        folder = "/".join(test.partition("::")[0].split("/")[:-1][:2])
        folders.setdefault(folder, []).append(seconds)
    terminalreporter.write_line("seconds of the workers, tests, folder:")
    for folder, each in sorted(folders.items(), key=lambda item: -sum(item[1])):
        terminalreporter.write_line(f"{sum(each):7.1f} {len(each):6} {folder}")
    terminalreporter.write_line(f"{sum(tests.values()):7.1f} {len(tests):6} all")
    terminalreporter.write_line("slowest tests:")
    for test in sorted(tests, key=lambda each: -tests[each])[:SLOWEST_COUNT]:
        terminalreporter.write_line(f"{tests[test]:7.1f} {test}")


# --- the program ----------------------------------------------------------------------------------


@pytest.fixture
def eoctl(capfdbinary: pytest.CaptureFixture[bytes]) -> Callable[..., Outcome]:
    """A function that calls `eoctl ARGUMENTS...` in this process."""
    return runner(capfdbinary)


@pytest.fixture
def other_disk(tmp_path: Path) -> Iterator[Path]:
    """An empty directory in another file system than the test's."""
    for place in map(Path, ("/dev/shm", "/var/tmp", GOLDEN_DIR)):
        if place.is_dir() and place.stat().st_dev != tmp_path.stat().st_dev:
            with tempfile.TemporaryDirectory(prefix="eoctl-test-", dir=place) as path:
                yield Path(path)
            return
    pytest.skip("no second file system here")


@pytest.fixture
def workers_pay(monkeypatch: pytest.MonkeyPatch) -> None:
    """Start workers for the smallest job, too: what tests read is small."""
    monkeypatch.setattr("recovery.pool.MIN_SHARED_BYTES", 0)
