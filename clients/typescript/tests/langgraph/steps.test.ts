/** The client returns the steps of graphs, and what each thread waits for. */

import { AIMessage, type StandardMessageStructure } from "@langchain/core/messages";
import { interrupt } from "@langchain/langgraph";
import { afterAll, beforeAll, expect, test } from "vitest";

import { Client, InvalidRequest, type StepRecord, type ViewName } from "../../src/index.js";
import { TuskPointSaver } from "../../src/langgraph/index.js";
import { all, take, TestServer } from "../kit.js";
import { planningGraph } from "./graphs.js";

let server: TestServer;
let client: Client;

const PLAN = new AIMessage<StandardMessageStructure>({
  content: "A plan.",
  usage_metadata: { input_tokens: 12, output_tokens: 3, total_tokens: 15 },
});

const ask = () => ({ log: [interrupt({ question: "Publish?" })] });
const fail = () => {
  throw new TypeError("no paper");
};

/** The step of the thread "asking" that wrote the plan. */
const ASKING: StepRecord = {
  nodes: ["plan"],
  changedChannels: ["log"],
  nextNodes: ["last"],
  questions: [
    {
      interruptId: expect.stringMatching(/^[0-9a-f]{32}$/),
      node: "last",
      text: "Publish?",
      answered: false,
    },
  ],
  failures: [],
  tokens: { inputTokens: 12n, outputTokens: 3n },
};

beforeAll(async () => {
  server = await TestServer.start();
  client = new Client(server.target);
  const saver = new TuskPointSaver(server.target);
  const run = (thread_id: string, nodes: Parameters<typeof planningGraph>[2]) =>
    planningGraph(saver, PLAN, nodes).invoke(
      { log: [] },
      // A checkpoint is saved before the writes of its tasks.
      { configurable: { thread_id }, durability: "sync" },
    );
  await run("asking", { last: ask });
  await run("asking twice", { one: ask, two: ask });
  await expect(run("failing", { last: fail })).rejects.toThrow("no paper");
  saver.close();
});

afterAll(async () => {
  client?.close();
  await server?.remove();
});

test("a step is in every read with the view of steps, and in no other", async () => {
  const view = "step";
  const latest = await client.load("asking", { view });
  expect(latest.step).toEqual(ASKING);
  expect([latest.channels.size, latest.writes]).toEqual([0, []]);

  const listed = await all(client.list("asking", { view }));
  expect(listed[0]).toEqual(latest);
  expect(listed.map((record) => record.step?.nodes)).toEqual([["plan"], [], []]);
  const oldestFirst = [...listed].reverse();
  expect(await all(client.history("asking", { view }))).toEqual(oldestFirst);
  expect(await all(client.replay("asking", { view }))).toEqual(oldestFirst);

  for (const other of ["entry", "full", "json"] satisfies ViewName[]) {
    expect((await client.load("asking", { view: other })).step).toBeUndefined();
  }
});

test("a watch has the step of saved checkpoints, and of those that tasks write to", async () => {
  const kinds = ["checkpoint_saved", "writes_saved"] as const;
  const events = await take(6, client.watch("asking", { kinds, view: "step" }));
  const saved = events.filter((event) => event.kind === "checkpoint_saved");
  expect(saved.map((event) => event.checkpoint?.step?.nodes)).toEqual([[], [], ["plan"]]);
  expect(events.at(-1)).toMatchObject({ kind: "writes_saved", checkpoint: { step: ASKING } });
});

test("a step is not read from the blob store", async () => {
  const reading = client.load("asking", { view: "step", source: "blob" });
  await expect(reading).rejects.toThrow(InvalidRequest);
});

test("each of several questions has the node of its task", async () => {
  const { step } = await client.load("asking twice", { view: "step" });
  expect(step?.nextNodes).toEqual(["one", "two"]);
  expect(step?.questions.map(({ node, text }) => [node, text])).toEqual([
    ["one", "Publish?"],
    ["two", "Publish?"],
  ]);
});

test("a thread says what it waits for, or why it failed", async () => {
  const [asking, , failing] = await all(client.listThreads());
  expect(asking).toMatchObject({
    question: ASKING.questions[0],
    failure: undefined,
    checkpointCount: 3n,
    summary: "step 1: plan ran; changed log; next last",
  });
  expect(failing).toMatchObject({
    question: undefined,
    failure: { node: "last", type: "TypeError", message: "no paper" },
  });
  expect(await client.getThread("asking")).toMatchObject({
    question: asking?.question,
    summary: asking?.summary,
  });
  expect((await client.load("failing", { view: "step" })).step?.failures).toEqual([
    failing?.failure,
  ]);
});

test("a server tells its port", async () => {
  expect((await client.info()).grpcPort).toBe(Number(server.target.split(":").at(-1)));
});
