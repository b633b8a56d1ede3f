"""How long stored blobs last: what is needed is stored again before its blob's end.

A blob most of which is needed is renewed as a whole. What is needed of the others goes byte for
byte into dense packs; what cannot be read any more is stored again from the journal, or is a
hole. Nothing here removes what something live needs, and no catalog that it certifies leads to
bytes that it knows to be lost.
"""
