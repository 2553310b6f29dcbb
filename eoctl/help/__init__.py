"""The command line for people: help in panels, usage errors, completion.

From the entry down: saved_pages, completion, usage_errors, command, examples.
"""
