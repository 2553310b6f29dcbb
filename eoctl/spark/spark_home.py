"""Have the Python processes of a local Spark import pyspark as pip has installed it.

Spark puts `pyspark.zip` of its home before everything else on their path. It has sources only, so
that each process compiles them: 0.6 s of processor time, of four of them one after the other, until
a first row is there. A home without that file has them take what is installed, compiled.
"""

from __future__ import annotations

import os
import tempfile
from functools import cache
from pathlib import Path

HOME = "SPARK_HOME"
NEEDED = ("bin", "jars")  # of a pyspark that is a whole Spark: of pip, not of a distribution
LEFT_OUT = "python"  # has the zip file, and links back

_homes: list[tempfile.TemporaryDirectory[str]] = []


def home_environment() -> dict[str, str]:
    """Return the variable that has Spark start so; none where somebody has said where Spark is."""
    if os.environ.get(HOME):
        return {}
    import pyspark

    home = _home_of(Path(pyspark.__file__).parent)
    return {} if home is None else {HOME: home}


@cache
def _home_of(installed: Path) -> str | None:
    """Make a home of links to what is installed; it goes at the end of this process."""
    if not all((installed / name).is_dir() for name in NEEDED):
        return None
    try:
        directory = tempfile.TemporaryDirectory(prefix="eoctl-spark-", ignore_cleanup_errors=True)
        _homes.append(directory)
        for each in installed.iterdir():
            if each.name != LEFT_OUT:
                Path(directory.name, each.name).symlink_to(each)
    except OSError:  # no room for links: it starts without them, and slower
        return None
    return directory.name
