"""What a node knows of its cluster.

Metadata, internal topics, and what its checkpoints say should be here.

From the entry down: in_sync, placement, clusters, history, group_offsets, remote_segments,
coordinator_log.
"""
