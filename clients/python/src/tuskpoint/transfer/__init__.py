"""Bringing threads to a server and taking them out: `tuskpoint import` and `tuskpoint export`.

A source yields a thread's checkpoints as messages of the contract, each complete, with its writes.
`lines` is the form of a file; `sqlite`, `postgres` and `redis` read the databases of LangGraph's
savers. `arriving` decides about one thread and saves it, `comparing` reads both sides through
LangGraph, and `leaving` writes a file.
"""
