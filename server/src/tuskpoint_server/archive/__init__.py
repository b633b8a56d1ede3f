"""From the journal to the blob store and back: certifies changes, and reads stored bytes.

The package builds segments, runs and catalogs from the journal's rows, stores them, reads them
back, and only then lets the journal record them as certified. It also reads checkpoints from stored
bytes.

The package must not delay a save (saves end in the journal), certify bytes that were not read back,
trust bytes whose hash was not checked, or build the bytes of a spooled pack a second time.
"""
