"""The daemons of YARN, of the Hadoop that pyspark brings the client of, for `test_yarn.py`.

    python -m tests.spark.yarn_libs        # or: make yarn-libs

fetches their jars through Maven into `.cache/yarn-libs`, 90 MB; what is there stays.
"""

from __future__ import annotations

import shutil
import sys

from tests.kafka.capture.releases import fetch
from tests.kafka.jars import REPOSITORY_DIR

HADOOP = "3.5.0"
YARN_LIBS = REPOSITORY_DIR / ".cache" / "yarn-libs"
# The third has classes that the ResourceManager loads, and does not name as what it needs.
WANTED = ("resourcemanager", "nodemanager", "timelineservice")


def missing_yarn() -> str:
    """Why no YARN can be started, "" when it can."""
    if all(any(YARN_LIBS.glob(f"hadoop-yarn-server-{each}-*.jar")) for each in WANTED):
        return ""
    return "YARN's jars are missing. To fetch them: make yarn-libs"


def main() -> int:
    """Fetch them, if they are not there; all of them or none."""
    if not YARN_LIBS.is_dir():
        begun = YARN_LIBS.with_name("yarn-libs.new")
        shutil.rmtree(begun, ignore_errors=True)
        begun.parent.mkdir(exist_ok=True)
        fetch([f"org.apache.hadoop:hadoop-yarn-server-{each}:{HADOOP}" for each in WANTED], begun)
        begun.rename(YARN_LIBS)
    print(f"YARN of Hadoop {HADOOP}: {YARN_LIBS}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
