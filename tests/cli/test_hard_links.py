"""Files with other names, as `cp -al` leaves them: what is done to one name is done to no other."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest

from tests.changes import journal_of
from tests.crash.trees import difference, leftovers, tree_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

LOG = "txn-0/00000000000000000000.log"
TRUNCATE = ("truncate", "kafka/txn-0", "--to-offset", "311", "--apply")


def link_all(directory: Path) -> Path:
    """A second tree of the same files."""
    other = directory.with_name("other")
    subprocess.run(["cp", "-al", directory, other], check=True)
    return other


def test_a_cut_and_its_undo_leave_the_other_name_as_it_was(kafka: Path, eoctl: Callable) -> None:
    before = tree_of(kafka)
    other = link_all(kafka)
    outcome = eoctl(*TRUNCATE)
    assert outcome.status == 0, outcome.errors
    assert (kafka / LOG).stat().st_size < (other / LOG).stat().st_size
    assert difference(before, tree_of(other)) == []
    assert eoctl("undo", journal_of(kafka)).status == 0
    assert difference(before, tree_of(kafka)) == []
    assert difference(before, tree_of(other)) == []
    assert leftovers(kafka) == []


def test_an_undo_leaves_names_that_were_made_after_the_cut(kafka: Path, eoctl: Callable) -> None:
    before = tree_of(kafka)
    assert eoctl(*TRUNCATE).status == 0
    cut = tree_of(kafka)
    other = link_all(kafka)
    assert eoctl("undo", journal_of(kafka)).status == 0
    assert difference(before, tree_of(kafka)) == []
    assert difference(cut, tree_of(other)) == []


def test_what_the_other_name_gets_is_not_in_the_backup(kafka: Path, eoctl: Callable) -> None:
    """A broker that goes on with the other tree writes into its files; the kept bytes stay."""
    (kafka / "txn-0/00000000000000000000.timeindex").write_bytes(b"?" * 24)
    before = tree_of(kafka)
    other = link_all(kafka)
    assert eoctl("rebuild", "kafka/txn-0", "--apply").status == 0
    with (other / "txn-0/00000000000000000000.timeindex").open("r+b") as file:
        file.write(b"written by the other one")
    assert eoctl("undo", journal_of(kafka)).status == 0
    assert difference(before, tree_of(kafka)) == []


@pytest.mark.parametrize("partition", ["txn-0", "plain-0"])
def test_an_append_leaves_the_other_name_as_it_was(
    kafka: Path, eoctl: Callable, partition: str
) -> None:
    before = tree_of(kafka)
    other = link_all(kafka)
    lines = kafka.with_name("lines")
    lines.write_text("one\ntwo\n")
    arguments = (lines, "--single-copy", "--apply")
    outcome = eoctl("produce", kafka / partition, *arguments)
    assert outcome.status == 0, outcome.errors
    assert difference(before, tree_of(other)) == []
    assert difference(before, tree_of(kafka)) != []


def test_a_lease_leaves_the_other_name_as_it_was(log_dir: Path, eoctl: Callable) -> None:
    acquire = ("lease-pid", "acquire", log_dir, "--app-id", "a", "--expiry-ms", "1000")
    assert eoctl(*acquire).status == 0
    other = link_all(log_dir)
    before = tree_of(other)
    assert eoctl(*acquire).status == 0
    assert difference(before, tree_of(other)) == []
    assert difference(before, tree_of(log_dir)) != []


def test_a_file_of_one_name_is_cut_where_it_is(kafka: Path, eoctl: Callable) -> None:
    """A log of a terabyte is not copied."""
    number = (kafka / LOG).stat().st_ino
    assert eoctl(*TRUNCATE).status == 0
    assert (kafka / LOG).stat().st_ino == number
    assert eoctl("undo", journal_of(kafka)).status == 0
    assert (kafka / LOG).stat().st_ino == number
