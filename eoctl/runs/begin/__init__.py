"""Log dirs that are made: from nothing, or from what is left of others.

From the entry down: init.
"""
