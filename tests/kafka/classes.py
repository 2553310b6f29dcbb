"""An archive of Kafka's loaded classes, beside its jars: a JVM starts with a third less of work.

`python -m tests.kafka.classes` makes it, where it is not there yet (`make test` does). Without it, or
when it is of another JVM or of other jars, a JVM loads its classes one by one as ever, and says
nothing.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from tests.kafka import jars
from tests.kafka.broker import Broker


def make_archive() -> bool:
    """Note the classes that a broker loads from its start to its stop; tell whether that was done."""
    path = jars.class_archive()
    if jars.missing_broker() or path.exists():
        return False
    with tempfile.TemporaryDirectory(dir=path.parent, prefix="classes-") as directory:
        made = Path(directory, "made")
        noting = ("-Xmx512M", f"-XX:ArchiveClassesAtExit={made}", "-Xlog:disable")
        with Broker(Path(directory, "log-dir"), java_options=noting) as broker:
            broker.stop()
        made.rename(path)
    return True


if __name__ == "__main__":
    make_archive()
