"""Consumer groups of dead brokers: members, committed offsets and lag.

From the entry down: incoming, group_log, share_states, members, offset_files.
"""
