"""The wire: servicers, conversion of messages, and the middleware of each call.

Converts messages to types of the core and back, cuts large values into chunks, turns refusals
into statuses, and measures calls. A service is a module or, if it is large, a package. Imports
run from `server` and `services` to the services, then `middleware`, then `messages`.

It must not make decisions, use SQL or HTTP, import rows of the journal, or return the text
of an unexpected exception to a client.
"""
