"""Agents that save to servers that are killed, and their record of what was acknowledged.

It must not judge what a server shows afterwards; `checks` does.
"""
