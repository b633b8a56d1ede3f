"""Between the wire and the service: servicers, messages, what is done around each call.

Turns messages into the domain's words and back, cuts large values into chunks, turns refusals
into statuses, and measures calls. A service is a module or, if it is large, a package. Imports
run from `server` and `services` to the services, then `around`, then `messages`.

It must never: decide anything, speak SQL or HTTP, reach past the service, or let the text of an
unexpected exception out.
"""
