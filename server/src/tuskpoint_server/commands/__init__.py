"""The commands, a module each: to serve, and to work beside a running or a stopped server.

They read the configuration, have the parts built, and print. Only `__main__` imports them.

It must not do the work of a feature or of the archive, or be imported by another package.
"""
