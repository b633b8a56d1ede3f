"""Items of stores: long-term memory of agents, kept as checkpoints of threads of the server.

It must not answer with an item that has expired, or decode the bytes of an item's value.
"""
