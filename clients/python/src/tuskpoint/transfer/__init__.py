"""Import of threads into a server, and export: `tuskpoint import` and `tuskpoint export`.

A source yields a thread's checkpoints as messages of the contract, complete and with their writes.
`lines` reads and writes files; `sqlite`, `postgres` and `redis` read the databases of LangGraph's
savers. `arriving` plans and saves the import of a thread, `comparing` compares both sides through
LangGraph, and `leaving` writes a file.
"""
