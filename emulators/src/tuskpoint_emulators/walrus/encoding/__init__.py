"""From bytes to what Walrus calls them: blob IDs, quilts, sizes and prices, bit for bit.

Pure: it must not know what is stored, or use HTTP.
"""
