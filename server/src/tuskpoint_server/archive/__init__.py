"""Between journal and blob store: making things certain, and reading them back.

It reads what the journal holds, makes segments, runs and catalogs of it, stores them,
reads them back and only then lets the journal call something certified. It knows
how a checkpoint is read from stored bytes again.

It must never: delay a save (saves end in the journal), certify what was not read
back, trust bytes without their hash, or make stored bytes twice.
"""
