import { create, type MessageInitShape } from "@bufbuild/protobuf";
import { type Checkpoint, CheckpointSchema } from "@contract/checkpoint_pb.js";
import type { StepSchema } from "@contract/step_pb.js";
import { expect, test } from "vitest";
import { graphName, titleOf } from "../../src/checkpoint/step_title.ts";

interface Fields {
  summary?: string;
  step?: MessageInitShape<typeof StepSchema>;
  lineage?: { rolledBackFrom: string };
}

function checkpoint(fields: Fields, metadata: Record<string, unknown> = {}): Checkpoint {
  const metadataJson = new TextEncoder().encode(JSON.stringify(metadata));
  const ref = { checkpointId: "1f1e931f-558f-6db8" };
  return create(CheckpointSchema, { ref, metadataJson, ...fields });
}

function titled(fields: Fields, metadata: Record<string, unknown> = {}): string {
  return titleOf(checkpoint(fields, metadata));
}

test("a step is titled by the nodes that ran", () => {
  const step = { nodes: ["a", "b"], changedChannels: ["x"] };
  expect(titled({ step, summary: "a ran" }, { source: "loop", step: 3 })).toBe("a, b");
  expect(titled({ step: { nodes: ["\u202eevil\n"] } })).toBe("\\u202eevil");
});

test("without nodes, a checkpoint of LangGraph is titled by its source", () => {
  const summary = "step -1: input received";
  expect(titled({ step: {}, summary }, { source: "input", step: -1 })).toBe("Input");
  expect(titled({ step: {}, summary }, { source: "update", step: 4 })).toBe("Update");
  expect(titled({ step: {}, summary }, { source: "fork", step: 4 })).toBe("Fork");
  const start = { changedChannels: ["batch"] };
  expect(titled({ step: start, summary }, { source: "loop", step: 0 })).toBe("Start");
});

test("a step without nodes that follows an input is the start of a run", () => {
  const step = checkpoint(
    { step: { changedChannels: ["x"] }, summary: "s" },
    { source: "loop", step: 5 },
  );
  expect(titleOf(step, checkpoint({}, { source: "input", step: 4 }))).toBe("Start");
  expect(titleOf(step, checkpoint({}, { source: "loop", step: 4 }))).toBe("s");
  expect(titleOf(step)).toBe("s");
});

test("a rollback is not titled by the step that it goes back to", () => {
  const lineage = { rolledBackFrom: "t:1" };
  expect(titled({ step: {}, lineage, summary: "a ran" }, { source: "loop", step: 3 })).toBe(
    "Rollback",
  );
});

test("otherwise a checkpoint is titled by its summary, its step or its ID", () => {
  expect(titled({ step: {}, summary: "two\nlines" })).toBe("two lines");
  expect(titled({ summary: "read" }, { source: "update" })).toBe("read");
  expect(titled({ summary: "values are gone" }, { source: "loop", step: 7 })).toBe(
    "values are gone",
  );
  expect(titled({}, { source: "loop", step: 7 })).toBe("Step 7");
  expect(titled({})).toBe("1f1e931f…6db8");
  expect(titled({}, { source: { step: 1 }, step: ["constructor"] })).toBe("1f1e931f…6db8");
});

test("a subgraph is named by the nodes that lead to it", () => {
  expect(graphName("")).toBe("");
  expect(graphName("plan:1f-2|critic:3")).toBe("plan › critic");
});
