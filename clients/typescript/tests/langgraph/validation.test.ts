/**
 * LangGraph.js's own validation of checkpointers, complete.
 *
 * Each saver of the suite is a tenant of one server, so listing all threads returns only the
 * saver's own threads.
 */

import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";

import { deltaChannelHistoryTests, validate } from "@langchain/langgraph-checkpoint-validation";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from "vitest";

import { TuskPointSaver } from "../../src/langgraph/index.js";
import { makeToken, TestServer } from "../kit.js";

/** Number of savers that the suite creates: 31 for its default tests, 8 for delta channels. */
const SAVERS = 39;

const tokens = Array.from({ length: SAVERS }, (_, index) =>
  makeToken(`saver-${index}`, `tenant-${index}`, "read", "write"),
);
const unused = tokens.map(({ token }) => token);
let directory: string;
let server: TestServer;

beforeAll(async () => {
  directory = await mkdtemp(join(tmpdir(), "tuskpoint-validation-"));
  const path = join(directory, "tokens.toml");
  await writeFile(path, tokens.map(({ entry }) => entry).join("\n"));
  server = await TestServer.start("--tokens", path);
});

afterAll(async () => {
  await server?.remove();
  await rm(directory, { recursive: true });
});

const initializer = {
  checkpointerName: "TuskPointSaver",
  createCheckpointer() {
    const token = unused.pop();
    if (token === undefined) {
      throw new Error(`the suite asks for more than ${SAVERS} savers: raise SAVERS`);
    }
    return new TuskPointSaver({ target: server.target, token });
  },
  destroyCheckpointer: (saver: TuskPointSaver) => saver.close(),
};

// The suite expects these functions as globals.
Object.assign(globalThis, { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it });

validate(initializer);
deltaChannelHistoryTests(initializer);
