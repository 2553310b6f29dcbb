"""What Kafka's own coordinator answers, as it was noted, and asked again."""

from __future__ import annotations

import lzma
import subprocess
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from . import jars

if TYPE_CHECKING:
    from collections.abc import Sequence

PROGRAM = Path(__file__).with_name("CoordinatorAnswers.java")
NOTED = Path(__file__).parents[1] / "golden" / "kafka-4.3.1-coordinator.answers.xz"


def has_compiler() -> bool:
    """Whether a Java is there that runs a source file."""
    if jars.missing_tool("java"):
        return False
    listed = subprocess.run(
        [jars.tool("java"), "--list-modules"], capture_output=True, text=True, check=False
    )
    return "jdk.compiler" in listed.stdout


def ask(cases: Sequence[str]) -> list[str]:
    """The answers of a coordinator of Kafka's jars to each case; needs a Java with its compiler."""
    asked = subprocess.run(
        jars.java_command(str(PROGRAM), libs=jars.COMMON_LIBS),
        input="".join(f"{each}\n" for each in cases),
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    answers = asked.stdout.splitlines()
    if asked.returncode or len(answers) != len(cases):
        raise RuntimeError(f"{PROGRAM.name}: {asked.stderr[-4000:]}")
    return answers


@cache
def noted() -> list[tuple[str, str]]:
    """Cases, and what Kafka 4.3.1 answered."""
    text = lzma.decompress(NOTED.read_bytes()).decode()
    pairs = (line.split("\t") for line in text.splitlines())
    return [(case, answers) for case, answers in pairs]


def note(cases: Sequence[str]) -> None:
    """Write what `noted` reads."""
    pairs = zip(cases, ask(cases), strict=True)
    text = "".join(f"{case}\t{answers}\n" for case, answers in pairs)
    NOTED.write_bytes(lzma.compress(text.encode(), preset=9))
