"""Credentials of callers: the files of tokens and certificates, and the issuers of tokens.

Files are read and checked at the start, and again when they change. `api.middleware.authentication`
decides about each call; this package gives that module the credentials.

It must not be called by the handler of a call, or repeat a token or a key in a log or an error.
"""
