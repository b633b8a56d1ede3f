"""What clients were promised, and the checks that the server kept it.

It must not ask the server what is right: the model has only what clients were answered.
"""
