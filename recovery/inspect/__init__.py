"""A partition at a glance: its contents, the place of a record, its producers.

From the entry down: census, describe, locate.
"""
