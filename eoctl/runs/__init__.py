"""One call of a command, without Typer: options in, files and words out.

From the entry down: copy, txn_abort, txn_reports, txn_run, audit, check, check_verdict, check_run,
check_words, consume, consume_exec, duplicates, export, produce, rebuild, recover_state, rejoin,
repair, truncate, txn_readers, who_wrote, bytes_text, change_command, repair_words, plan_words,
consume_notes, engine, explain, group_position, lease, loss, loss_against, notes, produce_checks,
produce_report, rebuild_jobs, replicas, told, txn_complete.
"""
