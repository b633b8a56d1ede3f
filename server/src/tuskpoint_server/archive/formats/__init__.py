"""Formats on the blob store: segments, records in runs, catalogs, manifests.

The package encodes and decodes exact bytes (docs/storage.md). Bytes to decode have a checked hash
and may come from anybody: malformed bytes are refused with `BLOB_MALFORMED` and raise no other
exception. `name` is the ID of the blob that the bytes were read from. Refusals name that blob, and
"this quilt" means that blob.

The package must not fetch anything, open an agent's value, or decide where bytes are stored.
"""
