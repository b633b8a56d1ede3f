"""Conversion between the contract's messages and the core's types, and checks of requests.

It must not wait, and must not depend on gRPC or on the service of a message.
"""
