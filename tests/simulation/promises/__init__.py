"""The promises to clients, and the checks that the server kept them.

It must not ask the server for the right result: the model has only the answers that clients got.
"""
