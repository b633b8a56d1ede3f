"""From the blob store to checkpoints: segments are fetched, checked and put together.

Every byte was compared with its hash by the store, and every value with its digest here.
Nothing is read from the journal.
"""
