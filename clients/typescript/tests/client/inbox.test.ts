/** Inboxes: offers of hand-offs, against a real server. */

import { afterAll, beforeAll, expect, test } from "vitest";

import { Client, NotFound, PreconditionFailed, type OfferRecord } from "../../src/index.js";
import { all, failure, newThread, TestServer } from "../kit.js";

let server: TestServer;
let client: Client;

beforeAll(async () => {
  server = await TestServer.start();
  client = new Client(server.target);
});

afterAll(async () => {
  client.close();
  await server.remove();
});

test("an offer is watched, and adopted once", async () => {
  const thread = newThread();
  const toAgent = `agent of ${thread}`;
  await client.save(thread, { n: 1 });
  for (let n = 0; n < 2; n += 1) {
    await client.handoff(thread, { toAgent, expiresInMs: 3_600_000 });
  }
  const seen: OfferRecord[] = [];
  for await (const offer of client.watchHandoffs(toAgent)) {
    seen.push(offer);
    if (seen.length === 2) {
      break;
    }
  }
  const [first, second] = seen.map((offer) => offer.handoffId) as [string, string];
  expect(seen[0]).toMatchObject({ toAgent, state: "offered", closed: undefined });
  expect(seen[0]?.descriptor?.thread_id).toBe(thread);
  expect(seen[0]?.expires).toBeInstanceOf(Date);

  const requestId = `worker of ${first}`;
  const adoption = await client.adoptOffer(first, `${thread}-adopted`, { requestId });
  expect(await client.adoptOffer(first, `${thread}-adopted`, { requestId })).toEqual(adoption);
  const closed = await failure(client.adoptOffer(first));
  expect(closed).toBeInstanceOf(PreconditionFailed);
  expect(closed).toMatchObject({ reason: "HANDOFF_CLOSED" });

  expect(await client.withdrawHandoff(second)).toMatchObject({ state: "withdrawn" });
  expect(await failure(client.withdrawHandoff("unknown"))).toBeInstanceOf(NotFound);
  const offers = await all(client.listHandoffs({ toAgent, threadId: thread }));
  expect(offers.map((offer) => offer.state)).toEqual(["adopted", "withdrawn"]);
  expect(offers[0]?.adoptedThreadId).toBe(`${thread}-adopted`);
  expect(await all(client.listHandoffs({ toAgent, states: ["offered"] }))).toEqual([]);
});
