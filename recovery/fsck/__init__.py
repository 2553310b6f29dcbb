"""One check of a directory from its beginning to its end.

All checks, the prediction, the state to go on from, and what it all comes to.

From the entry down: state, look, next_call, verdict, start_cut, one_pass.
"""
