"""Key providers: they wrap and unwrap the keys of what people name, for each tenant.

They know neither blobs nor the journal, must not log or show a key, and must not write a key
anywhere unwrapped, but for the file of keys that its owner asked to be made.
"""
