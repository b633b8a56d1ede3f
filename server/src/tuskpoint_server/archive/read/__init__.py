"""Reading blobs: segments, members of packs, and content that is stored standalone.

It must not return bytes whose hash was not checked.
"""
