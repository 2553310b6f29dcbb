"""The strategies of a repair. Imports nothing, since the command line names them."""

from __future__ import annotations

from enum import StrEnum


class Strategy(StrEnum):
    """The strategy of a repair."""

    AS_BROKER = "as-broker"  # truncate like a start without the clean-shutdown marker
    SALVAGE = "salvage"  # keep every good batch, also after damage
    MOVE_AWAY = "move-away"  # set all of it aside, for the broker to fetch it again
