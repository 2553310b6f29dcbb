"""How files are changed so that nothing is lost.

Prepare, apply, undo, and what is appended. Every command that changes a log dir goes this way;
`plans` has what is to be changed, `journals` what was.

From the entry down: append_journal, undo, apply, prepare, steps.
"""
