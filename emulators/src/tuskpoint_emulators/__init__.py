"""Stand-ins, over real HTTP, for the services that TuskPoint talks to.

For tests and for trying things out without an account. Each room emulates one service
as it is known to behave, its failures included.

It must never: import the server or its client, or be imported by them.
"""
