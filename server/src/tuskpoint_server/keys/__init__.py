"""Key providers, which wrap and unwrap the data keys of each tenant.

They know neither blobs nor the journal. They must not log or show a key, and must not write an
unwrapped key anywhere, except to the key file that its owner asked to create.
"""
