"""What do a history and the directories that it left behind say together: is anything wrong?

It believes only what clients were told, and files; nothing that a node says of itself.

From the entry down: judge, witness, transactions, cycles, commits, directories, values, consumers,
polls, sends, value_rows, columns, verdict, reader, rules.
"""
