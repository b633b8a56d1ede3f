"""The demo on Walrus, with a failing publisher, and a server that is rebuilt from blobs alone.

    python examples/document_agent/demo_walrus.py

Walrus is `tuskpoint-walrus`, an emulator on this machine: no network, account or token is needed.
Exit code 0 only if every check held.
"""

import re
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from console import heading, plural, say, show
from demo import THREAD, Demo, all_held, main
from processes import DemoError, Process
from proof import Check, read_history
from tuskpoint import CheckpointRecord, Client, Location
from tuskpoint.errors import DataLoss, TuskPointError
from tuskpoint_emulators.walrus.encoding.geometry import MAINNET
from walrus import READS, STORES, Walrus

PUT_SECONDS = 1.0
PROBES = 20
MANY = 5
EXIT_DAMAGED = 8
_SEALED = b"\x51\x2a\x4d\x18"  # docs/storage.md, "Sealed members"
_WORD = re.compile(r"[a-z0-9-]{7,}")
DATA, RECOVERED, IN_VAIN = "data", "recovered", "in-vain"

Records = dict[tuple[str, str, str], CheckpointRecord]


class WalrusDemo(Demo):
    """The demo, with blobs on Walrus."""

    seconds = 480.0

    def __init__(self, folder: Path, documents: Path, pace: float, seconds: float) -> None:
        super().__init__(folder, documents, pace, seconds)
        self.walrus = Walrus(PUT_SECONDS, folder, self.deadline)
        self.blobs = self.walrus
        keys = folder / "tuskpoint.keys"
        make_keys(keys)
        self.server_options = (
            *("--key-file", str(keys)),
            *("--walrus-publisher-url", self.walrus.url),
            *("--walrus-aggregator-url", self.walrus.url),
        )
        self.recoveries: list[Process] = []
        self.found: list[Check] = []

    def run(self) -> bool:
        """Run all scenes; true if every check held."""
        heading("A Walrus, and a checkpoint server on an empty directory")
        say("walrus", f"listens on {self.walrus.url}; every PUT takes {PUT_SECONDS:.0f} s")
        self.start_server()
        self.undisturbed()

        heading("An agent that is killed")
        self.kill_agent("reader/split", "reader/count")
        usual = self._probe("as usual")

        heading("A publisher that refuses, an agent and a server that are killed meanwhile")
        certified, acknowledged = self._refuse(), self._acknowledged()
        self.kill_agent("statistics", "key_sentences")
        self.kill_server("group", "write_section")
        refused = self._probe("while the publisher refuses")
        self._check_outage(certified, acknowledged, usual, refused)
        self._relent()

        self.answer()
        held = self.prove()
        held = all_held(self.found) and held
        held = all_held(self._billed()) and held
        held = all_held(self._sealed()) and held
        before, catalog = self._records(), self._catalog()
        held = all_held(self._rebuilt(before, catalog)) and held
        return all_held(self._corrupted(before, catalog)) and held

    # --- the outage ----------------------------------------------------------------------------

    def _probe(self, when: str) -> float:
        """Save some checkpoints one by one; return the median time in seconds."""
        times = []
        with Client(self.server.target) as client:
            for number in range(PROBES):
                began = time.perf_counter()
                client.save("probe", {"number": number, "when": when})
                times.append(time.perf_counter() - began)
        median = statistics.median(times)
        say("client", f"{plural(PROBES, 'save')} {when}: {median * 1e3:.1f} ms each (median)")
        return median

    def _refuse(self) -> int:
        """Certify everything, then let each PUT be refused; return what is certified."""
        with Client(self.server.target) as client:
            client.flush()
            self.walrus.strike(STORES, kind="refuse", status=503)
            say("walrus", "refuses every PUT from now on (HTTP 503)")
            return client.status().certified_checkpoints

    def _acknowledged(self) -> int:
        history = read_history(self.log.read(), THREAD)
        return len(history.checkpoints) + len(history.results)

    def _check_outage(
        self, certified: int, acknowledged: int, usual: float, refused: float
    ) -> None:
        with Client(self.server.target) as client:
            status = client.status()
        more, puts = self._acknowledged() - acknowledged, self.walrus.refused()
        say(
            "server",
            f"{plural(more, 'checkpoint')} and results acknowledged meanwhile; "
            f"{plural(status.backlog_checkpoints, 'checkpoint')} wait for certification",
        )
        self.found = [
            Check("the publisher refused, and the agent continued", more > 0 and puts > 0,
                  f"{plural(puts, 'PUT')} refused, {more} acknowledgements"),
            Check("nothing was called certified meanwhile",
                  status.certified_checkpoints <= certified and status.backlog_checkpoints > 0,
                  f"{certified} before, {status.certified_checkpoints} after"),
            Check("a save did not wait for the publisher", refused < PUT_SECONDS / 2,
                  f"{refused * 1e3:.1f} ms, as usual {usual * 1e3:.1f} ms"),
        ]  # fmt: skip

    def _relent(self) -> None:
        """Let PUTs succeed again, and wait until everything is certified."""
        self.walrus.calm()
        say("walrus", "takes PUTs again")
        with Client(self.server.target) as client:
            client.flush()
            backlog = client.status().backlog_checkpoints
        say("server", "has certified everything")
        detail = f"{plural(backlog, 'checkpoint')} left to certify"
        self.found.append(Check("then everything was certified", backlog == 0, detail))

    # --- the bill ------------------------------------------------------------------------------

    def _billed(self) -> Iterator[Check]:
        """Show what was charged, and what a blob for each checkpoint would have cost."""
        bill = self.walrus.bill()
        with Client(self.server.target) as client:
            sizes = [record.location.size for record in client.list() if record.location]
        alone = sum(MAINNET.encoded_bytes(size) for size in sizes)
        heading("What Walrus charged")
        show(f"  {'':34}{'PUTs':>6}{'blobs':>8}{'billed':>12}")
        show(
            f"  {'TuskPoint, records included':34}{bill.puts:>6}{bill.blobs:>8}"
            f"{bill.billed / 1e9:>9.2f} GB"
        )
        show(
            f"  {'a blob for each checkpoint alone':34}{len(sizes):>6}{len(sizes):>8}"
            f"{alone / 1e9:>9.2f} GB"
        )
        yield Check(
            "one PUT served many checkpoints",
            0 < bill.billed * MANY < alone,
            f"charged 1/{alone / max(bill.billed, 1):.0f}",
        )

    # --- what the world can read ---------------------------------------------------------------

    def _sealed(self) -> Iterator[Check]:
        """Search everything that Walrus stores for the longer words of the documents."""
        heading("What everybody can read on Walrus")
        texts = [THREAD, *(path.read_text("utf-8") for path in self.documents.iterdir())]
        words = {word.encode() for text in texts for word in _WORD.findall(text)}
        files = list(self.walrus.storage())
        leaks = sorted({word.decode() for word in words for data in files if word in data})
        size = sum(map(len, files))
        say("person", f"grep for {plural(len(words), 'word')} in {size} bytes")
        yield Check(
            "no word of the documents is there",
            len(words) > 100 and size > 10_000 and not leaks,
            f"found: {', '.join(leaks[:5])}" if leaks else "nothing found",
        )
        with Client(self.server.target) as client:
            places = {
                record.location.sha256: record.location
                for record in client.list()
                if record.location
            }
        opened = [place for place in places.values() if not self._is_sealed(place)]
        yield Check(
            "every segment is sealed",
            bool(places) and not opened,
            f"{len(places) - len(opened)} of {len(places)}",
        )

    def _is_sealed(self, location: Location) -> bool:
        return (self.walrus.read(location) or b"").startswith(_SEALED)

    # --- the empty disk ------------------------------------------------------------------------

    def _records(self) -> Records:
        """Every checkpoint, with state and writes."""
        with Client(self.server.target) as client:
            return {_key(record): record for record in client.list(full=True)}

    def _catalog(self) -> str:
        with Client(self.server.target) as client:
            catalog = client.status().catalog
        if catalog is None:
            raise DemoError("the server names no catalog although it has certified")
        return catalog.blob_id

    def _recover(self, data: str, catalog: str) -> Process:
        """Run `tuskpoint-server recover` to its end."""
        command = [sys.executable, "-m", "tuskpoint_server", "recover", "--catalog", catalog]
        command += ["--data-dir", str(self.folder / data), *self.server_options]
        name = f"recover-{len(self.recoveries) + 1}"
        self.recoveries.append(Process(name, command, self.folder, self.deadline))
        self.recoveries[-1].wait()
        return self.recoveries[-1]

    def _rebuilt(self, before: Records, catalog: str) -> Iterator[Check]:
        """Delete everything except the blob ID of the catalog, recover, and compare."""
        heading("A server that loses its disk")
        status = self.server.stop()
        shutil.rmtree(self.folder / DATA)
        say("server", "ended; its data directory is gone")
        say("person", f"tuskpoint-server recover --catalog {catalog}")
        recovery = self._recover(RECOVERED, catalog)
        show(recovery.last_words(1).removeprefix("\n"), "dim")
        if recovery.child.returncode:
            raise DemoError(f"recover failed{recovery.last_words()}")
        self.start_server(data=RECOVERED)
        after = self._records()
        with Client(self.server.target) as client:
            problems = [error for record in before.values() if (error := _refusal(client, record))]
        count = len(before)
        yield Check("the server had ended in order", status == 0, f"exit code {status}")
        yield Check(
            "the rebuilt server has the same checkpoints, no more",
            count > 0 and before.keys() == after.keys(),
            f"{len(after)} of {count}",
        )
        yield Check(
            "each loads from Walrus, byte for byte what it was",
            count > 0 and not problems,
            str(problems[0]) if problems else f"{count} of {count}",
        )

    def _corrupted(self, before: Records, catalog: str) -> Iterator[Check]:
        """Let the aggregator return one wrong byte."""
        heading("A blob that is not what it was")
        record = next(record for key, record in before.items() if key[0] == THREAD)
        self.walrus.strike(READS, kind="corrupt")
        say("walrus", "changes one byte of every answer from now on")
        with Client(self.server.target) as client:
            error = _refusal(client, record)
            where = record.location
            wanted = where.sha256 if where else ""
            say("client", f"loads {record.checkpoint_id}: {error}")
            metadata = error.metadata if isinstance(error, DataLoss) else {}
            expected, actual = metadata.get("expected", ""), metadata.get("actual", "")
            yield Check(
                "it is refused with both hashes",
                bool(wanted) and expected == wanted and len(actual) == 64 and actual != wanted,
                f"{expected[:12]} expected, {actual[:12]} found",
            )
            recovery = self._recover(IN_VAIN, catalog)
            journals = list((self.folder / IN_VAIN).glob("journal*"))
            yield Check(
                "nothing is rebuilt from it",
                recovery.child.returncode == EXIT_DAMAGED and not journals,
                f"exit code {recovery.child.returncode}, {plural(len(journals), 'file')} left",
            )
            self.walrus.calm()
            error = _refusal(client, record)
            yield Check(
                "it was not kept: the right bytes load", error is None, str(error or "equal")
            )

    def close(self) -> None:
        """End the remaining processes of this demo."""
        super().close()
        for process in (*self.recoveries, self.walrus):
            if process.child.poll() is None:
                process.kill()


def make_keys(path: Path) -> None:
    """Make the keys that seal what the server stores."""
    command = [sys.executable, "-m", "tuskpoint_server", "keys", "create", str(path)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def _key(record: CheckpointRecord) -> tuple[str, str, str]:
    return record.thread_id, record.checkpoint_ns, record.checkpoint_id


def _content(record: CheckpointRecord) -> tuple[object, ...]:
    """Everything that an agent or a reader of its history can see."""
    return (
        *_key(record),
        record.parent_checkpoint_id,
        record.metadata,
        record.summary,
        record.label,
        record.lineage,
        record.created,
        record.channels,
        record.writes,
    )


def _refusal(client: Client, record: CheckpointRecord) -> TuskPointError | None:
    """Load a checkpoint from its blob; return what was raised, or nothing if it is the same."""
    thread, namespace, checkpoint = _key(record)
    try:
        loaded = client.load(thread, checkpoint, checkpoint_ns=namespace, source="blob")
    except TuskPointError as error:
        return error
    return None if _content(loaded) == _content(record) else DataLoss("it loads, but is another")


if __name__ == "__main__":
    sys.exit(main(WalrusDemo))
