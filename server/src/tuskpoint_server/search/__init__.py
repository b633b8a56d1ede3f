"""Search: from summaries to an index, and from words or vectors to checkpoints.

The threads' logs are turned into documents and given vectors (`tasks`, `embedders`), and summaries
are delivered to MemWal (`memwal`); each by a task of its own, each from rows in the database. A
query is answered by words, by vectors (`vectors`) or by MemWal; `search` combines them.

It must not delay or fail a save, be the only record of anything (all of it can be made again from
the journal), return a checkpoint that it did not find among the live ones, give MemWal or an
embedder anything of a thread that is not searchable, give MemWal state, log keys or headers, or
block the event loop with work on text or vectors.
"""
