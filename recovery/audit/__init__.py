"""The reports of an audit over many directories, from the summaries of their pieces.

From the entry down: reports, local, replica_check, state.
"""
