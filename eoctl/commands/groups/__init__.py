"""`eoctl groups`: consumer groups of dead brokers, with committed offsets and members.

From the entry down: import_offsets, translate, export, inspect_groups, group_context.
"""

from eoctl.command_table import Subcommands

SUBCOMMANDS = Subcommands(
    {
        "list": "eoctl.commands.groups.inspect_groups:list_groups",
        "describe": "eoctl.commands.groups.inspect_groups:describe",
        "export": "eoctl.commands.groups.export:export",
        "import": "eoctl.commands.groups.import_offsets:import_offsets",
        "translate": "eoctl.commands.groups.translate:translate",
    }
)
