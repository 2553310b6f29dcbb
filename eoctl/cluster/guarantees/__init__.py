"""What a cluster guarantees, and what it may lose: courses of events, searched, saved, repeated.

From the entry down: groups, matrix, cells, explore, saved, course,
scratch.
"""
