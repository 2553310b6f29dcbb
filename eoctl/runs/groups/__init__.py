"""One call of each command of `groups`: look, hand over, bring in.

From the entry down: look, translate, export, bring_in, home_partitions, world.
"""
