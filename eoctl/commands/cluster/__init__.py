"""`eoctl cluster`: a replica set that is played over real log dirs, and what clients are told.

From the entry down: play.
"""

from eoctl.commands.cluster.play import check, explore, init, run

SUBCOMMANDS = {
    "init": init,
    "run": run,
    "check": check,
    "explore": explore,
}
