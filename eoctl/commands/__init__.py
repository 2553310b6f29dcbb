"""The command line of each verb: options, help, and the call of its run.

From the entry down: apply, check, consume, copy, describe, dump_segment, duplicates, export,
journal, lease_pid, locate, loss, produce, producers, rebuild, recover_state, repair, replicas,
spark_audit, truncate, txn, undo.
"""
