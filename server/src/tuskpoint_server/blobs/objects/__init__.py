"""Blobs in a bucket: S3 and compatible stores, Google Cloud Storage, Azure Blob Storage.

A put is one object, with the name and the layout of a file in a blob directory. Several servers may
share the bucket. The client is `obstore`, an optional requirement that is imported only here.
"""
