"""One call of a command, without Typer: options in, files and words out.

From the entry down: txn_run, consume_exec, copy, txn_reports, audit, check, consume, duplicates,
export, produce, repair, txn_abort, engine, explain, group_position, in_use, lease, produce_checks,
produce_report, rebuild, rejoin, replicas, truncate, txn_complete, txn_readers.
"""
