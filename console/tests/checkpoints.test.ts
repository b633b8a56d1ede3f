import { create } from "@bufbuild/protobuf";
import { type Checkpoint, CheckpointSchema } from "@contract/checkpoint_pb.js";
import { expect, test } from "vitest";
import { type Framed, onlyCheckpoint, wholeCheckpoints } from "../src/server/checkpoints.ts";

type Chunk = Extract<Framed["frame"], { case: "chunk" }>["value"];

async function* stream(...frames: Framed["frame"][]): AsyncIterable<Framed> {
  for (const frame of frames) {
    yield { frame };
  }
}

/** Return a checkpoint with large values of these sizes in channels, the last value in a write. */
function announced(...sizes: number[]): Framed["frame"] {
  const holders = sizes.map((size, index) => ({
    name: `c${index}`,
    channel: `c${index}`,
    content: { case: "large" as const, value: { type: "json", sizeBytes: BigInt(size) } },
  }));
  const value = create(CheckpointSchema, {
    state: { channels: holders.slice(0, -1) },
    writes: holders.slice(-1),
  });
  return { case: "checkpoint", value };
}

function chunk(valueIndex: number, offset: number, text: string): Framed["frame"] {
  const data = new TextEncoder().encode(text);
  const value = { valueIndex, offset: BigInt(offset), data } as Chunk;
  return { case: "chunk", value };
}

function texts(checkpoint: Checkpoint): string[] {
  return [...(checkpoint.state?.channels ?? []), ...checkpoint.writes].map(({ content }) =>
    content.case === "value" ? new TextDecoder().decode(content.value.data) : "missing",
  );
}

test("chunks are put together in the values they belong to", async () => {
  const frames = stream(
    announced(4, 0, 2),
    chunk(0, 0, "ab"),
    chunk(0, 2, "cd"),
    chunk(2, 0, "ef"),
    announced(0),
  );
  const found: string[][] = [];
  for await (const checkpoint of wholeCheckpoints(frames)) {
    found.push(texts(checkpoint));
  }
  expect(found).toEqual([["abcd", "", "ef"], [""]]);
});

test.each<[string, Framed["frame"][]]>([
  ["a chunk at another position", [announced(4), chunk(0, 2, "ab"), chunk(0, 2, "cd")]],
  ["a chunk of another value", [announced(4), chunk(1, 0, "ab")]],
  ["more bytes than announced", [announced(1), chunk(0, 0, "ab")]],
  ["an early end", [announced(4), chunk(0, 0, "ab")]],
  ["a checkpoint inside another", [announced(4), announced(0)]],
  ["an empty message", [{ case: undefined }]],
  ["nothing", []],
])("a stream with %s is refused", async (_, frames) => {
  await expect(onlyCheckpoint(stream(...frames))).rejects.toThrow("breaks the contract");
});
