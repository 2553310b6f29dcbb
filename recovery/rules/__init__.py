"""The rules: each id with its severity, what a broker does, and the fix. Source of `docs/rules`.

From the entry down: catalogue, brokers, directories, formats, indexes, logs, producers,
replication, state, takings, findings.
"""
