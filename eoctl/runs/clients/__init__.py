"""Calls that read and write as clients do.

`consume`, `copy`, `produce`, and the lease that keeps two of them apart.

From the entry down: consume, consume_exec, copy, lease, produce, consume_notes, group_position,
produce_checks, produce_report.
"""
