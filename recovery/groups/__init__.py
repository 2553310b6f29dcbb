"""Consumer groups of dead brokers: members, committed offsets, how far behind they are.

From the entry down: expiry, incoming, group_log, log_places, members,
offset_files.
"""
