"""Batches copied unchanged from one log to another, resumed and compared.

From the entry down: copier, resume, copied_batch, session.
"""
