"""What is stored: blobs and the objects that keep them, until which epoch, at what price.

It must not use HTTP, or decide who may store; `requests` does.
"""
