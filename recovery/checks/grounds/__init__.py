"""What all checks stand on.

The collector of findings, what excuses them, and the release that the files are of.

From the entry down: kraft_release, broker_version, collector.
"""
