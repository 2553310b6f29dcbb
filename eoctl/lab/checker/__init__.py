"""Judge of a history and its directories: reports anomalies.

It relies only on the answers that clients got, and on files. It ignores what nodes say of
themselves.

From the entry down: findings, directories, transactions, operations, values, histories, rules.
"""
