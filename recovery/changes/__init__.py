"""Changes of files that lose nothing: prepare, apply, undo, and append.

Every command that changes a log dir uses this package. `plans` describes changes to make, and
`journals` changes that were made.

From the entry down: append_journal, undo, apply, prepare, steps.
"""
