"""All settings of the server, and the construction of its parts from the settings.

It must not do the work of a part, or read a setting anywhere else than in `settings`.
"""
