"""`CheckpointService` on the wire. It must not make decisions; those are of `features`."""
