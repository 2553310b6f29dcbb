"""Records of changes, for undo.

A journal next to the log dir for each plan, with the backups. The order of journals is the order in
which they can be undone.

From the entry down: losses, listing, backups, journal.
"""
