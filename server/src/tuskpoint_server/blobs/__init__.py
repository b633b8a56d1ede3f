"""Where stored bytes lie: content that is trusted by its SHA-256 alone.

A `BlobStore` makes packs of members durable and reads members back. Every read is
hashed before it is returned; bytes that do not have the expected SHA-256 never
leave this room.

It must never: know what the bytes mean, touch the journal, or return unchecked
bytes.
"""
