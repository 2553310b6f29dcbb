"""Free a full disk: what can be removed, what it costs, and the room that a start needs.

From the entry down: find.
"""
