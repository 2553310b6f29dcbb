"""A report: one HTML file with timelines, or pictures on a terminal, from rows and nothing else.

From the entry down: redaction, page, drawing, offsets_picture, transactions_picture, terminal,
layout, markup, model.
"""
