"""Digests of what thousands of calls print, write and take back: a net for changes of the house.

`make digests` runs every call on a copy of each golden, planted and case directory, with the native
and the pure kernel, and compares with `saved.txt`; `make digests-record` writes it anew. A change
that is meant to alter no answer leaves all of it equal. One that alters an answer records it in a
commit of its own. `python -m tests.digests --show NAME VERB` prints what the calls give now.
"""
