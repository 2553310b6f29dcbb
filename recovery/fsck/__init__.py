"""One check of a directory from its beginning to its end.

All checks, the prediction, and the state to go on from.

From the entry down: state, one_pass.
"""
