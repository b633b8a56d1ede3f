"""The environment of a simulated server: a virtual clock, disks in memory, and crashes.

It must not wait for real time, start a thread, or draw a random number that no seed chooses.
"""
