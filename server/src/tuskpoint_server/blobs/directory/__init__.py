"""Blobs in a directory: one file per put, named by the hash of its content.

A blob is the file `<root>/<first 2 characters>/<base64url of its SHA-256>`: a pack file that holds
the members of a put, or one member as it is. Several servers may share the directory. Files never
change, and are removed only on request.
"""

from .store import DirectoryStore

__all__ = ["DirectoryStore"]
