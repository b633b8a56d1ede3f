"""What is stored on the blob store: segments, records in runs, catalogs, manifests.

This room turns what the rest of the server knows into exact bytes and back. It reads bytes
that may come from anybody: whatever is malformed is refused with `Refusal`
(`BLOB_MALFORMED`), and nothing else is ever raised for it. Bytes come checked against their
hash; `name` is the blob that they were read from, which refusals name and which "this quilt"
means. It never fetches anything, never opens an agent's value, and never says where bytes are
put. docs/storage.md describes the same formats for readers in other languages.
"""
