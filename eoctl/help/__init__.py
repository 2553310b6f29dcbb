"""How the program is called: help in panels, wrong calls, old names, completion.

From the entry down: saved, completion, command, examples.
"""
