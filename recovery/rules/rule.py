"""What a rule is: one row of the catalogue, from which all that is said of the rule derives."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from recovery.rules.findings import Severity


class Rule(NamedTuple):
    """What holds for a log, or what a broker does; build it by name.

    Attributes:
        check_id: its name, such as BAT-1.
        title: what holds.
        kafka: the classes of Kafka that make it so.
        test: of this project, the file that shows it, by its last one or two names.
        severity: of a broken one, where a check does not say otherwise; None: it says what a
            broker does, and nothing tells of it as broken.
        broker: what a broker does about a broken one, in general.
        command: what puts it right, {} for the directory; "" if no command does.
        fix: what else there is to do, in words.
        excuse: where it is no finding, or one of another severity.
        is_normal_when_compacted: compaction leaves it broken as a matter of course.
        stops_start: where a start is refused because of the file, then because of this.
        at_start: what the next start does whatever becomes of the file, {} for the log end.
    """

    check_id: str
    title: str
    kafka: str
    test: str
    severity: Severity | None = None
    broker: str = ""
    command: str = ""
    fix: str = ""
    excuse: str = ""
    is_normal_when_compacted: bool = False
    stops_start: bool = False
    at_start: str = ""

    @property
    def family(self) -> str:
        """The part of its name that it shares with others: BAT."""
        return self.check_id.partition("-")[0]

    @property
    def number(self) -> tuple[int, str]:
        """What its family is sorted by."""
        digits = re.search(r"\d+", self.check_id)
        return (int(digits[0]), self.check_id) if digits else (0, self.check_id)
