"""One call of `eoctl report`: what is read, and the rows and the page that are made of it.

From the entry down: run, keys, gather, partitions, around, calls, request.
"""
