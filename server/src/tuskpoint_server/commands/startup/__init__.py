"""What a start needs beside the parts of the server: checks, listeners, and who is told of it.

Only the commands that serve import it, and `config --check`. It must not build a part of the
server.
"""
