"""The parts of the client: the methods about one kind of thing each."""
