"""From requests to answers: routes, bodies, the signed and the unsigned calls, the control API.

It must not listen on a port; `server` does.
"""
