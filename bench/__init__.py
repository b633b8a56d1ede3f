"""Side-by-side measurements against other checkpointers, on one machine and in one run.

`python -m bench` prints them as ratios, `python -m bench.evidence` writes them into docs/. Nothing
is asserted: a figure describes this machine at this time.
"""

import os

# Other processes are started by exec, so that gRPC's fork handlers would only print warnings.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
