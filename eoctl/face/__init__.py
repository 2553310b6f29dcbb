"""What people see on a terminal: which column is what, units, tables that fit, colours, a pager.

From the entry down: pager, table, columns, style.
"""
