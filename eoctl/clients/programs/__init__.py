"""Programs of the user that records are handed to, or put through.

From the entry down: position_file, program.
"""
