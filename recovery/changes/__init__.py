"""How files are changed so that nothing is lost.

Plan, backup, journal, apply, undo. Every command that changes a log dir goes this way.

From the entry down: append_journal, undo, apply, undo_appends, append_close, journals, prepare,
applied, backups, journal_order, steps, changeable, journal, lowered_checkpoints, plan,
spliced_content, file_facts, checked_values, confinement.
"""
