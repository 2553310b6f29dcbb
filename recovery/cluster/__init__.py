"""A node's view of its cluster: metadata, internal topics, and the data its checkpoints claim.

From the entry down: in_sync, placement, clusters, history, group_offsets, remote_segments,
coordinator_log.
"""
