"""Commands of `eoctl sim`: create, run and judge a simulated cluster, and find its losses.

From the entry down: guarantees, check, simulate.
"""
