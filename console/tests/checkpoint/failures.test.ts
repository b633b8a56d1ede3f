import { create } from "@bufbuild/protobuf";
import { type Checkpoint, CheckpointSchema } from "@contract/checkpoint_pb.js";
import { expect, test } from "vitest";
import { ending, failuresOf } from "../../src/checkpoint/failures.ts";
import type { Json } from "../../src/parts/json/json.ts";

function value(json: Json) {
  const data = new TextEncoder().encode(JSON.stringify(json));
  return { case: "value" as const, value: { type: "json", data } };
}

function failed(error: Json, taskPath = "~__pregel_pull, pay", sends?: Json): Checkpoint {
  const channels = sends === undefined ? [] : [{ name: "__pregel_tasks", content: value(sends) }];
  return create(CheckpointSchema, {
    state: { channels },
    writes: [
      { taskId: "1", taskPath, channel: "__error__", content: value(error) },
      { taskId: "2", taskPath: "", channel: "total", content: value(1) },
    ],
  });
}

const CALLS = 'Traceback (most recent call last):\n  File "pay.py", line 7, in pay\n    charge()\n';

test.each<[Json, string, string]>([
  ["ValueError('no\\nmoney')", "ValueError", "no\nmoney"],
  ['ValueError("it\'s \\\\ over")', "ValueError", "it's \\ over"],
  ["KeyError(1, 'x')", "KeyError", "1, 'x'"],
  [
    "UnicodeDecodeError('utf-8', b'\\xff', 0, 1, 'bad')",
    "UnicodeDecodeError",
    "'utf-8', b'\\xff', 0, 1, 'bad'",
  ],
  ["pay.Refused: no money", "pay.Refused", "no money"],
  ["there is no money", "", "there is no money"],
  [{ lc: 2, name: "KeyError", message: "x" }, "KeyError", "x"],
  [{ code: 7 }, "", '{"code":7}'],
])("an error has a type and a message: %j", (error, type, message) => {
  expect(failuresOf(failed(error))).toEqual([{ task: "pay", type, message, traceback: "" }]);
});

test.each<[Json, string, string, string]>([
  [`${CALLS}ValueError: no money\n`, "ValueError", "no money", `${CALLS}ValueError: no money\n`],
  [
    `first\n\n${CALLS}\nDuring handling of the above exception:\n\n${CALLS}OSError: second`,
    "OSError",
    "second",
    `first\n\n${CALLS}\nDuring handling of the above exception:\n\n${CALLS}OSError: second`,
  ],
  [
    `ToolError(${JSON.stringify(`${CALLS}OSError: gone`)})`,
    "ToolError",
    "OSError: gone",
    `${CALLS}OSError: gone`,
  ],
  [
    { name: "Error", message: "no money\n    at pay (pay.ts:7:1)\n    at run (run.ts:1:1)" },
    "Error",
    "no money",
    "no money\n    at pay (pay.ts:7:1)\n    at run (run.ts:1:1)",
  ],
])("a traceback is not a part of the message: %j", (error, type, message, traceback) => {
  expect(failuresOf(failed(error))).toEqual([{ task: "pay", type, message, traceback }]);
});

test("a task that a node sent has the name of its node", () => {
  const sends = [
    { $type: "langgraph.types.Send", node: "a", arg: 1 },
    { node: "reader", arg: 2 },
  ];
  const path = "~__pregel_push, 0000000001, 0000000000";
  expect(failuresOf(failed("E('x')", path, sends))[0]?.task).toBe("reader");
  for (const odd of [undefined, [], [null, null], [{}, { node: 1 }], "text"] as const) {
    expect(failuresOf(failed("E('x')", path, odd as Json))[0]?.task).toBe("a parallel task");
  }
});

test("the end of a message has whole characters", () => {
  expect(ending("abc", 5)).toBe("abc");
  expect(ending("abc", 2)).toBe("bc");
  expect(ending("a🐘b", 2)).toBe("b");
});

// Time that grows with the square of the length would take minutes, and exceed the limit.
test("the time to read a message grows with its length", { timeout: 60_000 }, () => {
  const long = `ValueError('${"a\\n    at b ".repeat(100_000)}')`;
  const endless = `ValueError('${"\\n    at b ".repeat(100_000)}\\nx')`;
  expect(failuresOf(failed(endless))[0]?.traceback).toBe("");
  expect(failuresOf(failed(CALLS.repeat(20_000)))[0]?.traceback).toBe("");
  expect(failuresOf(failed(long))[0]?.type).toBe("ValueError");
  expect(failuresOf(failed(`${CALLS.repeat(20_000)}ValueError: x`))[0]?.message).toBe("x");
});
