"""`eoctl txn`: transactions of partitions, joined with the state of their coordinators.

There is a module for each kind of change. `look` only reads.

From the entry down: abort, commit, committables, complete, look, reports, run, readers,
written_copies.
"""

from eoctl.verbs import Subcommands

SUBCOMMANDS = Subcommands(
    {
        "list": "eoctl.commands.txn.look:list_transactions",
        "describe": "eoctl.commands.txn.look:describe",
        "hanging": "eoctl.commands.txn.look:hanging",
        "torn": "eoctl.commands.txn.look:torn",
        "stats": "eoctl.commands.txn.look:stats",
        "abort": "eoctl.commands.txn.abort:abort",
        "commit": "eoctl.commands.txn.commit:commit",
        "complete": "eoctl.commands.txn.complete:complete",
        "run": "eoctl.commands.txn.run:run",
    }
)
