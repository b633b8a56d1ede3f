"""Emulators, over real HTTP, of the services that TuskPoint calls.

For tests and for trials without an account. Each package emulates one service
as it is known to behave, its failures included.

It must never: import the server or its client, or be imported by them.
"""
