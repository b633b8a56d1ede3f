"""Operations on whole journals: copies between databases, backups, restores.

It must not change the journal that it reads, or leave part of a journal that looks whole.
"""
