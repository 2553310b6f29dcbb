"""What a node knows of its cluster.

Metadata, internal topics, and what its checkpoints say should be here.

From the entry down: in_sync, spans, absent, placement, clusters, quorum, history, moments, changes,
reasons, coordinator_log, group_offsets, remote_segments, internal_topics, transactional_ids.
"""
