"""Calls that report on records and copies.

Audits, exports, duplicates, losses, replicas compared, brokers to start first.

From the entry down: audit, export, who_wrote, duplicates, loss, loss_against, replicas,
advise_words, advise, bytes_text, engine.
"""
