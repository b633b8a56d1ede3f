"""How long stored blobs last: what is needed is stored again before its blob's end.

A blob most of which is needed is renewed as a whole; what is needed of the others is salvaged.
Nothing here removes what something live needs, and no catalog that it certifies leads to
bytes that it knows to be lost.
"""
