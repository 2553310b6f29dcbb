"""Batches copied as they are from one log to another, resumed and compared.

From the entry down: copier, resume, copied_batch, session.
"""
