"""Help and man pages say the same: names of options, their values, defaults, the examples."""

from __future__ import annotations

import re

import pytest

from eoctl import shared_options
from eoctl.command_table import COMMANDS
from eoctl.help.command import default_of, written
from eoctl.help.examples import EXAMPLES
from tests.help_examples import MAN_DIR, block_of, with_examples
from tests.help_options import calls_of, made_of, with_options

_NOT_HERE = {*shared_options.SHARED, "output", "help"}


def _options(command: str) -> list[tuple[str, str, str]]:
    """Call, how the option is written, and its default, of a command and of its own commands."""
    found = []
    for words in calls_of(command):
        made, context = made_of(words)
        call = " ".join(words)
        found += [
            (call, written(each, context), default_of(each, context))
            for each in made.params
            if each.param_type_name == "option" and not each.hidden and each.name not in _NOT_HERE
        ]
    return found


def _listed(page: str) -> dict[str, set[str]]:
    """Each option of a page with what stands for its value, in small letters, without spaces."""
    found: dict[str, set[str]] = {}
    for line in re.findall(r"^\.It (Fl .*)$", page, re.MULTILINE):
        for each in re.split(r" , (?=Fl )", line):
            name, _, value = each.removeprefix("Fl ").partition(" ")
            plain = re.sub(r"\b(Ar|Cm|Ns|No|Op|Pq) |[ \\&]", "", value).lower()
            found.setdefault(f"-{name}", set()).add(plain)
    return found


@pytest.mark.parametrize("command", COMMANDS)
def test_values_of_options(command: str) -> None:
    """The page has the words of the help for the value: FILE as `Ar file`, choices one by one."""
    listed = _listed((MAN_DIR / f"eoctl-{command}.1").read_text())
    wrong = []
    for call, option, _ in _options(command):
        long_name = re.findall(r"--[a-z-]+", option)[-1]
        value = option.partition(f"{long_name} ")[2]
        if value != "NAME" and value.lower().replace(" ", "") not in listed.get(long_name, set()):
            wrong.append((call, option, sorted(listed.get(long_name, set()))))
    assert wrong == []


@pytest.mark.parametrize("command", COMMANDS)
def test_the_options_of_the_help_stand_in_the_page(command: str) -> None:
    """Each with the same words, as `python -m tests.help_options` writes them."""
    page = (MAN_DIR / f"eoctl-{command}.1").read_text()
    assert with_options(page, command) == page


def test_the_synopsis_follows_the_options() -> None:
    """What it lacks goes into the form of its command, and what no command has any more goes."""
    page = (MAN_DIR / "eoctl-txn.1").read_text()
    head, form, rest = page.partition(".Nm eoctl txn Cm commit\n")
    wanted = ".Op Fl -transaction-version Ar 0 | 1 | 2\n"
    assert wanted in rest
    old = head + form + ".Op Fl -of-old Ar n\n" + rest.replace(".Op Fl -force-overdue\n", "")
    old = old.replace(".Op Fl -force-overdue\n", "").replace(".Fl -exec Ar cmd\n", "")
    new = with_options(old.replace(wanted, ""), "txn").partition(".Sh DESCRIPTION")[0]
    assert "of-old" not in new
    added = {
        name: re.findall(r"Fl -(force-overdue|exec|transaction-version)\b", part)
        for name, part in re.findall(
            r"^\.Nm eoctl txn Cm (\w+)\n((?:\.[^NP].*\n)*)", new, re.MULTILINE
        )
    }
    assert {name: each for name, each in added.items() if each} == {
        "abort": ["force-overdue"],
        "commit": ["force-overdue", "transaction-version"],
        "run": ["exec", "transaction-version"],
    }
    assert "\n.Fl -exec Ar cmd\n" in new  # it is required
    assert new.count(wanted) == 2
    with pytest.raises(ValueError, match="edit the SYNOPSIS"):
        with_options(page.replace(".Op Fl -picture Op", ".Op Fl -of-old Op"), "txn")


@pytest.mark.parametrize("command", COMMANDS)
def test_numbers_that_are_defaults(command: str) -> None:
    """What the help has as a default, the page has too."""
    page = (MAN_DIR / f"eoctl-{command}.1").read_text()
    absent = [
        (call, option, default)
        for call, option, default in _options(command)
        if re.fullmatch(r"\d[\w ]*", default) and default != "0" and default not in page
    ]
    assert absent == []


@pytest.mark.parametrize("command", ["", *COMMANDS])
def test_the_examples_of_the_help_stand_in_the_page(command: str) -> None:
    """As `python -m tests.help_examples` writes them."""
    page = MAN_DIR / f"{'-'.join(['eoctl', *command.split()])}.1"
    assert with_examples(page.read_text(), command) == page.read_text()
    calls = [each for each in EXAMPLES if each.split()[:1] == command.split()]
    assert all(block_of(call).removesuffix(".Pp\n") in page.read_text() for call in calls)
