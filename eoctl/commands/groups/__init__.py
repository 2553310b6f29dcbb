"""`eoctl groups`: consumer groups, their committed offsets and members, of brokers that are dead.

From the entry down: bring_in, export, look.
"""

from eoctl.commands.groups.bring_in import import_offsets
from eoctl.commands.groups.export import export
from eoctl.commands.groups.look import describe, list_groups

SUBCOMMANDS = {
    "list": list_groups,
    "describe": describe,
    "export": export,
    "import": import_offsets,
}
