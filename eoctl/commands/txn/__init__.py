"""`eoctl txn`: transactions of partitions, joined with the state of their coordinators.

There is a module for each kind of change. `inspect_transactions` only reads.

From the entry down: abort, commit, committables, complete, inspect_transactions, reports, run,
readers, written_copies.
"""

from eoctl.command_table import Subcommands

SUBCOMMANDS = Subcommands(
    {
        "list": "eoctl.commands.txn.inspect_transactions:list_transactions",
        "describe": "eoctl.commands.txn.inspect_transactions:describe",
        "hanging": "eoctl.commands.txn.inspect_transactions:hanging",
        "torn": "eoctl.commands.txn.inspect_transactions:torn",
        "stats": "eoctl.commands.txn.inspect_transactions:stats",
        "abort": "eoctl.commands.txn.abort:abort",
        "commit": "eoctl.commands.txn.commit:commit",
        "complete": "eoctl.commands.txn.complete:complete",
        "run": "eoctl.commands.txn.run:run",
    }
)
