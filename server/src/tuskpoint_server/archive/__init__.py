"""From the journal to the blob store and back: certifying changes, and reading stored bytes.

Makes segments, runs and catalogs of the journal's rows, stores them, reads them back, and only then
lets the journal record them as certified. Reads checkpoints from stored bytes.

It must not delay a save (saves end in the journal), certify bytes that were not read back, trust
bytes without their hash, or build the bytes of a spooled pack a second time.
"""
