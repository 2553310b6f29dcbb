"""The rows of a report, which `eoctl.report` draws as a page and as pictures.

From the entry down: audited, gather, around, partitions, calls.
"""
