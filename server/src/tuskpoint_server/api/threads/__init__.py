"""`ThreadService` on the wire. It must not make decisions, which belong to `features`."""
