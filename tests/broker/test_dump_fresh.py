"""dump-segment against kafka-dump-log on a directory that was made in this very run."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.kafka.dump import options_for

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from tests.kafka.dump import DumpResult

pytestmark = [pytest.mark.broker, pytest.mark.exhaustive]


def differences(
    dumps: Mapping[Path, DumpResult], options: Callable[[Path], tuple[str, ...]], eoctl: Callable
) -> tuple[list[str], int]:
    """Names of the files whose text or status differs, and the number of lines that agree."""
    different, lines = [], 0
    for path, wanted in dumps.items():
        ours = eoctl("dump-segment", *options(path), path)
        if wanted.returncode:  # the untrimmed .index of an empty log: the tool dies on it
            expected, status = f"Dumping {path}\n{path} is empty.\n", 0
        else:
            expected, status = wanted.text.decode(), 0
        if (ours.stdout + ours.stderr).decode() != expected or ours.status != status:
            different.append(f"{path} ({ours.status})")
        lines += expected.count("\n")
    return different, lines


@pytest.mark.exhaustive
def test_every_file_with_all_its_records(
    fresh_dumps: dict[Path, DumpResult], eoctl: Callable
) -> None:
    """Both states, the decoders of the internal topics included."""
    different, lines = differences(fresh_dumps, options_for, eoctl)
    assert not different
    assert lines > 1000
    print(f"{len(fresh_dumps)} files, {lines} lines equal")


def test_every_log_by_its_headers(
    fresh_header_dumps: dict[Path, DumpResult], eoctl: Callable
) -> None:
    """Without any option."""
    different, lines = differences(fresh_header_dumps, lambda _: (), eoctl)
    assert not different
    assert lines > 500
