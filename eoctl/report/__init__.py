"""A report: one HTML file with timelines, from rows and nothing else.

From the entry down: redaction, page, drawing, island, layout, markup, model.
"""
