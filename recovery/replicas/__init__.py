"""Replicas of one partition: compare them, and let one rejoin.

From the entry down: rejoin, compare.
"""
