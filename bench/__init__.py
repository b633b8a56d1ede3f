"""Side-by-side measurements against other checkpointers, on one machine and in one run.

`python -m bench` prints them as ratios, `python -m bench.evidence` writes them down. Nothing
here is asserted: a figure is what this machine did just now.
"""

import os

# Other processes are started by exec: gRPC's fork handlers have nothing to do but to complain.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
