"""Calls that are read without Typer: with the values that Typer would give, or not at all."""

from __future__ import annotations

import os
import random
import shlex
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from enum import Enum
from io import StringIO
from typing import TYPE_CHECKING, Any, get_args

import pytest
from typer.exceptions import TyperException
from typer.main import get_command

from eoctl import app, fast_parser
from eoctl.command_table import COMMANDS
from eoctl.help.examples import EXAMPLES
from eoctl.parameters import NEEDED, parameters_of, with_parameters
from eoctl.shared_options import SHARED, with_shared
from tests.help_options import calls_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from eoctl.parameters import Parameter

CALLS = [words for command in COMMANDS for words in calls_of(command)]
WORDS = ["x", "a b", "-", "--", "--zzz", "-z", "", "/var/log/t-0", "--help", "compare", "5", "-5"]
VALUES = {
    float: ["7", "007", "0", "-1", "0.5", "1e3", "nan", "x", ""],
    str: ["x", "", "-", "-5", "--apply", "a=b", "\udcff"],
    int: [
        "7",
        "007",
        "0",
        "-1",
        "+3",
        " 4",
        "1_0",
        "2.0",
        "x",
        "",
        "²",
        str(2**63),
        "9" * 5000,
        "٣",
    ],
}


class Judges:
    """What a call is to Typer, and what it is without it."""

    def __init__(self, words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
        self.words = words
        self._given: dict[str, Any] | None = None
        for module in (app, fast_parser):
            monkeypatch.setattr(module, "with_kernel", self._recorded)
        self._typer: Any = get_command(app.build_app([*words]))
        monkeypatch.setattr(app, "exit_status_of", lambda call: call() or 0)
        called = fast_parser.called(words)
        assert called is not None
        self.parameters = parameters_of(with_shared(called[0]))
        self.needed = [word for each in self.parameters if each.default is NEEDED
                       for word in _good(each)]  # fmt: skip

    def _recorded(self, function: Callable[..., int | None]) -> Callable[..., int | None]:
        def record(**values: Any) -> None:
            self._given = values

        return with_parameters(record, parameters_of(function))

    def by_typer(self, more: list[str]) -> dict[str, Any] | None:
        """Return the values of the command; None: it is not called."""
        self._given = None
        try:
            with redirect_stdout(StringIO()), redirect_stderr(StringIO()):
                self._typer.main([*self.words, *more], "eoctl", standalone_mode=False)
        except (SystemExit, TyperException):
            pass
        return self._given

    def plainly(self, more: list[str]) -> dict[str, Any] | None:
        """Return the same, without Typer."""
        self._given = None
        command = fast_parser.plain_command([*self.words, *more])
        return None if command is None else (command(), self._given)[1]

    def differ(self, more: list[str]) -> bool:
        """Whether a call is read without Typer, and otherwise."""
        plain = self.plainly(more)
        return plain is not None and _typed(plain) != _typed(self.by_typer(more))


def _typed(values: dict[str, Any] | None) -> str:
    return "" if values is None else str({name: repr(values[name]) for name in sorted(values)})


def _values(kind: Any) -> list[str]:
    kind = next((each for each in get_args(kind) if each is not type(None)), kind)
    kind = next(iter(get_args(kind)), kind)
    if issubclass(kind, Enum):
        names = [str(each.value) for each in kind]
        return [*names, names[0].upper(), names[0][:-1], names[-1] + "x", ""]
    return VALUES.get(kind, [])


def _names(parameter: Parameter) -> tuple[str, ...]:
    declared = get_args(parameter.hint)[1]
    own = f"--{parameter.name.replace('_', '-')}"
    return (declared.names or (own,)) if declared.is_option else ()


def _good(parameter: Parameter) -> list[str]:
    """A parameter in a call, as it should be."""
    kind, declared = get_args(parameter.hint)
    value = [str(max(declared.settings["min"], 0))] if "min" in declared.settings else _values(kind)
    return [*_names(parameter)[:1], *value[:1]]


def _uses(judges: Judges) -> Iterator[list[str]]:
    """Each option of a command, in every way it could be written."""
    for each in judges.parameters:
        kind, names = get_args(each.hint)[0], _names(each)
        for name in names:
            yield from ([name], [f"{name}="], [name[:-1]], [name.upper()], [f"{name}x"])
            yield from ([f"--no-{name.lstrip('-')}"], [f"{name}=true"], [name, "--", "x"])
            for value in _values(kind):
                yield from ([name, value], [f"{name}={value}"], [f"{name}{value}"])
                yield [name, value, names[0], _values(kind)[0]]


@pytest.mark.share(8)
@pytest.mark.parametrize("words", CALLS, ids=" ".join)
def test_each_option_is_as_typer_reads_it(
    words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    judges = Judges(words, monkeypatch)
    assert [use for use in _uses(judges) if judges.differ([*judges.needed, *use])] == []
    goods = [_good(each) for each in judges.parameters if _names(each)]
    assert [each for each in goods if judges.plainly([*judges.needed, *each]) is None] == []


@pytest.mark.share(8)
@pytest.mark.parametrize("words", CALLS, ids=" ".join)
def test_calls_are_as_typer_reads_them(words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Options and arguments in any order, some of them twice, some wrong."""
    judges = Judges(words, monkeypatch)
    chooser = random.Random(f"{os.environ['EOCTL_SEED']} {words}")
    uses = [*_uses(judges), *([each] for each in WORDS * 10)]
    good = [each for each in uses if judges.plainly([*judges.needed, *each])]
    for _ in range(60):
        count = chooser.randrange(6)
        drawn = [chooser.choice(good if chooser.random() < 0.9 else uses) for _ in range(count)]
        call = [word for each in drawn for word in each] + judges.needed * chooser.randrange(2)
        assert not judges.differ(call), call


@pytest.mark.parametrize("call", [call for call in EXAMPLES if call.split() in CALLS])
def test_usual_calls_need_no_typer(call: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of the help."""
    judges = Judges(call.split(), monkeypatch)
    for each in EXAMPLES[call]:
        words = shlex.split(each.call.rpartition("eoctl ")[2].partition(" | ")[0])
        more = words[words.index("eoctl") + 1 :] if "eoctl" in words else words
        more = more[len(judges.words) :]
        assert judges.plainly(more) is not None, more
        assert not judges.differ(more)
    assert {*SHARED} - {each.name for each in judges.parameters} == set()


LOADED = """
import sys
from eoctl.main import run
try:
    run(sys.argv[1:])
finally:
    print(*sys.modules, sep="\\n", file=sys.stderr)
"""


@pytest.mark.parametrize(
    ("call", "slow"),
    [
        ("check --help", {"typer", "inspect", "typing", "pathlib", "re"}),
        ("describe .", {"typer", "inspect", "dataclasses"}),
        ("dump-segment leader-epoch-checkpoint", {"typer", "inspect", "dataclasses"}),
    ],
)
def test_what_takes_long_to_load_is_not_loaded(
    call: str, slow: set[str], golden: Callable[[str], Path]
) -> None:
    """Where the time of a small call went."""
    done = subprocess.run(
        [sys.executable, "-S", "-c", LOADED, *call.split()],
        cwd=golden("kafka-4.3.1") / "clean" / "txn-0",
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout
    assert slow & {*done.stderr.splitlines()} == set()
