"""What is done around every call: drain, credential, scopes, parsing, errors, telemetry.

It must not know what a call means, and looks nothing up.
"""
