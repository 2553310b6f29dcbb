"""Partitions opened for writing: locks, identities, sessions, and the way back of an append.

From the entry down: append_notes, open_partitions, open_partition, target, appending, own_ids,
identity, interrupts, session_file, topic_partitions.
"""
