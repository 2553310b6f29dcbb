"""Have the Python processes of a local Spark import pyspark as pip has installed it.

Spark puts `pyspark.zip` of its home before everything else on their path. It has sources only, so
that each process compiles them: 0.6 s of processor time, of four of them one after the other, until
a first row is there. A home without that file has them take what is installed, compiled.

That home is a directory of links in the user's cache, one for each pyspark: a driver that is killed
leaves nothing that the next one does not use.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

HOME = "SPARK_HOME"
CACHE_HOME = "XDG_CACHE_HOME"
NEEDED = ("bin", "jars")  # of a pyspark that is a whole Spark: of pip, not of a distribution
# The zip file, with links back; what Python writes when it is first imported.
LEFT_OUT = ("python", "__pycache__")


def home_environment() -> dict[str, str]:
    """Return the variable that has Spark start so; none where somebody has said where Spark is."""
    if os.environ.get(HOME):
        return {}
    import pyspark

    home = _home_of(Path(pyspark.__file__).parent)
    return {} if home is None else {HOME: home}


@cache
def _home_of(installed: Path) -> str | None:
    """Find or make the home for what is installed; without room for it Spark starts slower."""
    if not all((installed / name).is_dir() for name in NEEDED):
        return None
    try:
        links = {each.name: str(each) for each in installed.iterdir() if each.name not in LEFT_OUT}
        digest = hashlib.sha256("\0".join(sorted(links.values())).encode()).hexdigest()
        home = _cache_dir() / f"spark-{digest[:16]}"
        if not _is_whole(home, links):
            _make(home, links)
        return str(home) if _is_whole(home, links) else None
    except (OSError, RuntimeError):  # of a user who has no home, too
        return None


def _cache_dir() -> Path:
    named = Path(os.environ.get(CACHE_HOME, ""))
    return (named if named.is_absolute() else Path.home() / ".cache") / "eoctl"


def _is_whole(home: Path, links: Mapping[str, str]) -> bool:
    """Is it ours, and does it lead to all that is installed, and nowhere else?"""
    if not home.is_dir() or home.stat().st_uid != os.geteuid():
        return False
    return links == {
        each.name: str(each.readlink()) for each in home.iterdir() if each.is_symlink()
    } and len(links) == len([*home.iterdir()])


def _make(home: Path, links: Mapping[str, str]) -> None:
    """Make it under another name: who starts meanwhile sees all of it, or nothing."""
    home.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    made = Path(tempfile.mkdtemp(prefix=f".{home.name}-", dir=home.parent))
    try:
        for name, target in links.items():
            (made / name).symlink_to(target)
        with suppress(OSError):  # another process was first
            made.rename(home)
    finally:
        shutil.rmtree(made, ignore_errors=True)
