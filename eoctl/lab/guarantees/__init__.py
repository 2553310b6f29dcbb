"""Guarantees of a cluster and its possible losses: scenarios, searched, saved and repeated.

From the entry down: matrix, scenarios.
"""
