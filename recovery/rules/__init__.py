"""The book of rules.

Each id with its severity, what a broker does, and the fix; `docs/rules` is printed from it.

From the entry down: catalogue, brokers, directories, formats, indexes, logs, producers,
replication, state, findings.
"""
