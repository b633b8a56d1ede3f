"""Every setting of the server, and the parts of a server built as the settings say.

It must not do the work of a part, or read a setting anywhere else than in `settings`.
"""
