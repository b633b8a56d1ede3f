import { create } from "@bufbuild/protobuf";
import { CheckpointSchema, Durability } from "@contract/checkpoint_pb.js";
import { ChannelSchema, PendingWriteSchema, type Version } from "@contract/value_pb.js";
import { expect, test } from "vitest";
import { editable, isOwn, nextVersion } from "../../src/actions/edit/editable_value.ts";
import { refusalOf, saveRequest } from "../../src/actions/edit/save_request.ts";

const HUMAN = '"$type":"langchain_core.messages.human.HumanMessage"';

function text(view: string, type = "msgpack"): unknown {
  const found = editable(view, type);
  return "text" in found ? JSON.parse(found.text) : found.refusal;
}

function channel(name: string, kind: Version["kind"]) {
  return create(ChannelSchema, { name, version: { kind } });
}

test("plain values are edited as they are", () => {
  expect(editable('{"a":10.0}', "msgpack")).toEqual({ text: '{\n  "a": 10.0\n}', messages: false });
});

test("a key that an agent began with a dollar sign gets its own name back", () => {
  expect(text('{"$$ref":1,"$$$x":{"$$y":2}}')).toEqual({ $ref: 1, $$x: { $y: 2 } });
});

test("what JSON cannot hold is refused, with its place", () => {
  expect(text('{"a":[{"$type":"builtins.set","$value":[1]}]}')).toMatch(
    /^The part \/a\/0 is an object of Python/,
  );
  expect(text('{"$opaque":"pickle","$size":12}')).toMatch(/^The value is not opened/);
  expect(text('{"$delta":[],"$seed":1}')).toMatch(/delta channel/);
  expect(text('{"a":{"$int":"9007199254740993"}}')).toMatch(/large integer/);
  expect(text('{"a":{"$later":1}}')).toMatch(/unknown here/);
  expect(text(JSON.stringify("x".repeat(1024 ** 2)))).toMatch(/larger than 1 MiB/);
});

test("a message becomes an lc object without its nulls", () => {
  const view = `[{${HUMAN},"content":"hi","type":"human","name":null,"id":"1","n":1.0}]`;
  const found = editable(view, "msgpack");
  expect("text" in found && found.messages).toBe(true);
  expect("text" in found && found.text).toContain('"n": 1.0');
  expect(text(view)).toEqual([
    {
      lc: 1,
      type: "constructor",
      id: ["langchain_core", "messages", "HumanMessage"],
      kwargs: { content: "hi", id: "1", n: 1 },
    },
  ]);
});

test("a message with an object of Python in it is refused, and so is another class", () => {
  expect(text(`[{${HUMAN},"content":{"$bytes":"AA=="}}]`)).toMatch(
    /^The part \/0\/content is bytes/,
  );
  expect(text(`[{${HUMAN},"content":{${HUMAN}}}]`)).toMatch(/another message/);
  expect(text('[{"$type":"app.messages.HumanMessage","content":1}]')).toMatch(/object of Python/);
});

test("an lc key of a dictionary is refused, unless the value was saved as JSON", () => {
  expect(text('{"lc":1}')).toMatch(/"lc"/);
  expect(text('{"lc":1}', "json")).toEqual({ lc: 1 });
});

test("the next version is above all others and of their kind", () => {
  expect(nextVersion([channel("a", { case: "integer", value: 7n })])).toEqual({
    case: "integer",
    value: 8n,
  });
  expect(nextVersion([channel("a", { case: "number", value: 2.5 })])).toEqual({
    case: "number",
    value: 3,
  });
  const old = `${"9".padStart(32, "0")}.5`;
  const next = nextVersion([
    channel("a", { case: "text", value: old }),
    channel("b", { case: "text", value: `${"3".padStart(32, "0")}.9` }),
  ]);
  expect(next?.value).toMatch(/^0{30}10\.\d{16}$/);
  expect(String(next?.value) > old).toBe(true);
});

test("versions that cannot be counted up have no next one", () => {
  expect(nextVersion([])).toBeUndefined();
  expect(nextVersion([channel("a", { case: "text", value: "v1" })])).toBeUndefined();
  expect(nextVersion([channel("a", { case: "text", value: "9.1" })])).toBeUndefined();
  const mixed = [
    channel("a", { case: "integer", value: 1n }),
    channel("b", { case: "text", value: "1" }),
  ];
  expect(nextVersion(mixed)).toBeUndefined();
});

test("channels of the graph itself are not edited", () => {
  const names = ["plan", "branch:to:ask", "__start__", "join:a+b:c"];
  expect(names.filter((name) => isOwn(create(ChannelSchema, { name })))).toEqual(names.slice(1));
});

const CHECKPOINT = create(CheckpointSchema, {
  ref: { threadId: "t", checkpointNs: "", checkpointId: "c1" },
  state: {
    schemaVersion: 4,
    channels: [
      {
        name: "plan",
        version: { kind: { case: "integer", value: 3n } },
        content: { case: "value", value: { type: "msgpack", data: new Uint8Array([1]) } },
      },
      {
        name: "note",
        version: { kind: { case: "integer", value: 5n } },
        content: { case: "value", value: { type: "msgpack", data: new Uint8Array([2]) } },
      },
      {
        name: "gone",
        version: { kind: { case: "integer", value: 1n } },
        content: { case: "empty", value: {} },
      },
    ],
    versionsSeen: { ask: { channels: { plan: { kind: { case: "integer", value: 3n } } } } },
    deltaChannels: ["log"],
    updatedChannels: { names: ["note"] },
  },
  metadataJson: new TextEncoder().encode(
    '{"source":"loop","step":4,"parents":{"":"r"},"run_id":"x","counters_since_delta_snapshot":{"log":[1,2]}}',
  ),
});

test("an edit is a new checkpoint with one other value", () => {
  const edit = { channel: "plan", value: "[1]", durability: Durability.JOURNALED };
  const request = saveRequest(CHECKPOINT, { ...edit, expectedHead: "c1" }, new Date(0));
  const saved = request.checkpoint;
  expect(saved?.ref).toEqual({ threadId: "t", checkpointNs: "", checkpointId: "" });
  expect(saved?.parentCheckpointId).toBe("c1");
  expect(request.expectedHead).toBe("c1");
  expect(saved?.state?.ts).toBe("1970-01-01T00:00:00.000+00:00");
  const channels = saved?.state?.channels ?? [];
  expect(channels.map((one) => one.content?.case)).toEqual(["value", "inherit", "empty"]);
  expect(channels[0]?.version?.kind).toEqual({ case: "integer", value: 6n });
  expect(channels[1]?.version?.kind).toEqual({ case: "integer", value: 5n });
  expect(saved?.state?.versionsSeen).toEqual(CHECKPOINT.state?.versionsSeen);
  expect(saved?.state?.updatedChannels).toBeUndefined();
  expect(JSON.parse(new TextDecoder().decode(saved?.metadataJson))).toEqual({
    source: "update",
    step: 5,
    parents: { "": "r" },
    counters_since_delta_snapshot: { log: [1, 3] },
  });
});

test("an edit is refused where writes wait on a delta channel", () => {
  expect(refusalOf(CHECKPOINT)).toBeUndefined();
  const write = create(PendingWriteSchema, { taskId: "t", channel: "log" });
  const waiting = create(CheckpointSchema, { ...CHECKPOINT, writes: [write] });
  expect(refusalOf(waiting)).toContain("delta channel");
});
