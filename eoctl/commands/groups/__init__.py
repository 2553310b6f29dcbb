"""`eoctl groups`: consumer groups, their committed offsets and members, of brokers that are dead.

From the entry down: look.
"""

from eoctl.commands.groups.look import describe, list_groups

SUBCOMMANDS = {
    "list": list_groups,
    "describe": describe,
}
