"""The face: the command line, what people and programs are told, and the clock.

From the entry down: __main__, start, main, shared_options, changing, change_options, options,
replica_paths, version, arrow_files, ranges, clock, interrupt, progress, output, call,
report_files.
"""

__version__ = "0.1.0"
