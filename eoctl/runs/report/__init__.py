"""One call of `eoctl report`, or of a picture: what is read, and the rows that are drawn of it.

From the entry down: audited, run, pictures, keys, gather, torn, partitions, around, calls, request.
"""
