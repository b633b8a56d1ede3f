"""Blob stores: storage of content that is trusted by its SHA-256 alone.

A `BlobStore` makes packs of members durable and reads members back. Every read is hashed before it
is returned; bytes with another SHA-256 are refused.

The package must not know the meaning of the bytes, use the journal, or return unchecked bytes.
"""
