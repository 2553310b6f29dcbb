"""A Spark that Delta Lake and Iceberg have releases for, and their jars, for `test_tables.py`.

    python -m tests.spark.lake_libs        # or: make lake-libs

fetches them into `.cache/lake-libs`, 500 MB; what is there stays. For Spark 4.3 there are none.
"""

from __future__ import annotations

import shutil
import subprocess
import sys

from tests.kafka.capture.releases import fetch
from tests.kafka.jars import REPOSITORY_DIR

LIBS = REPOSITORY_DIR / ".cache" / "lake-libs"
SPARK = "4.1.1"
SPARK_PATH = LIBS / "pyspark"
JARS = {
    "delta": "io.delta:delta-spark_4.1_2.13:4.3.1 io.delta:delta-storage:4.3.1",
    "iceberg": "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0",
}


def missing_libs() -> str:
    """Why no table can be written by a real session, "" when one can."""
    if SPARK_PATH.is_dir() and all((LIBS / name).is_dir() for name in JARS):
        return ""
    return "Delta's and Iceberg's jars are missing. To fetch them: make lake-libs"


def jars_of(name: str) -> str:
    """What `spark.jars` is told. Spark has all else that Maven brings along."""
    wanted = [each.split(":")[1:] for each in JARS[name].split()]
    return ",".join(str(LIBS / name / f"{jar}-{version}.jar") for jar, version in wanted)


def main() -> int:
    """Fetch what is not there; each of them or nothing of it."""
    LIBS.mkdir(parents=True, exist_ok=True)
    if not SPARK_PATH.is_dir():
        begun = SPARK_PATH.with_name("pyspark.new")
        shutil.rmtree(begun, ignore_errors=True)
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps"]
        subprocess.run([*pip, "--target", str(begun), f"pyspark=={SPARK}"], check=True)
        begun.rename(SPARK_PATH)
    for name, wanted in JARS.items():
        if (LIBS / name).is_dir():
            continue
        begun = LIBS / f"{name}.new"
        shutil.rmtree(begun, ignore_errors=True)
        fetch(wanted.split(), begun)
        begun.rename(LIBS / name)
    print(f"Spark {SPARK}, Delta Lake and Iceberg: {LIBS}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
