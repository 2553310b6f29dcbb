"""What is said of guarantees: each claim with its cell of the matrix, and what must be found there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from eoctl.lab.guarantees.matrix import DEFAULTS, GuaranteeCell

if TYPE_CHECKING:
    from collections.abc import Mapping


_TWO: dict[str, object] = {"min_insync_replicas": 2}
_OLD: dict[str, object] = {"truncation": "hw", "elr": False, "idempotence": False}
_LEADER_ALONE: dict[str, object] = {"acks": "1", "idempotence": False}


class Claim(NamedTuple):
    """A sentence, and what shows it.

    Attributes:
        settings: that differ from the defaults.
        effect: what is found; "": none of all, or none of `never`.
        never: effects that are not, in a cell that has others.
    """

    words: str
    faults: str
    settings: Mapping[str, object]
    effect: str
    never: tuple[str, ...] = ()

    @property
    def cell(self) -> GuaranteeCell:
        """Of the matrix."""
        values: dict[str, Any] = {**DEFAULTS, **self.settings, "faults": self.faults}
        return GuaranteeCell(**values)


CLAIMS = (
    Claim("acks=1 loses when its leader dies before anybody has fetched", "kill-one",
          _LEADER_ALONE, "lose"),
    Claim("acks=1 loses what a leader took that was cut off", "partition-leader",
          _LEADER_ALONE, "lose"),
    Claim("acks=all with min.insync.replicas=1 loses once the ISR is the leader alone, and its disk"
          " forgets", "stop-then-power", {}, "lose"),
    Claim("acks=all with min.insync.replicas=2 loses nothing when one broker is killed", "kill-one",
          _TWO, ""),
    Claim("nor when one after the other is", "kill-in-turn", _TWO, ""),
    Claim("nor when the leader is cut off", "partition-leader", _TWO, ""),
    Claim("but when all machines lose power at once, and nobody has synced", "power-all", _TWO,
          "lose"),
    Claim("which it does not with each batch synced", "power-all", {**_TWO, "fsync": "batch"}, ""),
    Claim("unclean.leader.election.enable=true loses by kills alone", "kill-in-turn",
          {**_TWO, "unclean": True}, "lose"),
    Claim("the last replica standing loses without ELR, when the others were stopped cleanly",
          "stop-then-power", {**_TWO, "elr": False}, "lose"),
    Claim("and does not with it (KIP-966)", "stop-then-power", {**_TWO, "elr": True}, ""),
    Claim("when the others were killed, ELR does not help: a log that was not closed is not"
          " believed, whoever comes back", "kill-then-power", {**_TWO, "elr": True}, "lose"),
    Claim("nor does it cover what a leader alone acknowledged: the eligible replica that leads next"
          " has what was committed", "stop-then-power",
          {**_LEADER_ALONE, **_TWO, "fsync": "batch"}, "lose"),
    Claim("cutting at the high watermark loses (KIP-101, first case)", "kill-in-turn",
          {**_TWO, **_OLD}, "lose"),
    Claim("cutting by leader epochs, all else being the same, neither loses nor diverges there",
          "kill-in-turn", {**_TWO, **_OLD, "truncation": "epoch"}, "", ("lose", "diverge")),
    Claim("cutting at the high watermark leaves replicas that differ for good (its second case)",
          "power-all", {**_OLD}, "diverge"),
    Claim("cutting by leader epochs, all else being the same, does not: all come to have the same,"
          " whatever the disks forgot", "power-all", {**_OLD, "truncation": "epoch"}, "",
          ("diverge",)),
    Claim("a producer that is not idempotent duplicates when a leader dies", "kill-in-turn",
          {**_TWO, "idempotence": False}, "duplicate"),
    Claim("an idempotent one does not: what is sent again is there once", "kill-in-turn", _TWO, ""),
)  # fmt: skip
