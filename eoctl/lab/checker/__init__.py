"""What do a history and the directories that it left behind say together: is anything wrong?

It believes only what clients were told, and files; nothing that a node says of itself.

From the entry down: judge, directories, transactions, calls, values, histories, rules.
"""
