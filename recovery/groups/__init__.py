"""Consumer groups of dead brokers: members, committed offsets and lag.

From the entry down: incoming, group_log, members, offset_files.
"""
