"""Eviction: values that are certified leave the journal, which reads them from segments again.

It must not evict a value that no certified segment holds.
"""
