"""One partition at a glance: what it holds, where a record is, which producers it knows.

From the entry down: census, describe, locate.
"""
