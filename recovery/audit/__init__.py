"""Reports of an audit of many directories, from the summaries of their pieces.

From the entry down: reports, local_workers, replica_check, state.
"""
