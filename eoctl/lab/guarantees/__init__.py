"""What a cluster guarantees, and what it may lose: courses of events, searched, saved, repeated.

From the entry down: matrix, courses.
"""
