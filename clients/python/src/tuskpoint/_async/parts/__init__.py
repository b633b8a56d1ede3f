"""Parts of the client: each has the methods about one kind of object."""
