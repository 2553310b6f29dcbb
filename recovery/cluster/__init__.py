"""What a node knows of its cluster.

Metadata, internal topics, and what its checkpoints say should be here.

From the entry down: history, moments, changes, reasons, absent, coordinator_log,
group_offsets, remote_segments, clusters, internal_topics, transactional_ids.
"""
