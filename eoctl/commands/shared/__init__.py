"""The shared parts of commands: plans, appends, checks, copies, the cluster, an engine.

From the entry down: changes, append_result, audit_run, check_verdict, check_metrics, check_run,
replica_choice, metadata_state, replica_rows, cluster_rows, engine, consume_program, consume_notes.
"""
