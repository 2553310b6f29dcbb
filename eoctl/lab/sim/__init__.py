"""The calls of `eoctl sim`: a simulated cluster made, run and judged; what it may lose.

From the entry down: guarantees, judge, play.
"""
