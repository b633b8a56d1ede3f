"""The search index: it follows each thread's log by a watermark, `threads.indexed_seq`.

Documents, watermark and what embedders and MemWal are owed move together, in one transaction
per batch. Whatever an index holds, a result is looked up among the checkpoints that live at
that moment.

It must never: delay or fail a save, be the record of anything (all of it can be made again
from the checkpoints), or know what makes text of a state: that is given to it.
"""
