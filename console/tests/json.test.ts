import { expect, test } from "vitest";
import { type Json, plain, preview, ranges, type Shown, viewed } from "../src/parts/json/json.ts";

/** Return the text of a leaf, or the label and members of a branch. */
function told(shown: Shown): unknown {
  return shown.kind === "branch" ? [shown.label, shown.members(0, shown.size)] : shown.text;
}

test.each<[Json, string]>([
  [{ $int: "18446744073709551615" }, "18446744073709551615"],
  [{ $float: "-Infinity" }, "-Infinity"],
  [{ $number: "1e400" }, "1e400"],
  [{ $timestamp: "2026-01-02T03:04:05.000000000Z" }, "2026-01-02T03:04:05.000000000Z"],
  [{ $bytes: "AAE=" }, "bytes, 2 B: 00 01"],
  [{ $bytes: "" }, "bytes, 0 B"],
  [{ $bytearray: btoa("x".repeat(2048)) }, `bytearray, 2.0 KiB: ${"78 ".repeat(16)}…`],
  [{ $string: "/w==" }, "text that is not UTF-8, 1 B: ff"],
  [{ $ext: 42, $bytes: "AAE=" }, "extension 42, 2 B: 00 01"],
  [{ $too_deep: "array" }, "array below 64 levels: not shown"],
  [{ $opaque: "pickle", $size: 12 }, "pickle, 12 B: a type that is never opened"],
  [
    { $opaque: "msgpack", $size: 5242880, $problem: "too_large" },
    "msgpack, 5.0 MiB: larger than the JSON view shows",
  ],
  [
    { $opaque: "msgpack", $size: 2, $problem: "malformed", $bytes: "wcE=" },
    "msgpack, 2 B: its bytes do not match its type; begins with 2 B: c1 c1",
  ],
  [{ $type: "uuid.UUID", $value: "1f1e" }, "UUID 1f1e"],
  [{ $type: "datetime.datetime", $method: "fromisoformat", $value: "2026" }, "datetime 2026"],
  [{ $seed: null, $writes: 3 }, "rebuilt from 3 writes"],
  [{ $bytes: 7 }, "bytes, unreadable"],
  [{ $bytes: "*" }, "bytes, 0 B"],
])("the escape %j is one leaf", (value, text) => {
  expect(told(viewed(value))).toBe(text);
});

test("objects of Python have their name and their fields", () => {
  expect(told(viewed({ $type: "app.Plan", steps: [], $$ref: 1 }))).toEqual([
    "Plan {2}",
    [
      ["steps", []],
      ["$ref", 1],
    ],
  ]);
  expect(told(viewed({ $type: "builtins.set", $value: [1] }))).toEqual(["set [1]", [["0", 1]]]);
  expect(told(viewed({ $type: "pathlib.PosixPath", $args: ["/"] }))).toEqual([
    "PosixPath {1}",
    [["arguments", ["/"]]],
  ]);
});

test("maps have keys that are values", () => {
  expect(
    told(
      viewed({
        $map: [
          [1, "one"],
          [{ $bytes: "AAE=" }, 2],
        ],
      }),
    ),
  ).toEqual([
    "map {2}",
    [
      ["1", "one"],
      ["bytes, 2 B: 00 01", 2],
    ],
  ]);
});

test("a delta channel has its stored value, then its writes", () => {
  const value = viewed({ $delta: ["a", "b"], $seed: ["s"] });
  expect(told(value)).toEqual([
    "rebuilt from 2 writes onto a stored value",
    [
      ["stored value", ["s"]],
      ["write 1", "a"],
      ["write 2", "b"],
    ],
  ]);
  expect(value.kind === "branch" && value.members(2, 3)).toEqual([["write 2", "b"]]);
});

test("what an agent saved does not look like an escape", () => {
  expect(told(viewed({ $$int: "1" }))).toEqual(["{1}", [["$int", "1"]]]);
  expect(told(plain({ $int: "1" }))).toEqual(["{1}", [["$int", "1"]]]);
  expect(told(viewed(JSON.parse('{"__proto__": 1, "constructor": 2}')))).toEqual([
    "{2}",
    [
      ["__proto__", 1],
      ["constructor", 2],
    ],
  ]);
});

test("a preview is short however large the value is", () => {
  expect(preview({ plan: ["a", 1, null], n: { $int: "9" } }, viewed)).toBe(
    '{plan: ["a", 1, null], n: 9}',
  );
  const large = Array.from({ length: 100_000 }, (_, index) => ({ text: "x".repeat(50), index }));
  expect(preview(large, viewed, 60).length).toBeLessThan(120);
});

test("ranges cover all and are few", () => {
  expect(ranges(0, 250)).toEqual([
    [0, 100],
    [100, 200],
    [200, 250],
  ]);
  const parts = ranges(0, 1_000_000);
  expect(parts).toHaveLength(100);
  expect(parts.at(-1)).toEqual([990_000, 1_000_000]);
});
