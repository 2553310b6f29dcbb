"""How the program is called: help in panels, wrong calls, old names, completion.

From the entry down: saved, completion, values, command, usage_errors, examples, panels, old_names.
"""
