"""The output that people see on a terminal: columns, units, tables that fit, colours, a pager.

From the entry down: pager, table, columns, style.
"""
