"""Reports of an audit of many directories, from the summaries of their pieces.

Modules from the entry point down: reports, local, replica_check, state.
"""
