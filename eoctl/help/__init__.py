"""How the program is called: help in panels, wrong calls, completion.

From the entry down: saved, completion, wrong_calls, command, examples.
"""
