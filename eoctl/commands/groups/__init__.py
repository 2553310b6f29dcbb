"""`eoctl groups`: consumer groups of dead brokers, with committed offsets and members.

From the entry down: bring_in, translate, export, look, world.
"""

from eoctl.verbs import Subcommands

SUBCOMMANDS = Subcommands(
    {
        "list": "eoctl.commands.groups.look:list_groups",
        "describe": "eoctl.commands.groups.look:describe",
        "export": "eoctl.commands.groups.export:export",
        "import": "eoctl.commands.groups.bring_in:import_offsets",
        "translate": "eoctl.commands.groups.translate:translate",
    }
)
