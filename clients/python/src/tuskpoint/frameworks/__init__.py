"""Adapters that keep the sessions and checkpoints of agent frameworks in TuskPoint.

Each framework has one module, which imports the framework. So import the module itself:
`from tuskpoint.frameworks.openai_agents import ...`. An adapter calls only the public clients, so
that other programs can use a framework's thread like any other thread.
"""
