"""Blobs in a bucket: S3 and compatible stores, Google Cloud Storage, Azure Blob Storage.

A put is one object, with the name and the layout of a file in a blob directory. Several servers may
share the bucket. `obstore` is the client; it is an optional requirement and imported only here.
"""
