/** Replays and watches, also across a kill and a drain of the server. */

import { afterAll, beforeAll, expect, test } from "vitest";

import {
  Client,
  CursorCompacted,
  InvalidRequest,
  NotFound,
  type ThreadEvent,
} from "../../src/index.js";
import { all, take, TestServer } from "../kit.js";

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

/** Return the values of a channel in the events of a watch. */
function steps(events: readonly ThreadEvent[]): unknown[] {
  return events.map((event) => event.checkpoint?.state["n"]);
}

test("a watch yields what was, then what happens, and continues from a cursor", async () => {
  const first = await client.save("watched", { n: 1 });
  await client.setLabel("watched", "good");
  const watch = client.watch("watched", { kinds: ["checkpoint_saved", "label_set"] });

  const events = [(await watch.next()).value, (await watch.next()).value] as ThreadEvent[];
  const waiting = watch.next();
  await client.save("watched", { n: 2 });
  events.push((await waiting).value as ThreadEvent);
  await watch.return(undefined);
  const rest = await take(1, client.watch("watched", { cursor: events[1]?.cursor }));
  const entries = await take(1, client.watch("watched", { view: "entry" }));

  expect(events.map((one) => one.kind)).toEqual([
    "checkpoint_saved",
    "label_set",
    "checkpoint_saved",
  ]);
  expect(events.map((one) => one.seq)).toEqual([1n, 2n, 3n]);
  expect(events[0]?.checkpoint?.checkpointId).toBe(first.checkpointId);
  expect(events[0]?.time).toBeInstanceOf(Date);
  expect(steps(rest)).toEqual([2]);
  expect(entries[0]?.checkpoint?.channels.size).toBe(0);
});

test("progress is yielded on request", async () => {
  await client.save("quiet", { n: 1 });

  const kinds = ["checkpoint_saved"] as const;
  const events = await take(2, client.watch("quiet", { kinds, progressMs: 1_000 }));

  expect(events.map((one) => one.kind)).toEqual(["checkpoint_saved", "progress"]);
  expect(events[1]).toMatchObject({ isProgress: true, checkpoint: undefined });
});

test("a cursor that is none, or of another thread, is refused", async () => {
  await client.save("one", { n: 1 });
  const cursor = (await take(1, client.watch("one")))[0]?.cursor;

  await client.save("other", { n: 1 });

  await expect(take(1, client.watch("one", { cursor: Buffer.from("no") }))).rejects.toThrow(
    InvalidRequest,
  );
  await expect(take(1, client.watch("other", { cursor }))).rejects.toThrow(InvalidRequest);
  await expect(all(client.replay("no such thread"))).rejects.toThrow(NotFound);
  const compacted = new CursorCompacted("", { metadata: { oldest_cursor: "AQI=" } });
  expect([...compacted.oldestCursor]).toEqual([1, 2]);
});

test("a watch survives a kill and a drain, without gap or duplicate", async () => {
  const events: ThreadEvent[] = [];
  await client.save("survivor", { n: 0 });
  const watching = (async () => {
    for await (const event of client.watch("survivor")) {
      events.push(event);
      if (event.checkpoint?.state["n"] === 4) {
        return;
      }
    }
  })();
  const writer = new Client(server.target);

  await writer.save("survivor", { n: 1 });
  let n = 2;
  for (const signal of ["SIGKILL", "SIGTERM"] as const) {
    await server.stop(signal);
    await server.restart();
    // The writer reconnects to the server too.
    await writer.save("survivor", { n });
    n += 1;
  }
  await writer.save("survivor", { n });
  await watching;
  writer.close();

  const saved = events.filter((one) => one.kind === "checkpoint_saved");
  expect(steps(saved)).toEqual([0, 1, 2, 3, 4]);
  const changes = events.filter((one) => one.kind !== "certified");
  expect(changes.map((one) => one.seq)).toEqual(changes.map((_, index) => BigInt(index) + 1n));
});

test("a replay continues after a cut, in the middle of a large value too", async () => {
  const padding = "x".repeat(1_500_000);
  const ids: string[] = [];
  for (let n = 0; n < 3; n += 1) {
    ids.push((await client.save("long", { n, padding: padding + String(n) })).checkpointId);
  }
  const replay = client.replay("long");
  const first = await replay.next();

  await server.stop("SIGKILL");
  await server.restart();
  const rest = await all(replay);

  expect(first.done).toBe(false);
  const records = first.done ? rest : [first.value, ...rest];
  expect(records.map((one) => one.checkpointId)).toEqual(ids);
  expect(records.map((one) => one.state["padding"] === padding + String(one.state["n"]))).toEqual([
    true,
    true,
    true,
  ]);
});

test("a replay is bounded by IDs and by namespace", async () => {
  const ids: string[] = [];
  for (let n = 0; n < 4; n += 1) {
    ids.push((await client.save("bounded", { n })).checkpointId);
  }
  await client.save("bounded", { n: "inner" }, { checkpointNs: "child:1" });

  const [, fromCheckpointId, toCheckpointId] = ids;
  const middle = await all(client.replay("bounded", { fromCheckpointId, toCheckpointId }));
  const root = await all(client.replay("bounded", { checkpointNs: "" }));
  const everything = await all(client.replay("bounded"));

  expect(middle.map((one) => one.state["n"])).toEqual([1, 2]);
  expect(root.map((one) => one.state["n"])).toEqual([0, 1, 2, 3]);
  expect(everything.map((one) => one.checkpointNs)).toContain("child:1");
});
