"""Search: turns summaries and states into an index, and words or vectors into checkpoints.

Three tasks work from rows in the database: one turns the threads' logs into documents and one gives
documents vectors (`tasks`, `embedders`); one delivers summaries to MemWal (`memwal`). A query is
answered by words, by vectors (`vectors`) or by MemWal; `search` combines these modes.

The package must not delay or fail a save, be the only record of anything (the whole index can be
rebuilt from the journal), return a checkpoint that is not live, give MemWal or an embedder any
content of a thread that is not searchable, give MemWal state, log keys or headers, or block the
event loop with work on text or vectors.
"""
