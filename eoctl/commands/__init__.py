"""The command line of each verb: options, help, and the call of its run.

`txn` and `groups`, which have most, are rooms of their own.

From the entry down: adopt, apply, bench, check, consume, copy, describe, diff, dump_segment,
duplicates, export, init, journal, lease_pid, locate, loss, metadata, produce, producers,
recover_state, releases, repair, rebuild, replicas, report, serve, sim, spark_audit, start_order,
truncate, undo.
"""
