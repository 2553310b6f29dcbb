"""The check of a directory: all rules, the predicted start, the state for `--resume`, the verdict.

From the entry down: state, look, next_call, verdict, start_cut, one_pass.
"""
