"""Run the session of docs/threads/command-line.md and of its reference, with the real output.

    python -m tools.command_line_page          write what the commands print into the pages
    python -m tools.command_line_page check    fail if a page shows something else

The ``console`` blocks of the two pages are one session. Their lines that begin with ``$`` run in
order, in this process, against a new server and in an empty directory. In the output, stand-ins
replace IDs and times; commands may be written with these stand-ins.
"""

import base64
import contextlib
import difflib
import functools
import hashlib
import re
import shlex
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from typer.main import get_command
from typer.testing import CliRunner

import tuskpoint.cli.app  # noqa: F401 - adds the commands
from tests.kit.servers.processes import ServerProcess
from tuskpoint import Client
from tuskpoint._messages.arguments import encode_json
from tuskpoint._messages.checkpoints.interrupts import INTERRUPT
from tuskpoint.cli.program import PROGRAM
from tuskpoint.v1.checkpoint_pb2 import CheckpointRef
from tuskpoint.v1.checkpoint_service_pb2 import SaveWritesRequest
from tuskpoint.v1.value_pb2 import PendingWrite, Value

_THREADS = Path(__file__).resolve().parent.parent / "docs" / "threads"
GUIDE, REFERENCE = _THREADS / "command-line.md", _THREADS / "command-line-reference.md"
WIDTH = 100
INDEXED_SECONDS = 30
ADDRESS = "127.0.0.1:7390"

_BLOCK = re.compile(r"(?ms)^```console\n(.*?)^```")
_UUID = re.compile(r"\b([0-9a-f]{8}-[0-9a-f]{4}-6[0-9a-f]{3})(-[0-9a-f]{4}-[0-9a-f]{12})?\b")
_SHA256 = re.compile(r"\b([0-9a-f]{16})([0-9a-f]{48})?\b")
_SIGNATURE = re.compile(r"\b[0-9a-f]{128}\b")
_BLOB_ID = re.compile(r"(?<![\w-])[\w-]{43}(?![\w-])")
_TIME = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d")
_CLOCK = re.compile(r"(?<=, )\d\d:\d\d:\d\d\b")
_ISO = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z")
_DAY = re.compile(r"\b20\d\d-\d\d-\d\d\b")


@dataclass(frozen=True)
class Outcome:
    """The outcome of a run in this process.

    Attributes:
        code: The exit code.
        out: Output to stdout.
        errors: Output to stderr.
        both: Output to stdout and stderr, in order.
    """

    code: int
    out: str
    errors: str
    both: str


def run_here(
    arguments: Sequence[str], given: str | bytes | None, environment: Mapping[str, str | None]
) -> Outcome:
    """Run a command line in this process, without a terminal."""
    code = 0
    with CliRunner(env=environment).isolation(given) as streams:
        try:
            _program().main(arguments, prog_name="tuskpoint")
        except SystemExit as done:
            code = done.code if isinstance(done.code, int) else 1
        sys.stdout.flush()
        sys.stderr.flush()
        return Outcome(code, *(stream.getvalue().decode() for stream in streams))


@functools.cache
def _program() -> Any:
    return get_command(PROGRAM)


@contextlib.contextmanager
def served(directory: Path, **settings: str) -> Iterator[str]:
    """Run a server in a process of its own that flushes only on request; yield its address."""
    with ServerProcess(directory, {"TUSKPOINT_FLUSH_INTERVAL": "3600", **settings}) as server:
        server.start()
        yield server.target


def interrupt(client: Client, thread_id: str, checkpoint_id: str, question: object) -> None:
    """Let a checkpoint wait for an answer, like an agent with an interrupted task."""
    questions = [{"value": question, "id": "9f3c1a7e5b2d4860"}]
    write = PendingWrite(
        task_id="6b1d2f30-9f6e-5a53-8f0e-2f6f0f3e9a11",
        channel=INTERRUPT,
        value=Value(type="json", data=encode_json("question", questions)),
    )
    ref = CheckpointRef(thread_id=thread_id, checkpoint_id=checkpoint_id)
    client._calls.save_writes(SaveWritesRequest(ref=ref, writes=[write]))


def wait_until_indexed(client: Client) -> None:
    """Wait until search finds every saved checkpoint."""
    latest = time.monotonic() + INDEXED_SECONDS
    while (search := client.status().search) is None or search.unindexed_checkpoints:
        if time.monotonic() > latest:
            raise TimeoutError("the server does not index")
        time.sleep(0.02)


@dataclass
class _Standins:
    """Stand-ins for output that differs from run to run, in the order of appearance."""

    ids: dict[str, str] = field(default_factory=dict)  # of the first three groups of an ID
    hashes: dict[str, str] = field(default_factory=dict)  # of their first 16 digits
    blobs: dict[str, str] = field(default_factory=dict)

    def put(self, text: str, address: str) -> str:
        """Return output with stand-ins."""
        text = _UUID.sub(self._id, text.replace(address, ADDRESS))
        text = _SIGNATURE.sub(hashlib.sha512(b"signature").hexdigest(), text)
        text = _SHA256.sub(self._hash, text)
        text = _BLOB_ID.sub(lambda match: self._blob(match[0]), text)
        text = _CLOCK.sub("09:30:00", _TIME.sub("2026-03-01 09:30:00", text))
        text = _ISO.sub("2026-03-01T09:30:00.000000Z", text)
        return _DAY.sub("2026-03-01", text)

    def take(self, command: str) -> str:
        """Return a command with real values in place of its stand-ins."""
        for real, shown in self.ids.items():
            command = command.replace(shown, real)
        return command

    def _id(self, match: re.Match[str]) -> str:
        number = len(self.ids) + 1
        begin = self.ids.setdefault(match[1], f"1f0c7a{number:02x}-52b1-6e40")
        tail = f"-9c3d-2f60a1b4{int(begin[6:8], 16) * 0x1357 & 0xFFFF:04x}"
        return begin + tail if match[2] else begin

    def _hash(self, match: re.Match[str]) -> str:
        stand_in = hashlib.sha256(b"hash %d" % len(self.hashes)).hexdigest()
        whole = self.hashes.setdefault(match[1], stand_in)
        return whole if match[2] else whole[:16]

    def _blob(self, real: str) -> str:
        if not any(character.isdigit() for character in real):
            return real  # a long word
        digest = hashlib.sha256(b"blob %d" % len(self.blobs)).digest()
        stand_in = base64.urlsafe_b64encode(digest).decode().rstrip("=")
        return self.blobs.setdefault(real, stand_in)


class Session:
    """Runs the commands of the page.

    Args:
        address: The address of the server.
        directory: The directory of read and written files.
    """

    def __init__(self, address: str, directory: Path) -> None:
        self._address = address
        self._directory = directory
        self._standins = _Standins()
        self._code = 0
        self._client = Client(address)
        self._environment = {"TUSKPOINT_TARGET": address, "COLUMNS": str(WIDTH)}

    def close(self) -> None:
        """Close the connection."""
        self._client.close()

    def run(self, block: str) -> str:
        """Return a block with the present output of its commands."""
        shown = []
        for line in block.splitlines():
            if line.startswith("$ "):
                printed = self._printed(self._standins.take(line[2:]))
                lines = self._standins.put(printed, self._address).splitlines()
                shown += [line, *(printed_line.rstrip() for printed_line in lines)]
        return "\n".join(shown) + "\n"

    def _printed(self, command: str) -> str:
        """Run one line of a shell: `[echo TEXT |] tuskpoint ...`, `cat FILE`, `echo $?`."""
        if command == "echo $?":
            return f"{self._code}\n"
        stdin = None
        words = shlex.split(command)
        if words[0] == "cat":
            return (self._directory / words[1]).read_text(encoding="utf-8")
        if words[0] in ("echo", "printf"):
            pipe = words.index("|")
            stdin = " ".join(words[1:pipe]) + "\n" * (words[0] == "echo")
            stdin, words = stdin.replace("\\n", "\n"), words[pipe + 1 :]
        if "search" in words or "status" in words:
            wait_until_indexed(self._client)
        if words[0] != "tuskpoint":
            raise ValueError(f"the page runs a command that this does not know: {command}")
        with contextlib.chdir(self._directory):
            outcome = run_here(words[1:], stdin, self._environment)
        self._code = outcome.code
        return outcome.both

    def agent_asks(self) -> None:
        """Save a checkpoint with an open question, as the agent on the page does."""
        saved = self._client.save(
            "release", {"draft": "0.2 notes"}, agent_id="publisher", summary="drafted the notes"
        )
        interrupt(self._client, "release", saved, {"question": "publish them?"})


def written() -> list[str]:
    """Return the committed guide and reference."""
    return [page.read_text(encoding="utf-8") for page in (GUIDE, REFERENCE)]


def rendered(pages: Sequence[str]) -> list[str]:
    """Return pages with the present output of their common session."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        with served(directory) as address:
            session = Session(address, directory)
            try:
                session.agent_asks()
                return [_BLOCK.sub(functools.partial(_run, session), page) for page in pages]
            finally:
                session.close()


def _run(session: Session, block: re.Match[str]) -> str:
    return f"```console\n{session.run(block[1])}```"


def loosened(page: str) -> str:
    """Return a page without parts that may differ: sizes, times, widths, cuts of lines."""
    page = re.sub(r"\d+(\.\d)? (B|KiB|MiB)\b", "SIZE", page)
    page = re.sub(r'("\w*(bytes|size)": )\d+', r"\1SIZE", page)
    page = re.sub(r"(just now|\d+ (s|min) ago)(, 09:30:00)?", "AGO", page)
    page = re.sub(r" ?\S*…", "…", page)
    return re.sub(r"[ \t]+", " ", page)


def difference(page: str, now: str) -> str:
    """Return the difference between the page and the commands' output; empty if none."""
    shown, printed = loosened(page).splitlines(), loosened(now).splitlines()
    return "\n".join(difflib.unified_diff(shown, printed, "page", "printed", lineterm="", n=2))


def main(arguments: list[str]) -> int:
    """Run the tool; return its exit code."""
    pages = written()
    now = rendered(pages)
    if arguments != ["check"]:
        for path, text in zip((GUIDE, REFERENCE), now, strict=True):
            path.write_text(text, encoding="utf-8")
        return 0
    differs = "\n".join(filter(None, map(difference, pages, now)))
    print(differs or "the pages show what the commands print")
    return 1 if differs else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
