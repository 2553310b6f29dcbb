"""The archive of classes: brokers start with it, and without it when it is not that of the jars."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest

from tests.kafka import jars

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.broker

QUIET = ("-Dorg.slf4j.simpleLogger.defaultLogLevel=off",)


@pytest.mark.exhaustive
@pytest.mark.parametrize("content", [None, b"", bytes(10_000)])
def test_what_is_no_archive_is_passed_over_in_silence(
    content: bytes | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = tmp_path / "classes.jsa"
    monkeypatch.setattr(jars, "class_archive", lambda: archive)
    if content is None:
        assert jars.quick_start() == []
        return
    archive.write_bytes(content)
    assert str(archive) in jars.quick_start()[0]
    called = jars.java_command(
        *jars.quick_start(), *QUIET, "kafka.tools.StorageTool", "random-uuid"
    )
    done = subprocess.run(called, capture_output=True, text=True, check=True, timeout=60)
    assert len(done.stdout.strip()) == 22
    assert done.stdout.count("\n") == 1
    assert done.stderr == ""
