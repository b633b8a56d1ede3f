"""Reading of blobs: segments, members of packs, and standalone content.

The package must not return bytes whose hash was not checked.
"""
