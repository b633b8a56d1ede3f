"""Embedders: vectors of text from a model on this machine (`local`) or over HTTP (`openai`)."""
