"""One call of a command, without Typer: options in, files and words out.

A folder for each family of commands; here what they share.

From the entry down: appended, in_cluster, notes, told.
"""
