"""Programs of the user that records are handed to, or put through.

From the entry down: filter_program, position_file, program.
"""
