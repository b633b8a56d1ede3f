"""What is stored on the blob store: segments, records in runs, catalogs, manifests.

This room makes exact bytes of what the server knows, and back (docs/storage.md). Bytes come
checked against their hash, and may come from anybody: whatever is malformed is refused
(`BLOB_MALFORMED`), and nothing else is ever raised for it. `name` is the blob that bytes were
read from, which refusals name and which "this quilt" means. It never fetches anything, never
opens an agent's value, and never says where bytes are put.
"""
