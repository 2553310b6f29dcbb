"""Planned changes.

Steps with the digests of the files they expect, the limits of their reach, and their preconditions.

From the entry down: changeable, plan, file_facts, confinement.
"""
