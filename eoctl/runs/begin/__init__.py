"""Log dirs that are made: from nothing, or from what is left of others.

From the entry down: adopt, adopt_words, chosen_copies, init.
"""
