"""MemWal: summaries are delivered to its relayer, and recalled from there.

`relayer` guards the SDK; nothing else calls it. `delivery` brings memories there, `lookup`
recalls them, each in one task that owns an SDK client of its own; both spend from one
`budget`. `memwal` puts them together.
"""
