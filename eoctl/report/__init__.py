"""A report: one HTML file with timelines, or pictures on a terminal, from rows and nothing else.

From the entry down: page, offsets_picture, transactions_picture, terminal, markup, layout, model.
"""
