"""A soak: many agents, one server, and faults of everything it depends on; then all is checked.

`run` is the whole soak; `Outcome.problems` lists all failed checks.
"""

from __future__ import annotations

import random
import re
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import grpc

from tests.crash.checks.checker import CALL_SECONDS, Checker
from tests.crash.checks.databases import broken_databases
from tests.crash.checks.recovery import recovered
from tests.crash.checks.token_channels import showing
from tests.crash.writers.ledger import Record
from tests.crash.writers.processes import WriterProcess
from tests.kit.servers.processes import WalrusProcess
from tests.soak import agents
from tests.soak.faults import Faults, Kind, Leader, blob_kind, clock_kind, disk_kind, wire_kind
from tests.soak.machine import Disk, LeftOutError, SoakServer
from tests.soak.samples import Sample, Sampler, course, growth, left_open
from tests.soak.wire import Wire
from tuskpoint.v1.admin_service_pb2 import GetArchiveStatusRequest, GetArchiveStatusResponse
from tuskpoint.v1.admin_service_pb2_grpc import AdminServiceStub
from tuskpoint_server.commands.token import new_token
from tuskpoint_server.core.credentials import DEFAULT_TENANT, Grant, Scope
from tuskpoint_server.keys import key_file

PASSING = tuple(status.name for status in agents.PASSING)
SAMPLE_THREADS = 60
SETTLE_SECONDS = 60.0
CHECK_SECONDS = 0.2
DEFECT = re.compile(r" incident | defect|cannot be indexed|MemoryError", re.IGNORECASE)

# Frequent flushes and evictions, so that both run during faults.
SETTINGS = {
    "TUSKPOINT_FLUSH_INTERVAL": "2",
    "TUSKPOINT_JOURNAL_BYTES": str(32 << 20),
    "TUSKPOINT_EVICTION_GRACE": "5",
    "TUSKPOINT_CACHE_BYTES": str(64 << 20),
}


@dataclass(frozen=True, slots=True)
class Plan:
    """Length and size of a soak.

    Attributes:
        agents: Number of agents.
        seconds: Seconds during which faults happen.
        pause_s: Seconds between two steps of an agent, on average.
        pace: Factor of the times of all faults.
        seed: Chooses faults, moments and contents.
        from_blobs: Number of checkpoints that are loaded from the blob store at the end.
    """

    agents: int
    seconds: float
    pause_s: float
    pace: float
    seed: str
    from_blobs: int


@dataclass(slots=True)
class Outcome:
    """The result of a soak.

    Attributes:
        problems: Failed checks; empty if all is well.
        left_out: Faults that are not possible on this machine, and why.
        figures: Counts and sizes.
        faults: Lines with the time of each fault.
    """

    problems: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    figures: dict[str, Any] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)


def run(folder: Path, plan: Plan) -> Outcome:
    """Run agents among faults, then check everything."""
    outcome = Outcome()
    token, settings = secrets_in(folder)
    with ExitStack() as opened:
        walrus = opened.enter_context(WalrusProcess())
        store = Wire(walrus.url.removeprefix("http://"), random.Random(f"{plan.seed} store"))
        url = f"http://{opened.enter_context(store).target}"
        settings |= {"WALRUS_PUBLISHER_URL": url, "WALRUS_AGGREGATOR_URL": url}
        disk = mounted(outcome, opened, Disk(folder / "data"))
        server = opened.enter_context(SoakServer(folder, settings))
        clock = clocks(outcome, server, plan)
        server.start()
        wires = [
            opened.enter_context(Wire(server.target, random.Random(f"{plan.seed} {number}")))
            for number in range(2)
        ]
        kinds = [
            blob_kind(walrus),
            disk_kind(server, disk),
            wire_kind("way to the blob store", store),
            *(wire_kind(f"way {number} to the server", wire) for number, wire in enumerate(wires)),
            *clock,
        ]
        options = ["--agents", str(plan.agents), "--pause", str(plan.pause_s), "--token", token]
        ways = ",".join(wire.target for wire in wires)
        with WriterProcess(folder, ways, plan.seed, *options, program=agents.main) as writer:
            least = let_fail(outcome, plan, server, token, writer, kinds)
            writer.stop()
        assert server.pid is not None, "the server ended by itself"
        outcome.problems += left_open(server.pid, least, SETTLE_SECONDS)
        server.kill()
        outcome.problems += broken_databases(server.data_dir)
        server.start()
        record = Record(writer.ledger)
        catalog = check(outcome, plan, server, token, record)
        outcome.problems += [] if server.stop() == 0 else ["the server did not stop cleanly"]
        check_log(outcome, server.log)
        with recovered(folder / "recovered", settings, catalog) as again:
            check_recovered(outcome, plan, again.target, token, record)
            outcome.problems += [] if again.stop() == 0 else ["the new server did not stop"]
    return outcome


def secrets_in(folder: Path) -> tuple[str, dict[str, str]]:
    """Create a token file without quotas and a key file; return the token and the settings."""
    tokens, keys = folder / "tokens.toml", folder / "seal.key"
    token, entry = new_token(Grant("soak", DEFAULT_TENANT, frozenset(Scope), None))
    tokens.write_text(entry, encoding="utf-8")
    key_file.make(keys)
    settings = {"TUSKPOINT_TOKENS": str(tokens), "TUSKPOINT_KEY_FILE": str(keys)}
    return token, SETTINGS | settings


def mounted(outcome: Outcome, opened: ExitStack, disk: Disk) -> Disk | None:
    """Return the disk that can be full, or `None` if it cannot be mounted."""
    try:
        opened.enter_context(disk.mounted())
    except LeftOutError as reason:
        outcome.left_out.append(f"a full disk: {reason}")
        return None
    return disk


def clocks(outcome: Outcome, server: SoakServer, plan: Plan) -> list[Kind]:
    """Return the faults of the clock, if the clock can be set."""
    try:
        server.prepare_clock()
    except LeftOutError as reason:
        outcome.left_out.append(f"a clock that jumps: {reason}")
        return []
    return [clock_kind(server, plan.seed)]


def let_fail(
    outcome: Outcome,
    plan: Plan,
    server: SoakServer,
    token: str,
    writer: WriterProcess,
    kinds: list[Kind],
) -> int:
    """Cause faults while the agents work, and take samples.

    Returns the fewest descriptors that the last process of the server had open.

    The server is killed in the first quarter of the time only: then one process lives through the
    other quarters, whose samples are compared.
    """
    with (
        Sampler(server, token, min(2.0, plan.seconds / 60)) as sampler,
        Leader(
            server, random.Random(f"{plan.seed} leader"), plan.pace, kills_s=plan.seconds / 4
        ) as leader,
        Faults(kinds, plan.seed, plan.pace) as faults,
    ):

        def check_all() -> None:
            writer.check_alive()
            for background in (sampler, leader, faults):
                background.check()

        while not leader.settled.wait(CHECK_SECONDS):
            check_all()
        ends = time.monotonic() + plan.seconds * 3 / 4
        while time.monotonic() < ends:
            check_all()
            time.sleep(CHECK_SECONDS)
    rss = course(sampler.samples, lambda sample: sample.rss_bytes)
    descriptors = course(sampler.samples, lambda sample: sample.descriptors)
    outcome.problems += leader.problems + growth(rss)
    outcome.faults += faults.log
    outcome.figures |= {
        "agents": plan.agents,
        "seconds": plan.seconds,
        "faults": dict(sorted(faults.happened.items())),
        "kills": leader.kills,
        "freezes": leader.freezes,
        "failed_starts": dict(Counter(leader.failed_starts)),
        "samples": len(sampler.samples),
        "rss_mib": {name: round(number / (1 << 20), 1) for name, number in asdict(rss).items()},
        "rss_mib_over_time": over_time(sampler.samples),
        "descriptors": asdict(descriptors),
        "threads": asdict(course(sampler.samples, lambda sample: sample.threads)),
        "peak_spool_mib": round(
            max(sample.spool_bytes for sample in sampler.samples) / (1 << 20), 1
        ),
        "peak_backlog": max(sample.backlog or 0 for sample in sampler.samples),
    }
    pid = sampler.samples[-1].pid
    return min(sample.descriptors for sample in sampler.samples if sample.pid == pid)


def over_time(samples: Sequence[Sample]) -> list[int]:
    """Return the resident memory at about 30 moments, in MiB."""
    return [sample.rss_bytes >> 20 for sample in samples[:: max(1, len(samples) // 30)]]


def check(outcome: Outcome, plan: Plan, server: SoakServer, token: str, record: Record) -> str:
    """Check all changes of the agents on a server without faults; return its catalog."""
    checker = Checker(record, server.target, token=token, from_blobs=plan.from_blobs)
    checker.check_everything()
    findings = checker.findings
    outcome.problems += findings.lost + findings.half_visible + record.differences
    for refusal in record.refusals:
        if not refusal.startswith(PASSING):
            outcome.problems.append(f"a client was told {refusal}")
    status = settled(server.target, token)
    if status.backlog_checkpoints or status.gaps:
        outcome.problems.append(f"{status.backlog_checkpoints} checkpoints are not certified")
    outcome.problems += [
        f"{path.name} is left in the spool" for path in (server.data_dir / "spool").iterdir()
    ]
    requests = [request for request in record.all_requests() if request.durability]
    outcome.figures |= {
        "counted": dict(sorted(record.counted.items())),
        "acknowledged": record.acknowledgements,
        "checkpoints": sum(request.state is not None for request in requests),
        "writes": sum(request.state is None and not request.deletes for request in requests),
        "deleted": sum(request.deletes for request in requests),
        "made": sum(bool(making.durability) for making in record.makings),
        "loads": findings.loads,
        "blob_loads": findings.blob_loads,
        "replays": findings.replays,
        "catalogs": status.catalog_seq,
        "certified": status.certified_checkpoints,
        "refusals": dict(Counter(kind_of(refusal) for refusal in record.refusals)),
    }
    if not outcome.figures["checkpoints"] or not findings.blob_loads:
        outcome.problems.append("nothing was checked")
    return str(status.catalog.blob_id)


def kind_of(refusal: str) -> str:
    """Return a refusal without the parts that differ from one refusal to the next."""
    status, _, detail = refusal.partition(": ")
    return f"{status}: {re.sub(r'[0-9]+', 'N', detail)[:100]}"


def status_of(target: str, token: str) -> GetArchiveStatusResponse:
    """Return the status of a server's archive."""
    with grpc.insecure_channel(target) as channel:
        stub = AdminServiceStub(showing(token, channel))
        return stub.GetArchiveStatus(GetArchiveStatusRequest(), timeout=CALL_SECONDS)


def settled(target: str, token: str) -> GetArchiveStatusResponse:
    """Return the status of a server's archive once all is certified, including the trail, which
    follows later."""
    deadline = time.monotonic() + SETTLE_SECONDS
    while True:
        status = status_of(target, token)
        if not status.backlog_checkpoints or time.monotonic() > deadline:
            return status
        time.sleep(0.1)


def check_log(outcome: Outcome, log: Path) -> None:
    """Add the defects in the server's log to the problems, and count its warnings."""
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    outcome.problems += [line for line in lines if DEFECT.search(line)]
    kinds = Counter(
        re.sub(r"[0-9]+", "N", line)[:120]
        for line in lines
        if " WARNING " in line or " ERROR " in line
    )
    outcome.figures["warnings"] = dict(kinds.most_common(20))


def check_recovered(outcome: Outcome, plan: Plan, target: str, token: str, record: Record) -> None:
    """Compare some threads of a server rebuilt from a catalog with the ledger."""
    threads = sorted({key[0] for key in record.places()})
    sample = random.Random(plan.seed).sample(threads, min(SAMPLE_THREADS, len(threads)))
    checker = Checker(record, target, token=token)
    checker.check_threads(sample)
    outcome.problems += [f"after a recovery: {loss}" for loss in checker.findings.lost]
    outcome.figures["recovered_loads"] = checker.findings.loads + checker.findings.made
