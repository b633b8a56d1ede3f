"""An emulated Walrus, `tuskpoint-walrus`: its faults, its bill, its content."""

import json
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from processes import Deadline, Process
from tuskpoint import Location

STORES = ("put_quilt", "put_blob")
READS = ("get_blob", "get_patch")

_SECONDS = 30.0
# The emulator is on this machine, whatever proxy the shell has.
_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


@dataclass(frozen=True)
class Bill:
    """The publisher's counts and charges.

    Attributes:
        puts: PUTs that were answered with success.
        blobs: Registered blobs; each was charged.
        billed: Bytes charged for, as encoded by Walrus.
    """

    puts: int
    blobs: int
    billed: int


class Walrus(Process):
    """A publisher and aggregator on the loopback interface, with faults on order.

    Args:
        latency: Seconds that every PUT takes longer.
        folder: Where its output goes.
        deadline: When the demo must be over.
    """

    def __init__(self, latency: float, folder: Path, deadline: Deadline) -> None:
        command = [sys.executable, "-m", "tuskpoint_emulators.walrus.program"]
        self._storage = folder / "walrus"
        command += ["--listen", "127.0.0.1:0", "--latency", str(latency)]
        command += ["--directory", str(self._storage)]
        super().__init__("walrus", command, folder, deadline)
        self.url = f"http://{self.address()}"

    def strike(self, operations: tuple[str, ...], **fault: Any) -> None:
        """Let every request of these operations fail until `calm`."""
        for operation in operations:
            self._ask("POST", "faults", {"operation": operation, "fault": fault, "probability": 1})

    def calm(self) -> None:
        """Stop all faults."""
        self._ask("DELETE", "faults")

    def refused(self) -> int:
        """The number of PUTs that met a fault."""
        struck: dict[str, int] = self._ask("GET", "statistics")["faults"]
        return sum(count for name, count in struck.items() if name.startswith("put_"))

    def bill(self) -> Bill:
        """The present bill."""
        ledger = self._ask("GET", "statistics")["ledger"]
        return Bill(sum(ledger["puts"].values()), ledger["registrations"], ledger["billedBytes"])

    def storage(self) -> Iterator[bytes]:
        """Everything that it stores, which anybody can read."""
        for path in self._storage.rglob("*"):
            if path.is_file():
                yield path.read_bytes()

    def read(self, location: Location) -> bytes | None:
        """The aggregator's answer, unchecked; nothing if the blob does not exist."""
        path = f"/v1/blobs/{location.blob_id}"
        if location.identifier:
            identifier = quote(location.identifier, safe="")
            path = f"/v1/blobs/by-quilt-id/{location.blob_id}/{identifier}"
        try:
            with _OPENER.open(f"{self.url}{path}", timeout=_SECONDS) as answer:
                data: bytes = answer.read()
                return data
        except urllib.error.HTTPError as error:
            error.close()
            if error.code == 404:
                return None
            raise

    def _ask(self, method: str, what: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        data = None if body is None else json.dumps(body).encode()
        url = f"{self.url}/emulator/{what}"
        request = urllib.request.Request(url, data, method=method)  # noqa: S310 - made here
        with _OPENER.open(request, timeout=_SECONDS) as answer:
            content: dict[str, Any] = json.load(answer)
            return content
