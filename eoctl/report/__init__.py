"""A report: one HTML file with timelines, or pictures on a terminal, made only from rows.

From the entry down: page, offsets_picture, transactions_picture, terminal, markup, layout, model.
"""
