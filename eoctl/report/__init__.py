"""A report: one HTML file with timelines, or pictures on a terminal, made only from rows.

From the entry down: page, offsets_chart, transactions_chart, terminal, markup, layout, model.
"""
