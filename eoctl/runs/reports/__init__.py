"""Calls that report on records and copies.

Audits, exports, duplicates, losses, replicas compared, brokers to start first, the cluster.

From the entry down: audit_call, audit, export, who_wrote, duplicates, loss_against, loss,
replicas_words, replicas, replicas_cluster, advise_words, advise, cluster_words, cluster_in_sync,
cluster_history, cluster_state, cluster_metadata, cluster_rows, bytes_text, engine.
"""
