"""The command line interface: commands, printed text, messages and the clock.

From the entry down: __main__, start, main, app, fast_parser, outcome, command_table, plan_actions,
change_options, shared_options, options, parameters, replica_paths, version, arrow_files, clock,
interrupt, progress, command_line, report_files, libraries, messages, output, csv_table.
"""

__version__ = "0.1.0"
