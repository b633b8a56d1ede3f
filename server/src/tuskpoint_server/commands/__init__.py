"""The programs: serving, and what is done while no server runs.

They read the configuration, have the parts built, and print. Only `__main__` imports them.
"""
