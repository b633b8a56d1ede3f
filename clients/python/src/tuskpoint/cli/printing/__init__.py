"""Output of results: tables, trees and words for people, JSON for programs, progress on stderr.

Must never call the service or decide how the program ends.
"""
