"""Encodes bytes as Walrus does, bit for bit: blob IDs, quilts, sizes and prices.

Pure: it must not know what is stored, or use HTTP.
"""
