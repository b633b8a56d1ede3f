"""The formats on the blob store: segments, records in runs, catalogs, manifests.

Encodes them to exact bytes and decodes them (docs/storage.md). Bytes to decode have a checked hash
and may come from anybody: malformed ones are refused with `BLOB_MALFORMED`, and no other exception
is raised for them. `name` is the ID of the blob that the bytes were read from. Refusals name it,
and "this quilt" means it.

It must not fetch anything, open an agent's value, or decide where bytes are stored.
"""
