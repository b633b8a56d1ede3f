"""Steps of the interop scenarios, run with the Python client: see `scenarios/README.md`."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import grpc
from google.protobuf import descriptor_pool, json_format, message_factory
from google.protobuf.descriptor import MethodDescriptor

from tests.interop.scenarios.values import Json
from tuskpoint import Client
from tuskpoint._transport.status import from_rpc_error

_MESSAGE_BYTES = 8 * 2**20
_WRITER = "writer"
_NOBODY = "nobody"
_DURABILITIES: dict[str, Literal["journaled", "certified"]] = {
    "JOURNALED": "journaled",
    "CERTIFIED": "certified",
}


@dataclass(frozen=True, slots=True)
class World:
    """Addresses and credentials for a client.

    Attributes:
        client: Name of the client that plays.
        target: Address of the server, which uses TLS.
        ca_file: Certificate of the authority that signed the server's certificate.
        tokens: Token of each identity.
        dead_target: An address without a listener.
    """

    client: str
    target: str
    ca_file: str
    tokens: dict[str, str]
    dead_target: str

    @classmethod
    def read(cls, path: Path) -> World:
        """Read a world from a file."""
        return cls(**json.loads(path.read_text(encoding="utf-8")))


@dataclass(slots=True)
class Player:
    """Makes the calls of steps."""

    world: World
    _clients: dict[str, Client] = field(default_factory=dict)
    _channels: list[grpc.Channel] = field(default_factory=list)

    def close(self) -> None:
        """Close all connections."""
        for client in self._clients.values():
            client.close()
        for channel in self._channels:
            channel.close()

    # --- calls of the contract ------------------------------------------------------------

    def rpc(self, step: Json, identity: str) -> Json:
        """Make a call of the contract, and return its answer or answers as JSON."""
        name = step["rpc"].replace("/", ".")
        method = descriptor_pool.Default().FindMethodByName(f"tuskpoint.v1.{name}")
        request_class = message_factory.GetMessageClass(method.input_type)
        messages = step["requests"] if method.client_streaming else [step["request"]]
        requests = [json_format.ParseDict(message, request_class()) for message in messages]
        deadline_s = step["deadline_ms"] / 1000 if "deadline_ms" in step else 60.0
        try:
            return self._answers(method, requests, identity, deadline_s, step.get("take"))
        except grpc.RpcError as error:
            raise from_rpc_error(error, self.world.target) from None

    def _answers(
        self,
        method: MethodDescriptor,
        requests: list[Any],
        identity: str,
        deadline_s: float,
        take: int | None,
    ) -> Json:
        path = f"/{method.containing_service.full_name}/{method.name}"
        answer_class = message_factory.GetMessageClass(method.output_type)
        shape = ("stream_" if method.client_streaming else "unary_") + (
            "stream" if method.server_streaming else "unary"
        )
        call = getattr(self._channel(), shape)(
            path,
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=answer_class.FromString,
        )
        sent = iter(requests) if method.client_streaming else requests[0]
        answers = call(sent, timeout=deadline_s, metadata=self._metadata(identity))
        if not method.server_streaming:
            return _as_json(answers)
        result = [_as_json(answer) for answer in islice(answers, take)]
        if take is not None:
            answers.cancel()
        return result

    def _channel(self) -> grpc.Channel:
        if not self._channels:
            credentials = grpc.ssl_channel_credentials(Path(self.world.ca_file).read_bytes())
            options = [("grpc.max_receive_message_length", _MESSAGE_BYTES)]
            self._channels.append(
                grpc.secure_channel(self.world.target, credentials, options=options)
            )
        return self._channels[0]

    def _metadata(self, identity: str) -> list[tuple[str, str]]:
        if identity == _NOBODY:
            return []
        return [("authorization", f"Bearer {self.world.tokens[identity]}")]

    # --- calls of the client's own layer --------------------------------------------------

    def do(self, step: Json, identity: str) -> Json:
        """Make a call of the client's own layer, and return its result as JSON."""
        action: Callable[..., Json] = getattr(self, f"_do_{step['do']}")
        return action(self._client(identity), **step["with"])

    def _client(self, identity: str) -> Client:
        if identity not in self._clients:
            token = None if identity == _NOBODY else self.world.tokens[identity]
            self._clients[identity] = Client(
                self.world.target, token=token, ca_file=self.world.ca_file
            )
        return self._clients[identity]

    def _do_save(
        self,
        client: Client,
        thread_id: str,
        state: dict[str, Any],
        durability: Literal["JOURNALED", "CERTIFIED"] = "JOURNALED",
        parent_id: str | None = None,
        **settings: Any,
    ) -> Json:
        checkpoint_id = client.save(
            thread_id, state, parent=parent_id, durability=_DURABILITIES[durability], **settings
        )
        reached = client.load(thread_id, checkpoint_id).durability
        return {"checkpoint_id": checkpoint_id, "durability": str(reached).upper()}

    def _do_load(self, client: Client, thread_id: str, checkpoint_id: str | None = None) -> Json:
        record = client.load(thread_id, checkpoint_id)
        return {
            "thread_id": record.thread_id,
            "checkpoint_id": record.checkpoint_id,
            "parent_id": record.parent_checkpoint_id,
            "state": record.state,
            "metadata": record.metadata,
            "summary": record.summary,
        }

    def _do_list(self, client: Client, thread_id: str, limit: int | None = None) -> Json:
        return [
            {
                "checkpoint_id": record.checkpoint_id,
                "parent_id": record.parent_checkpoint_id,
                "summary": record.summary,
            }
            for record in client.list(thread_id, limit=limit)
        ]

    def _do_replay(self, client: Client, thread_id: str) -> Json:
        return [
            {"checkpoint_id": record.checkpoint_id, "state": record.state}
            for record in client.replay(thread_id)
        ]

    def _do_watch(self, client: Client, thread_id: str, take: int, cursor: str = "") -> Json:
        events = []
        with _closing(client.watch(thread_id, cursor=bytes.fromhex(cursor))) as watch:
            for event in watch:
                if not event.is_progress:
                    about = event.checkpoint.checkpoint_id if event.checkpoint else ""
                    events.append({"kind": event.kind.upper(), "checkpoint_id": about})
                if len(events) == take:
                    return {"events": events, "cursor": event.cursor.hex()}
        raise AssertionError("a watch does not end by itself")

    def _do_answer(
        self, client: Client, thread_id: str, value: Json, checkpoint_id: str | None = None
    ) -> Json:
        return {"checkpoint_id": client.answer(thread_id, value, checkpoint_id=checkpoint_id)}

    def _do_handoff(
        self,
        client: Client,
        thread_id: str,
        checkpoint_id: str | None = None,
        to_agent: str = "",
    ) -> Json:
        descriptor = client.handoff(thread_id, checkpoint_id, to_agent=to_agent)
        return json.loads(descriptor.to_json())

    def _do_adopt(self, client: Client, descriptor: dict[str, str], new_thread_id: str) -> Json:
        stages: list[str] = []
        adoption = client.adopt(
            descriptor,
            new_thread_id,
            on_progress=lambda progress: stages.append(progress.stage.upper()),
        )
        return {
            "new_thread_id": adoption.new_thread_id,
            "checkpoint_id": adoption.checkpoint_id,
            "verified": adoption.verified,
            "stages": stages,
        }

    def _do_search(
        self,
        client: Client,
        query: str,
        thread_id: str | None = None,
        limit: int = 10,
        filter: dict[str, Any] | None = None,
    ) -> Json:
        return [
            {
                "thread_id": record.thread_id,
                "checkpoint_id": record.checkpoint_id,
                "summary": record.summary,
            }
            for record in client.search_history(
                query, limit, thread_id=thread_id, filter_metadata=filter
            )
        ]

    def _do_delete(self, client: Client, thread_id: str) -> Json:
        return {"deleted": client.delete(thread_id)}

    def _do_connect(self, client: Client, target: str, ca: bool = True) -> Json:
        ca_file = self.world.ca_file if ca else None
        token = self.world.tokens[_WRITER]
        with Client(target, token=token, ca_file=ca_file, tls=True, timeout_s=2) as other:
            return {"version": other.info().version}


def _as_json(message: Any) -> Json:
    return json_format.MessageToDict(message, preserving_proto_field_name=True)


@contextmanager
def _closing(stream: Any) -> Iterator[Any]:
    try:
        yield stream
    finally:
        stream.close()
