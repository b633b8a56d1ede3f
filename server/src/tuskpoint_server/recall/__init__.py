"""Search: from summaries to an index, and from words or vectors to pointers.

What the threads' logs say is turned into documents and given vectors (`tasks`, `embedders`),
and delivered to MemWal (`memwal`); each by one task of its own, each from what the database
says is owed. What is asked is answered by words, by vectors (`vectors`) or by MemWal; `recall`
puts it together.

It must never: delay or fail a save, be the record of anything (all of it can be made again
from the journal), return what it did not look up among the checkpoints that live, give
MemWal or an embedder anything of a thread that is not searchable, give MemWal state, log
keys or headers, or block the event loop with work on text or vectors.
"""
