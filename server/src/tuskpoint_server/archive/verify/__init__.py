"""Comparing what is stored of a thread with what the journal recorded.

All bytes come from the blob store itself. Nothing is changed: neither the journal nor what is
stored, and what is damaged is only reported.
"""

from .verification import ThreadVerification, begin

__all__ = ["ThreadVerification", "begin"]
