"""A driver that audits again and again in one session: `audit_driver.py ORDERS`, a JSON file.

Each call leaves NUMBER.out, NUMBER.err and, last, NUMBER.json with its exit status and what befell
its tasks. With a file to wait for the calls are repeated until it is there.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from eoctl.spark.session import parse_settings, spark_session
from tests.in_process import called, streams_in


def failed_tasks(context: Any, group: str) -> int:
    """How many tasks of the jobs of a group have failed, and were tried again."""
    tracker = context.statusTracker()
    jobs = (tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(group))
    stages = (tracker.getStageInfo(stage) for job in jobs if job for stage in job.stageIds)
    return sum(stage.numFailedTasks for stage in stages if stage)


def main() -> None:
    """Do as the orders say."""
    orders = json.loads(Path(sys.argv[1]).read_text())
    results, awaited = Path(orders["results"]), orders["until"]
    number = 0
    with spark_session(orders["master"], parse_settings(orders["settings"])) as session:
        while True:
            for words in orders["calls"]:
                group = f"call-{number}"
                session.sparkContext.setJobGroup(group, group)
                (results / f"{number}.begun").touch()
                with streams_in(results / f"{number}.out", results / f"{number}.err"):
                    status = called(words)
                reported = {"status": status, "failed": failed_tasks(session.sparkContext, group)}
                begun = results / f"{number}.new"
                begun.write_text(json.dumps(reported))
                begun.rename(results / f"{number}.json")
                number += 1
            if not awaited or Path(awaited).exists():
                return


if __name__ == "__main__":
    main()
