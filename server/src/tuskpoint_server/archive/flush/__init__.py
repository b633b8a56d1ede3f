"""From the journal to the blob store: everything that changes becomes certified.

A flush reads what changed, builds exact bytes, spools and stores them, reads them back, and
records it in one transaction. It never changes what a journal says of a checkpoint, and it
never stores the same changes twice in different bytes once they are spooled.
"""
