"""Targets: the server's parsers of input from callers, issuers, embedders and files."""

from __future__ import annotations

import base64
import json
from dataclasses import fields
from functools import partial

from tests.fuzz import received_seeds as seeds
from tests.fuzz.mutations import Form
from tests.fuzz.target import parsed, same, target
from tuskpoint._messages.lineage.handoffs import read_descriptor
from tuskpoint.audit import keys as audit_keys
from tuskpoint.errors import InvalidDescriptor
from tuskpoint.v1 import checkpoint_service_pb2, handoff_service_pb2
from tuskpoint_server.api import handoffs
from tuskpoint_server.api.messages import json_text, validation
from tuskpoint_server.api.messages.json_text import JsonText
from tuskpoint_server.api.middleware.pipeline import parse_message as parsed_request
from tuskpoint_server.auth.oidc import InvalidAnswerError, OidcIssuers, usable_keys
from tuskpoint_server.auth.tokens import parse_tokens
from tuskpoint_server.commands.startup.retention_file import parse_rules
from tuskpoint_server.core import items, lineage, state
from tuskpoint_server.core.credentials import is_safe_url
from tuskpoint_server.core.errors import Reason
from tuskpoint_server.core.json_view import excerpts, views
from tuskpoint_server.core.model import Value
from tuskpoint_server.core.process import ConfigError
from tuskpoint_server.core.steps import facts
from tuskpoint_server.features import cursors as positions
from tuskpoint_server.keys import local, signing
from tuskpoint_server.search.embedders import openai
from tuskpoint_server.search.searchable import body_of

_OF_ITEMS = (Reason.METADATA_NOT_JSON, Reason.INVALID_FIELD)


# --- values and their JSON views -----------------------------------------------------------------


@target(seeds.msgpack)
def msgpack_value(data: bytes) -> None:
    """Parse a value in msgpack. No bytes may make its view, excerpts, text or facts fail."""
    _value("msgpack", data)


@target(seeds.json_values, Form.JSON)
def json_value(data: bytes) -> None:
    """Parse a value in JSON. No text may make its view, excerpts, text or facts fail."""
    _value("json", data)


def _value(kind: str, data: bytes) -> None:
    value = Value(kind, data)
    shown = views.ViewRoom(views.MAX_CHECKPOINT_TEXT).view(value)
    json.loads(shown.data)
    for maximum in (8, 40, len(data) // 2):
        part = excerpts.latest_part(value, maximum)
        if part is not None and part.data != data and kind == "json":
            json.loads(part.data)
    half = Value(kind, data[: len(data) // 2])
    excerpts.new_part(value, half)
    excerpts.new_part(half, value)
    excerpts.join_values([value, half])
    body_of([("a", value), ("current_plan", value)], frozenset({"b"}), 200)
    for read in (facts.questions, facts.failure, facts.tokens):
        read(value)
    facts.send_nodes(value)
    facts.is_complete(value, "a+b")


@target(seeds.metadata, Form.JSON)
def metadata(data: bytes) -> None:
    """Parse the metadata of a checkpoint, and derive the metadata of a rollback."""
    if parsed(lambda: state.parse_metadata(data, "metadata_json"), Reason.METADATA_NOT_JSON):
        state.matches(data or b"{}", {"step": 1}, typed=True)
        made = lineage.rollback_metadata(data or b"{}", "ns", "root")
        state.parse_metadata(made, "metadata_json")


@target(seeds.items, Form.JSON)
def item(data: bytes) -> None:
    """Parse an item of a store, in the metadata that contains the item."""
    if parsed(partial(_held_item, data), ValueError, *_OF_ITEMS):
        value = items.parse_value(items.value_in(data), "value")
        times = items.decode(data)
        same(items.decode(items.encode(times, items.value_in(data))), times)
        items.texts_of(value, ["$", "a.b[*]", "[0]", "b[*].c"])
        for wanted in seeds.item_filters():
            admits = items.filter_condition(state.parse_object(wanted, "filter_json"))
            assert admits is None or admits(data) in (True, False)


def _held_item(metadata: bytes) -> bool:
    state.parse_metadata(metadata, "metadata")  # A recovery checks all metadata first.
    items.check(metadata)
    return True


@target(seeds.item_filters, Form.JSON)
def item_filter(data: bytes) -> None:
    """Parse the filter of a search in a store."""
    wanted = parsed(lambda: state.parse_object(data, "filter_json"), *_OF_ITEMS)
    admits = parsed(lambda: items.filter_condition(wanted or {}), *_OF_ITEMS)
    for item in seeds.items() if admits else ():
        assert admits is not None
        assert admits(item) in (True, False)


# --- what callers and files send -----------------------------------------------------------------

_LISTINGS: tuple[tuple[positions.Parts, tuple[type, ...]], ...] = (
    (("threads", "tenant"), (str,)),
    (("checkpoints", "tenant", "thread"), (str, str, str)),
    (("watch", "tenant", "thread"), (str, int, int, int)),
)


@target(seeds.page_tokens)
def page_token(data: bytes) -> None:
    """Parse a page token, or a cursor of a watch."""
    text = data.decode(errors="replace")
    for scope, kinds in _LISTINGS:
        parsed(
            partial(positions.decode_cursor, scope, text, *kinds),
            Reason.PAGE_TOKEN_INVALID,
        )


@target(seeds.positions, Form.JSON)
def position(data: bytes) -> None:
    """Parse the position in a page token or a cursor with a valid checksum."""
    payload = base64.urlsafe_b64encode(data).decode().rstrip("=")
    for scope, kinds in _LISTINGS:
        token = seeds.seal_of(scope, payload) + payload
        place = parsed(
            partial(positions.decode_cursor, scope, token, *kinds),
            Reason.PAGE_TOKEN_INVALID,
        )
        if place is not None:
            same(
                positions.decode_cursor(scope, positions.encode_cursor(scope, place), *kinds), place
            )


@target(seeds.token_files)
def token_file(data: bytes) -> None:
    """Parse the file of tokens, certificates, issuers and quotas."""
    parsed(lambda: parse_tokens(data, "--tokens file"), ConfigError)


@target(seeds.token_entries, Form.JSON)
def token_entries(data: bytes) -> None:
    """Parse the file of tokens, certificates, issuers and quotas, with the content in JSON."""
    token_file(seeds.toml(data))


@target(seeds.urls)
def url(data: bytes) -> None:
    """Parse the URL of an issuer or of its keys."""
    is_safe_url(data.decode(errors="replace"))


@target(seeds.retention_entries, Form.JSON)
def retention_entries(data: bytes) -> None:
    """Parse the file of retention rules, with the content in JSON."""
    retention_file(seeds.toml(data))


@target(seeds.retention_files)
def retention_file(data: bytes) -> None:
    """Parse the file of retention rules."""
    parsed(lambda: parse_rules(data, "--retention-file file"), ConfigError)


@target(seeds.key_files)
def key_file(data: bytes) -> None:
    """Parse a key file, as the server and as an audit do."""
    text = data.decode("latin-1")
    parsed(lambda: local.parse_keys(text), ValueError)
    parsed(lambda: audit_keys.of_text(text, "tenant"), ValueError)


@target(seeds.bearer_tokens)
def bearer_token(data: bytes) -> None:
    """Check a token of an OpenID Connect issuer, in a call's metadata."""
    parsed(lambda: seeds.issuers().accept(data.decode("latin-1")), Reason.CREDENTIAL_INVALID)


@target(seeds.token_headers, Form.JSON)
def token_header(data: bytes) -> None:
    """Check the unsigned header of an OpenID Connect token."""
    content = base64.urlsafe_b64encode(data).decode().rstrip("=")
    bearer_token(f"{content}.{seeds.bearer_tokens()[0].decode().partition('.')[2]}".encode())


@target(seeds.claims, Form.JSON)
def claims(data: bytes) -> None:
    """Check the claims of a token: with the issuer's signature, and without one."""
    token = seeds.signed_token(data)
    parsed(lambda: seeds.issuers().accept(token), Reason.CREDENTIAL_INVALID)
    parsed(lambda: OidcIssuers().accept(token), Reason.CREDENTIAL_INVALID)


@target(seeds.key_sets, Form.JSON)
def issuer_keys(data: bytes) -> None:
    """Parse the keys that an issuer publishes."""
    content = parsed(lambda: json.loads(data), ValueError, RecursionError)
    parsed(lambda: usable_keys(content), InvalidAnswerError)


@target(seeds.embeddings, Form.JSON)
def embeddings(data: bytes) -> None:
    """Parse the answer of an embedder."""
    parsed(lambda: openai._read(data, 2), ValueError)


# --- requests over HTTP --------------------------------------------------------------------------


@target(seeds.json_requests, Form.JSON)
def json_request(data: bytes) -> None:
    """Parse a request in JSON; the request is the same after it is written and read again."""
    kind = checkpoint_service_pb2.SaveCheckpointRequest
    request = parsed(lambda: json_text._parse(kind, JsonText(data)), Reason.INVALID_FIELD)
    if request is not None:
        written = json_text._print(kind, request.SerializeToString())
        again = json_text._parse(kind, JsonText(written))
        same(
            again.SerializeToString(deterministic=True),
            request.SerializeToString(deterministic=True),
        )


# --- hand-offs -----------------------------------------------------------------------------------


@target(seeds.adoptions, Form.MESSAGE)
def adoption(data: bytes) -> None:
    """Parse a request to adopt a descriptor, up to the check of its signature."""
    kind = handoff_service_pb2.AdoptHandoffRequest
    request = parsed(lambda: parsed_request(kind, data), Reason.INVALID_FIELD)
    if request is None:
        return
    rules = handoffs.HandoffServicer.checks["AdoptHandoffRequest"]
    named = parsed(partial(_checked, request, rules), Reason.INVALID_FIELD)
    if named is not None:
        descriptor = lineage.Descriptor(
            *(getattr(named, field.name) for field in fields(lineage.Descriptor))
        )
        parsed(
            lambda: signing.check(descriptor, request.required_signers), Reason.SIGNATURE_REFUSED
        )
        bytes.fromhex(descriptor.key)
        same(lineage.decode_offered(lineage.encode_descriptor(descriptor)), (descriptor, ""))


def _checked(
    request: handoff_service_pb2.AdoptHandoffRequest, rules: validation.Check
) -> handoff_service_pb2.HandoffDescriptor:
    validation.check(request, rules)
    return request.descriptor


@target(seeds.descriptors, Form.JSON)
def descriptor(data: bytes) -> None:
    """Parse the descriptor of a hand-off as a client receives it."""
    read = parsed(lambda: read_descriptor(data), InvalidDescriptor)
    if read is not None:
        same(read_descriptor(read.to_json()), read)
