"""Embedders: what makes vectors of text.

Each satisfies `api.Embedder`. Nothing is downloaded: an embedder reaches what it was
configured with, or it says why it cannot.
"""
