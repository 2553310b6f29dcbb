"""Consumer groups of dead brokers: members, committed offsets, how far behind they are.

From the entry down: incoming, group_log, members, offset_files.
"""
