"""How results look: tables, trees and words for people, JSON for programs, progress on stderr.

It must never call the service or decide how the program ends.
"""
