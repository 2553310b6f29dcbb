"""The rows of a report, which `eoctl.report` draws as a page and as pictures.

From the entry down: audit_report, report_rows, cluster_data, partitions, report_options.
"""
