"""Seeded mutants of real logs, and whether any reader loses a good batch without a word.

`judge` is a small parser of its own that imports nothing of ours, `pieces` cuts golden logs into
small partitions, `faults` damages them, `readers` asks each of our readers what it gives and what
it reports, and `run` compares. `make mutants` runs many, `test_mutants` a share.
"""
