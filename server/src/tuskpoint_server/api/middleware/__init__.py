"""The middleware of every call: drain, credential, scopes, parsing, errors, telemetry.

It must not depend on the meaning of a call, or wait for anything but the call.
"""
