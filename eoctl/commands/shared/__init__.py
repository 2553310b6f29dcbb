"""The shared parts of commands: plans, appends, checks, copies, the cluster, an engine.

From the entry down: changes, appended, audit_run, check_verdict, check_metrics, check_run,
chosen_copies, metadata_state, copies, cluster_rows, engine, consume_exec, consume_notes.
"""
