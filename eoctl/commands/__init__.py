"""The commands: options, help, and the code that runs each of them.

`txn` and `groups`, the largest, are packages.

From the entry down: adopt, apply, bench, check, consume, copy, describe, diff, dump_segment,
duplicates, export, forecast, init, journal, lease_pid, locate, loss, metadata, produce,
producers, reclaim, recover_state, releases, repair, rebuild, replicas, report, serve, sim,
spark_audit, start_order, trim, truncate, undo.
"""
