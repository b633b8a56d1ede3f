"""From the journal to the blob store: everything that changes becomes certified."""
