"""From the journal to the blob store: flushes, packs and catalogs.

The package must not certify a pack that was not read back, or a catalog that another one has
overtaken.
"""
