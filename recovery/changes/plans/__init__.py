"""Planned changes.

Steps with the digests of the files they expect, the limits of their reach, and their preconditions.

From the entry down: preconditions, plan, file_facts, path_limits.
"""
