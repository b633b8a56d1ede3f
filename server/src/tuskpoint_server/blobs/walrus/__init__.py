"""Walrus over HTTP: publishers store packs as quilts, aggregators read them back.

`WalrusStore` is the store. Only `failures` decides what is retried, how often and where; only
`quilt` knows the layout of a quilt.

The package must not return bytes whose SHA-256 was not compared, distinguish success from failure
by an HTTP status alone, or put a secret or the credentials of a URL into a message.
"""
