"""The programs, a module each: serving, and what is done beside a server or while none runs.

They read the configuration, have the parts built, and print. Only `__main__` imports them.

It must not do the work of a feature or of the archive, or be imported by another package.
"""
