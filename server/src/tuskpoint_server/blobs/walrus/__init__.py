"""Walrus over HTTP: publishers store packs as quilts, aggregators read them back.

`WalrusStore` is the door. What is retried, how often and where is decided in
`failures` alone; the layout of a quilt is known to `quilt` alone.

It must never: return bytes whose SHA-256 was not compared, distinguish success from failure by
an HTTP status alone, or put a secret or the credentials of a URL into a message.
"""
