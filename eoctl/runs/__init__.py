"""One call of a command, without Typer: options in, files and words out.

From the entry down: copy, txn_reports, txn_run, audit, check, consume, consume_exec, duplicates,
export, produce, repair, rebuild, recover_state, rejoin, truncate, txn_abort, change_command,
consume_notes, engine, explain, group_position, lease, produce_checks, produce_report,
rebuild_jobs, replicas, txn_complete, txn_readers, notes.
"""
