"""Who may call: the files of tokens and certificates, and the issuers of tokens.

Files are read and checked at the start, and again when they change. What decides about one call is
`api.middleware.authentication`; this package gives that module its credentials.

It must not be called by the handler of a call, or repeat a token or a key in a log or an error.
"""
