/**
 * A planner saves its steps while a reviewer watches it live; then a writer takes over.
 *
 *     tuskpoint-server &
 *     npm run build && node examples/hand-over.js
 *
 * The three could be on three machines: what goes from one to the other is a thread's name, and a
 * small JSON whose hash is all that the writer trusts.
 */

import { Client } from "tuskpoint";

const thread = `report-${crypto.randomUUID().slice(0, 8)}`;

/** Saves a step at a time, and hands the last one over. */
async function plan(client) {
  const steps = ["collect the figures", "compare the years", "write the summary"];
  for (const [index, step] of steps.entries()) {
    const saved = await client.save(
      thread,
      { plan: steps.slice(0, index + 1), done: index === steps.length - 1 },
      { summary: `Planned to ${step}.`, agentId: "planner", metadata: { step: index } },
    );
    console.log(`planner: saved ${saved.checkpointId}`);
  }
  return JSON.stringify(await client.handoff(thread, { toAgent: "writer" }));
}

/** Is told of each step as it is saved; leaves when the plan is done. */
async function review(client) {
  for await (const event of client.watch(thread, { kinds: ["checkpoint_saved"] })) {
    const { plan, done } = event.checkpoint.state;
    console.log(`reviewer: ${event.checkpoint.summary} (${plan.length} steps)`);
    if (done) {
      return;
    }
  }
}

/** Adopts the thread under a name of its own, once the hash is checked, and goes on. */
async function write(client, message) {
  const adoption = await client.adopt(message, `${thread}-writer`, {
    onProgress: ({ stage, fetchedBytes }) => console.log(`writer: ${stage}, ${fetchedBytes} bytes`),
  });
  const { state, lineage } = await client.load(adoption.newThreadId);
  await client.save(adoption.newThreadId, { ...state, text: "Sales rose." }, { agentId: "writer" });
  console.log(`writer: continues from ${lineage.adoptedFrom} with ${state.plan.length} steps`);
}

const client = new Client(); // what TUSKPOINT_TARGET says, else 127.0.0.1:7390
try {
  await client.save(thread, { plan: [], done: false }, { summary: "Began." });
  const [message] = await Promise.all([plan(client), review(client)]);
  await write(client, message);
} finally {
  client.close();
}
