"""Checkpoints that are made of others: forks, copies, rollbacks, adoptions, snapshots, hand-offs.

Whatever is made here goes through one path into its thread (`stored`). Inside a server a
thread that comes from another shares its family, so values are never copied; what came from
elsewhere founds one. Nothing here reads the blob store: what needs evicted values says which
(`ValuesEvicted`) and is called again with them.
"""
