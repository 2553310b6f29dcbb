"""Captures `tests/golden/kafka-4.3.1-deaths.tar.xz`: dead clusters, and how they come back.

    python -m tests.kafka.capture.deaths ARCHIVE

Of each way to die (`tests/kafka/deaths.py`), with ELR and without: the log dirs of three brokers and
their controller, and `answers.jsonl`: what real brokers made of them, for each order of starting.
It takes ten minutes.
"""

from __future__ import annotations

import json
import sys
import tarfile
import tempfile
from itertools import permutations
from pathlib import Path
from typing import TYPE_CHECKING

from tests.kafka.deaths import (
    AT_ONCE,
    DEATHS,
    IN_TURN,
    ONE,
    REPLICAS,
    Order,
    bring_back,
    die,
    start_in,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.kafka.deaths import Seen

ELR = {True: "elr", False: "no-elr"}


def orders_of(death: str) -> list[Order]:
    """Return the orders in which brokers come back; of one death not all of them do."""
    if death == ONE:
        return [Order((0, 2)), Order((2, 0))]
    found = [Order(each) for each in permutations(REPLICAS)]
    if death == IN_TURN:  # broker 1, which died last, does not come back
        for brokers in ((0, 2), (2, 0)):
            found += [Order(brokers), Order(brokers, 1), Order(brokers, 2)]
    elif death == AT_ONCE:
        found.append(Order((2, 0), 1))
    return found


def answers(death: str, *, elr: bool, kept: Path, work: Path) -> Iterator[tuple[Order, list[Seen]]]:
    """Let brokers die, keep what they leave, and bring them back in each order."""
    for number, order in enumerate(orders_of(death)):
        if number == 0 or death == ONE:
            dead = die(work / f"died-{number}", death, elr=elr)
            try:
                if number == 0:
                    dead.copy(kept)
                if death == ONE:  # as the others run on
                    yield order, start_in(dead, order)
                    continue
            finally:
                dead.close()
        copied = dead.copy(work / str(number))
        yield order, bring_back(copied, order)


def trim_indexes(root: Path) -> None:
    """Cut the zeros from indexes of the metadata, 10 MiB each, as a clean stop does."""
    for path in root.glob("*/__cluster_metadata-0/*index"):
        entry_bytes = 8 if path.suffix == ".index" else 12
        data = path.read_bytes()
        used = len(data.rstrip(b"\0"))
        with path.open("r+b") as file:
            file.truncate(-(-used // entry_bytes) * entry_bytes)


def main() -> None:
    """Write the archive that the command line names."""
    (archive_path,) = sys.argv[1:]
    with tempfile.TemporaryDirectory(prefix="eoctl-deaths-") as name:
        for elr, elr_name in ELR.items():
            for death in DEATHS:
                kept = Path(name, "kept", elr_name, death.replace(" ", "-"))
                work = Path(name, "work", kept.parent.name, kept.name)
                found = answers(death, elr=elr, kept=kept, work=work)
                lines = [json.dumps([*order, seen]) for order, seen in found]
                (kept / "answers.jsonl").write_text("".join(f"{each}\n" for each in lines))
                trim_indexes(kept)
        with tarfile.open(archive_path, "w:xz", preset=9) as archive:
            archive.add(Path(name, "kept"), ".")


if __name__ == "__main__":
    main()
