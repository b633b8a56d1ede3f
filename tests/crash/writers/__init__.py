"""Agents that save to servers that are killed, and their record of acknowledgements.

It must not judge what a server shows afterwards; `checks` does.
"""
