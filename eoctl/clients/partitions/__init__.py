"""Partitions opened for writing: locks, identities, sessions, and the undo of an append.

From the entry down: open_partition, target, identity, interrupts.
"""
