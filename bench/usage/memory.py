"""Resident memory of processes, as Linux counts it in `/proc/PID/status`."""

from __future__ import annotations

from pathlib import Path


def counts_memory() -> bool:
    """Return whether this system shows the resident memory of processes."""
    return Path("/proc/self/status").exists()


def resident_bytes(process: int | str = "self") -> int:
    """Return the bytes of a process that are in memory now; 0 if the system does not say."""
    return _field(process, "VmRSS:")


def peak_bytes(process: int | str = "self") -> int:
    """Return the most bytes of a process that were in memory; 0 if the system does not say."""
    return _field(process, "VmHWM:")


def reset_peak(process: int) -> None:
    """Reset the peak of a process to its resident memory; needs its owner's rights."""
    Path(f"/proc/{process}/clear_refs").write_text("5", encoding="ascii")


def _field(process: int | str, name: str) -> int:
    path = Path(f"/proc/{process}/status")
    if not path.exists():
        return 0
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.startswith(name):
            return int(line.split()[1]) * 1024
    return 0
