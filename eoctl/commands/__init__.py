"""The command line of each verb: options, help, and the call of its run.

`txn` and `groups`, which have most, are rooms of their own.

From the entry down: adopt, advise, apply, bench, check, cluster_state, consume, copy, describe,
dump_segment, duplicates, export, init, journal, lease_pid, locate, loss, produce, producers,
recover_state, repair, rebuild, replicas, report, serve, sim, spark_audit, truncate, undo.
"""
