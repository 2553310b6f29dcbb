"""The state of the virtual broker: what it serves, and the groups that form at it.

From the entry down: broker, catalogue, members.
"""
