"""What is to be changed.

Steps with the digests of what they expect, where they may reach, and what must hold before.

From the entry down: changeable, plan, file_facts, confinement.
"""
