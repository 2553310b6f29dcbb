"""The export of a partition's records to files, with a list of lost records.

From the entry down: run, lost, piece, plan, files.
"""
