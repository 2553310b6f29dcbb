"""What is to be changed.

Steps with the digests of what they expect, where they may reach, and what must hold before.

From the entry down: changeable, lowered_checkpoints, plan, spliced_content, file_facts,
confinement, checked_values.
"""
