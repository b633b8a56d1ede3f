"""Whole journals: copied between databases, backed up, restored.

It must not change the journal that it reads, or leave a part of a journal that looks whole.
"""
