"""From the blob store to checkpoints and manifests: fetched, checked and put together.

Every byte was compared with its hash by the store, and every value with its digest here.
The journal says which catalog is the newest and where bytes lie; content never comes from it.
"""
