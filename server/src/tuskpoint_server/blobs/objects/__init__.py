"""Blobs in a bucket: S3 and what speaks it, Google Cloud Storage, Azure Blob Storage.

A put is one object, named and laid out like the file of a blob directory. Several servers may share
the bucket. `obstore` speaks to the stores; it is an optional requirement, imported here alone.
"""
