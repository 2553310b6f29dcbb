"""The command line interface: commands, printed text, messages and the clock.

From the entry down: __main__, start, main, app, plain_calls, outcome, verbs, changing,
change_options, shared_options, options, declared, replica_paths, version, arrow_files, clock,
interrupt, progress, call, report_files, libraries, messages, output, csv_table.
"""

__version__ = "0.1.0"
