"""`eoctl serve` beside a real broker of 4.4.0 over directories of that release, and its tools."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.broker.test_serve_oracle import every_question, require_equal
from tests.kafka.broker import KEPT, copy_log_dir
from tests.kafka.capture.newest import DynamicBroker
from tests.serving import Served

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Golden = Callable[[str], Path]

pytestmark = [
    pytest.mark.broker,
    pytest.mark.exhaustive,
    pytest.mark.usefixtures("jars_of_4_4"),
]
HOUR_MS = "3600000"
SETTINGS = {
    **KEPT,
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
    # The killed members of groups stay.
    **{
        f"group.{kind}.{name}": HOUR_MS
        for kind in ("consumer", "share", "streams")
        for name in ("session.timeout.ms", "max.session.timeout.ms")
    },
}


@pytest.mark.parametrize("state", ["killed", "clean"])
def test_beside_a_broker(golden: Golden, tmp_path: Path, state: str) -> None:
    """Both have the same files before them at the same time."""
    log_dirs = [
        copy_log_dir(golden("kafka-4.4.0") / state / each, tmp_path / each)
        for each in ("one", "two")
    ]
    with DynamicBroker(log_dirs, overrides=SETTINGS) as broker:
        asked, answers = every_question(broker)
        with Served(*log_dirs, "--internal") as served:
            require_equal(asked, answers, served)
        broker.kill()
