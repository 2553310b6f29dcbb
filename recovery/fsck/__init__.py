"""The check of a directory: all rules, the predicted start, the state for `--resume`, the verdict.

From the entry down: state, partition_state, next_command, verdict, start_loss, one_pass.
"""
