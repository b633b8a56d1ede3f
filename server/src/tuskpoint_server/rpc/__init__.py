"""Between the wire and the service: servicers, conversion, layers around calls.

Turns messages into the domain's words and back, cuts large values into chunks,
turns refusals into statuses, and measures calls.

It must never: decide anything, speak SQL or HTTP, reach past the service, or let
the text of an unexpected exception out.
"""
