"""Small log dirs in rare states, written by hand, and what is right to say of each.

The states come from public bug reports and from situations that Kafka's own tests describe. What a
real 4.3.1 broker did with each is said in the test that uses it.
"""
