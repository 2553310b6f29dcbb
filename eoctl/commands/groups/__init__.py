"""`eoctl groups`: consumer groups, their committed offsets and members, of brokers that are dead.

From the entry down: bring_in, translate, export, look.
"""

from eoctl.commands.groups.bring_in import import_offsets
from eoctl.commands.groups.export import export
from eoctl.commands.groups.look import describe, list_groups
from eoctl.commands.groups.translate import translate

SUBCOMMANDS = {
    "list": list_groups,
    "describe": describe,
    "export": export,
    "import": import_offsets,
    "translate": translate,
}
