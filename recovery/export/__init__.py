"""The export of a partition's records to files, with a list of lost records.

Modules from the entry point down: run, lost, piece, plan, files.
"""
