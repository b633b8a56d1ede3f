"""Adapters that keep the sessions and checkpoints of agent frameworks in TuskPoint.

One module for each framework. It imports the framework, so import the module itself:
`from tuskpoint.frameworks.openai_agents import ...`. An adapter calls the public clients and
nothing below them, so that a thread that a framework wrote is a thread like any other.
"""
