"""Records of a partition written to files, with a list of what was lost.

From the entry down: run, lost, piece, plan, files.
"""
