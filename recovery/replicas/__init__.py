"""Copies of one partition: compared, and made fit to join again.

From the entry down: rejoin, compare.
"""
