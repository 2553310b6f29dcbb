"""The user's programs that process records.

From the entry down: position_file, program.
"""
