"""The fuzzer's targets accept their seeds, mutated seeds, and inputs that once failed.

`make fuzz` searches for further inputs; this module keeps the targets working, and prevents the
return of fixed defects.
"""

from __future__ import annotations

import os
import resource
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random

import pytest

from tests.fuzz import received_seeds as seeds
from tests.fuzz import stored_seeds
from tests.fuzz.mutations import Form, mutated
from tests.fuzz.target import parsed
from tests.fuzz.targets import TARGETS
from tuskpoint_server.archive.formats.runs import decode_run
from tuskpoint_server.core.errors import Reason, malformed_bytes
from tuskpoint_server.core.limits import MIB
from tuskpoint_server.core.model import Channel
from tuskpoint_server.core.state import encode_state
from tuskpoint_server.core.values import pack_frame

MUTATED = int(os.environ.get("TUSKPOINT_FUZZ_INPUTS", "120"))
SEED = int(os.environ.get("TUSKPOINT_FUZZ_SEED", "0")) or Random().randrange(1, 2**32)
MOST_GROWTH = 1024 * MIB

DEEP = b"[" * 3000 + b"]" * 3000

FAILED: tuple[tuple[str, bytes], ...] = (
    ("trail_batch", DEEP),
    ("trail_batch", b'{"previous":""}'),
    ("trail_batch", b'{"previous":"","entries":[{}]}'),
    ("trail_batch", b'{"previous":"","entries":5}'),
    ("trail_batch", seeds.trail_batches()[0].replace(b"2026-01-01", b"2026-99-99")),
    ("trail_batch", seeds.trail_batches()[0].replace(b'"calls": 2', b'"calls": "2"')),
    ("status_details", b"\xff"),
    ("status_details", seeds.status_details()[0].replace(b"INVALID_FIELD", b"INVALID_FIEL\xff")),
    ("status_details", seeds.status_with_delay(2**62)),
    ("call_error", seeds.call_error_with_delay(2**62)),
    ("descriptor", seeds.descriptors()[1][:-1] + b',"key":null}'),
    ("descriptor", seeds.descriptors()[1][:-1] + b',"signer":0,"signature":[]}'),
    ("json_request", b'{"vector": "\\ud800"}'),
    ("audit_report", seeds.reports()[1].replace(b'"catalog"', b'"\\ud800"')),
    ("audit_report", seeds.reports()[1].replace(b'"identifier": ""', b'"identifier": "\\ud800"')),
    ("state", encode_state(b"", [Channel("a", float("nan"), bytes(32), 0)])),
    ("url", b"https://["),
    ("token_entries", seeds.token_entries()[2].replace(b"https://a.b", b"https://[")),
    ("token_header", b'{"alg":"EdDSA","kid":"\\ud800"}'),
    ("token_header", DEEP),
    ("claims", DEEP),
    ("claims", seeds.claims()[0].replace(b"4000000000", b"Infinity")),
    ("claims", seeds.claims()[1].replace(b'"nbf": 1', b'"nbf": Infinity')),
    ("claims", seeds.claims()[0].replace(b"4000000000", b'"4000000000"')),
    ("claims", seeds.claims()[0].replace(b"4000000000", b"[]")),
    ("issuer_keys", b'[{"kty":"RSA","n":"AQAB","e":"AA"}]'),
    ("issuer_keys", b'[{"kty":"EC","crv":"P-256","x":"%s","y":"%s"}]' % (b"A" * 43, b"A" * 43)),
    ("issuer_keys", b'[{"kty":"oct","kid":"k"}]'),
    ("issuer_keys", b'[{"kty":"RSA","n":"!","e":"AQAB"}]'),
)
"""Target and input of each defect that the fuzzer found; some inputs need the oldest PyJWT
allowed."""


@contextmanager
def bounded_memory() -> Iterator[None]:
    """Fail an allocation of a forged size, on systems that can limit memory."""
    if sys.platform != "linux":
        yield
        return
    with open("/proc/self/statm") as statm:
        used_bytes = int(statm.read().split()[0]) * resource.getpagesize()
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (used_bytes + MOST_GROWTH, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


@pytest.mark.parametrize("name", TARGETS)
def test_no_input_fails(name: str) -> None:
    target = TARGETS[name]
    valid = target.seeds()
    random = Random(f"{SEED} {name}")
    made = (mutated(random.choice(valid), target.form, random) for _ in range(MUTATED))
    with bounded_memory():
        for data in (*valid, b"", DEEP, *made):
            try:
                target.parse(data)
            except Exception as error:
                error.add_note(f"TUSKPOINT_FUZZ_SEED={SEED}; the input is {data!r:.4000}")
                raise


@pytest.mark.parametrize(
    ("name", "data"), FAILED, ids=[f"{name} {at}" for at, (name, _) in enumerate(FAILED)]
)
def test_inputs_that_once_failed(name: str, data: bytes) -> None:
    TARGETS[name].parse(data)


def test_an_undocumented_exception_is_a_failure() -> None:
    def refuse() -> None:
        raise malformed_bytes("blob", "a text")

    assert parsed(refuse, Reason.BLOB_MALFORMED) is None
    with pytest.raises(Exception, match="a text"):
        parsed(refuse, Reason.KEY_MISSING, ValueError)
    with pytest.raises(UnicodeEncodeError):  # No error message can contain this text.
        parsed(
            lambda: (_ for _ in ()).throw(malformed_bytes("blob", "\ud800")), Reason.BLOB_MALFORMED
        )


@pytest.mark.parametrize("form", Form)
def test_mutations_change_what_is_inside(form: Form) -> None:
    samples = {
        Form.BYTES: b"bytes",
        Form.JSON: b'{"a":[1,{"b":"c"}]}',
        Form.LINES: b'{"a":1}\n{"b":2}\n',
        Form.MESSAGE: seeds.adoptions()[0],
    }
    random = Random(1)
    mutants = {mutated(samples[form], form, random) for _ in range(200)}
    assert len(mutants) > 50


def test_an_index_that_unpacks_to_too_much_takes_no_memory() -> None:
    bomb = pack_frame(bytes(64 * MIB))
    assert len(bomb) < MIB
    ref = stored_seeds.reference(stored_seeds.run_indexes()[0])
    assert parsed(lambda: decode_run(bomb, ref), Reason.BLOB_MALFORMED) is None
