"""What was changed, and the way back.

A journal beside the log dir for each plan, in the order in which they can be undone, with the
backups.

From the entry down: losses, listing, backups, journal.
"""
