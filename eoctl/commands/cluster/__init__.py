"""`eoctl cluster`: a replica set that is played over real log dirs, and what clients are told.

From the entry down: guarantees, play, declared.
"""

from eoctl.commands.cluster.guarantees import explore, scripts, table
from eoctl.commands.cluster.play import check, init, run

SUBCOMMANDS = {
    "init": init,
    "run": run,
    "check": check,
    "explore": explore,
    "scripts": scripts,
    "table": table,
}
