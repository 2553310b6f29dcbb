"""One call of a command, without Typer: options in, files and words out.

From the entry down: copy, txn_reports, txn_run, audit, check, consume, consume_exec, duplicates,
export, produce, repair, txn_abort, consume_notes, engine, explain, group_position, in_use, lease,
produce_checks, produce_report, rebuild, rejoin, replicas, truncate, txn_complete, txn_readers.
"""
