/** Calls to a target that has never answered: how long they wait, and which error they report. */

import { createServer, type AddressInfo } from "node:net";

import { expect, onTestFinished, test } from "vitest";

import { AdminService } from "../../src/gen/tuskpoint/v1/admin_service_pb.js";
import { Client, Unavailable, type ConnectionOptions } from "../../src/index.js";
import { noAnswer } from "../../src/transport/status.js";
import { failure, TestServer } from "../kit.js";
import { scripted } from "./scripted.js";

/** Milliseconds that a loaded machine may add. */
const LATE_MS = 1_500;

type Call = [string, (client: Client) => Promise<unknown>];

const CALLS: Call[] = [
  ["info", (client) => client.info()],
  ["save", (client) => client.save("t", { n: 1 })],
  ["list", (client) => client.list("t").next()],
  ["watch", (client) => client.watch("t").next()],
];

/** Return an address where nothing listens. */
async function refusing(): Promise<string> {
  const server = await scripted(() => undefined);
  await server.close();
  return server.target;
}

/** Return an address that accepts connections and never sends anything. */
async function silent(): Promise<string> {
  const server = createServer();
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  onTestFinished(() => void server.close());
  return `127.0.0.1:${(server.address() as AddressInfo).port}`;
}

function calling(target: string, options: ConnectionOptions = {}): Client {
  const client = new Client({ target, ...options });
  onTestFinished(() => client.close());
  return client;
}

/** Collect the process warnings that name a target, with the time of each warning. */
function warningsOf(target: string): { readonly message: string; readonly at: number }[] {
  const found: { message: string; at: number }[] = [];
  const listen = (warning: Error) => {
    if (warning.name === "TuskPointWarning" && warning.message.includes(target)) {
      found.push({ message: warning.message, at: performance.now() });
    }
  };
  process.on("warning", listen);
  onTestFinished(() => void process.off("warning", listen));
  return found;
}

test.concurrent.each(
  [refusing, silent].flatMap((where) => CALLS.map((call) => [where.name, ...call, where] as const)),
)("%s: %s is reported after five seconds", async (how, _, call, where) => {
  const target = await where();
  const warnings = warningsOf(target);
  const started = performance.now();
  const error = await failure(call(calling(target)));
  const waitedMs = performance.now() - started;

  expect(error).toBeInstanceOf(Unavailable);
  const port = target.slice(target.indexOf(":") + 1);
  const answers = `no TuskPoint server answers at ${target}: start one with \`tuskpoint-server dev --port ${port}\``;
  expect(error.message).toContain(answers);
  expect(error.message).toContain(how === "refusing" ? "ECONNREFUSED" : "no answer within 5.");
  expect(waitedMs).toBeGreaterThanOrEqual(4_990);
  expect(waitedMs).toBeLessThan(5_000 + LATE_MS);
  expect(warnings.map((one) => one.message)).toEqual([
    expect.stringContaining(`still waiting: ${answers}`),
  ]);
  const warnedMs = (warnings[0]?.at ?? 0) - started;
  expect(warnedMs).toBeGreaterThanOrEqual(1_990);
  expect(warnedMs).toBeLessThan(2_000 + LATE_MS);
});

test("a server that starts within that time is reached, and calls keep their order", async () => {
  const server = await TestServer.start();
  onTestFinished(() => server.remove());
  await server.stop();
  const client = calling(server.target);
  const saves = [1, 2, 3].map((n) => client.save("order", { n }, { timeoutMs: 60_000 }));
  await new Promise((resolve) => setTimeout(resolve, 1_000));
  await server.restart();

  expect((await Promise.all(saves)).map((one) => one.seq)).toEqual([1n, 2n, 3n]);
  expect((await client.load("order")).state).toEqual({ n: 3 });
});

test("a target that answered before is waited for until the timeout", async () => {
  const server = await TestServer.start();
  onTestFinished(() => server.remove());
  const first = new Client(server.target);
  await first.info();
  first.close();
  await server.stop();
  const warnings = warningsOf(server.target);
  let isSettled = false;
  const asking = calling(server.target)
    .info()
    .finally(() => {
      isSettled = true;
    });
  await new Promise((resolve) => setTimeout(resolve, 5_000 + LATE_MS));
  expect(isSettled).toBe(false);
  await server.restart();

  expect((await asking).version).not.toBe("");
  expect(warnings).toEqual([]);
});

test("a named timeout counts for the first answer too", async () => {
  const target = await refusing();
  const cases: [ConnectionOptions, number | undefined][] = [
    [{ timeoutMs: 700 }, undefined],
    [{}, 700],
    [{ timeoutMs: 9_000 }, 700],
  ];
  for (const [options, timeoutMs] of cases) {
    const started = performance.now();
    const error = await failure(calling(target, options).info({ timeoutMs }));
    const waitedMs = performance.now() - started;

    expect(error).toBeInstanceOf(Unavailable);
    expect(waitedMs).toBeGreaterThanOrEqual(650);
    expect(waitedMs).toBeLessThan(700 + LATE_MS);
  }
});

test("a signal and a close end the wait", async () => {
  const target = await silent();
  const controller = new AbortController();
  const reason = new Error("enough");
  const client = calling(target);
  const aborted = client.info({ signal: controller.signal });
  const waiting = failure(client.info());
  setTimeout(() => controller.abort(reason), 50);

  await expect(aborted).rejects.toBe(reason);
  client.close();
  expect((await waiting).message).toContain("this client is closed");
});

test("another service that answers is an answer", async () => {
  const other = await scripted(() => undefined);
  onTestFinished(other.close);
  const started = performance.now();
  const error = await failure(calling(other.target).info());

  expect(error.status).toBe("UNIMPLEMENTED");
  expect(performance.now() - started).toBeLessThan(2_000);
});

test("a slow call is not silence", async () => {
  const slow = await scripted((router) =>
    router.service(AdminService, {
      getServerInfo: async () => {
        await new Promise((resolve) => setTimeout(resolve, 2_500));
        return { version: "9.9" };
      },
    }),
  );
  onTestFinished(slow.close);
  const warnings = warningsOf(slow.target);

  expect((await calling(slow.target).info()).version).toBe("9.9");
  expect(warnings).toEqual([]);
});

test.each([
  ["127.0.0.1:7390", "start one with `tuskpoint-server dev`, or set"],
  ["localhost:7400", "start one with `tuskpoint-server dev --port 7400`, or set"],
  ["agents.example:7390", "check that it runs and can be reached from here, or set"],
  ["127.0.0.1:1,127.0.0.1:2", "start one with `tuskpoint-server dev`, or set"],
])("the remedy fits %s", (target, says) => {
  const message = noAnswer(target, "refused");

  expect(message).toContain(`no TuskPoint server answers at ${target}: ${says}`);
  expect(message.endsWith("(refused)")).toBe(true);
});
