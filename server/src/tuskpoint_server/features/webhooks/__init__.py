"""Webhooks: posts events of threads to other systems, and shows what waits.

It must not make events: the changes that make events write them into the outbox of the journal, in
their own transaction. It must not connect to an address before `addresses` has checked the address.
"""
