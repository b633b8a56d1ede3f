/** The example prints the output that it promises. */

import { afterAll, beforeAll, expect, test, vi } from "vitest";

import { TestServer } from "../kit.js";

let server: TestServer;

beforeAll(async () => {
  server = await TestServer.start();
});

afterAll(async () => {
  vi.restoreAllMocks();
  vi.unstubAllEnvs();
  await server.remove();
});

test("a plan is saved, watched and handed over", async () => {
  vi.stubEnv("TUSKPOINT_TARGET", server.target);
  const lines: string[] = [];
  vi.spyOn(console, "log").mockImplementation((line: string) => lines.push(line));

  await import("../../examples/hand-over.js" as string);

  const linesOf = (who: string) => lines.filter((line) => line.startsWith(`${who}: `));
  expect(linesOf("planner")).toHaveLength(3);
  expect(linesOf("reviewer").at(-1)).toBe("reviewer: Planned to write the summary. (3 steps)");
  expect(linesOf("reviewer")).toHaveLength(4);
  expect(linesOf("writer").at(-1)).toMatch(/^writer: continues from report-.*:.* with 3 steps$/);
});
