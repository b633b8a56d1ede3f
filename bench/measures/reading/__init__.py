"""Times of reads: the whole history of a thread, and a search.

These measures run servers as processes. They must not import the server.
"""
