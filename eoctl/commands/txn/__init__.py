"""`eoctl txn`: transactions of partitions, joined with what their coordinators know.

A module for each way to change something; `look` only reads.

From the entry down: abort, commit, complete, look, run, coordinators.
"""

from eoctl.commands.txn.abort import abort
from eoctl.commands.txn.commit import commit
from eoctl.commands.txn.complete import complete
from eoctl.commands.txn.look import describe, hanging, list_transactions, stats, torn
from eoctl.commands.txn.run import run

SUBCOMMANDS = {
    "list": list_transactions,
    "describe": describe,
    "hanging": hanging,
    "torn": torn,
    "stats": stats,
    "abort": abort,
    "commit": commit,
    "complete": complete,
    "run": run,
}
