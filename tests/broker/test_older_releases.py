"""What `init` and `adopt` make for other releases, under real brokers of these: all is served."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from storage.file_names import METADATA_TOPIC
from tests.broker import test_adopt, test_init
from tests.kafka.broker import copy_log_dir
from tests.kafka.jars import tool
from tests.kafka.older_releases import VERSIONS, libs_of, missing_release

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.running import Outcome

    Cli = Callable[..., Outcome]
    Golden = Callable[[str], Path]

pytestmark = pytest.mark.broker


def use_brokers_of(release: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Start brokers of another release from here on; tools stay those of today."""
    if reason := missing_release(release):
        pytest.skip(reason)

    def command(*arguments: str) -> list[str]:
        return [tool("java"), "-cp", f"{libs_of(release)}/*", *arguments]

    monkeypatch.setattr("tests.kafka.broker.java_command", command)
    monkeypatch.setattr("tests.kafka.broker.quick_start", list)  # an archive is of its own jars


@pytest.mark.exhaustive
@pytest.mark.share(1)
@pytest.mark.parametrize("release", VERSIONS)
def test_what_init_made(
    release: str, eoctl: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_brokers_of(release, monkeypatch)
    test_init.require_served(release, eoctl, tmp_path)


@pytest.mark.exhaustive
@pytest.mark.share(1)
@pytest.mark.parametrize("release", VERSIONS)
@pytest.mark.parametrize(
    "source",
    ["kafka-3.9.1/one kafka-3.9.1/two", "kafka-4.3.1/clean"],
    ids=["of 3.9.1", "of 4.3.1"],
)
def test_what_adopt_made(
    source: str,
    release: str,
    golden: Golden,
    eoctl: Cli,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """From two log dirs of that time, and from one of a newer broker."""
    use_brokers_of(release, monkeypatch)
    dead = []
    for each in source.split():
        archive, name = each.split("/")
        dead.append(copy_log_dir(golden(archive) / name, tmp_path / name))
        shutil.rmtree(dead[-1] / f"{METADATA_TOPIC}-0", ignore_errors=True)
    test_adopt.require_all_served(dead, eoctl, tmp_path, "--copy", release)
