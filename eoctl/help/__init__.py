"""The command line for people: help in panels, usage errors, completion.

From the entry down: saved, completion, wrong_calls, command, examples.
"""
