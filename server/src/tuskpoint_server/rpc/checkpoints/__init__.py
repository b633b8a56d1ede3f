"""`CheckpointService` on the wire. It must not decide what a call means."""
