"""Calls that report on records and copies.

Audits, exports, duplicates, losses, replicas compared.

From the entry down: audit, export, who_wrote, duplicates, loss, loss_against, replicas,
bytes_text, engine.
"""
