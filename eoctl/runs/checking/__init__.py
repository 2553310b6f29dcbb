"""A call of `check`.

Its run, its verdict for people, and the words for both.

From the entry down: check, explain, verdict, words, standing, run.
"""
