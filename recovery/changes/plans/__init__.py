"""Planned changes.

Steps with the digests of the files they expect, the limits of their reach, and their preconditions.

Modules from the entry point down: changeable, plan, file_facts, confinement.
"""
