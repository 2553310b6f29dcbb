"""From a call to the rows of a report: what `eoctl.report` draws as a page and as pictures.

From the entry down: audited, gather, around, partitions, calls.
"""
