"""What a simulated server runs on: a clock that jumps, memory for its disks, and crashes.

It must not wait for real time, start a thread, or draw a random number that no seed chooses.
"""
