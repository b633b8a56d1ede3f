"""What a step of LangGraph did and waits for, read from states and values without calling anything.

Must not do I/O, and must not import a framework.
"""
