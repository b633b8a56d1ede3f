/** The engine that checks the interop scenarios: a scenario that cannot fail proves nothing. */

import { describe, expect, test } from "vitest";

import { at, check, fill, Mismatch } from "../scenarios/values.js";
import type { Json } from "../src/messages/json.js";

describe("values", () => {
  test.each<[Json, Json]>([
    ["$id", 7],
    ["thread $id", "thread $id"],
    ["${id}-${name}", "7-é"],
    ["$$id costs $$1", "$id costs $1"],
    [{ a: ["$name", null] }, { a: ["é", null] }],
    [{ $text: { of: "$name", times: 3 } }, "ééé"],
    [{ $base64: { of: "00ff", times: 2 } }, "AP8A/w=="],
    [{ $json_base64: { a: "$name", b: 1.5 } }, Buffer.from('{"a":"é","b":1.5}').toString("base64")],
  ])("%j is filled in", (given, expected) => {
    expect(fill(given, { id: 7, name: "é" })).toEqual(expected);
  });

  test("an unknown variable is a mismatch", () => {
    expect(() => fill({ a: "${none}" }, {})).toThrow(Mismatch);
  });

  test("are found at paths", () => {
    const result = [{ a: { b: "c" } }];
    expect(at(result, "0.a.b")).toBe("c");
    expect(at(result, "")).toBe(result);
    expect(() => at(result, "0.a.none")).toThrow(Mismatch);
    expect(() => at(result, "1.a")).toThrow(Mismatch);
  });
});

describe("matching", () => {
  test.each<[Json, Json]>([
    [{ a: 1 }, { a: 1, b: 2 }],
    [1, 1.0],
    [
      [{ a: 1 }, 2],
      [{ a: 1, b: 1 }, 2],
    ],
    [{ a: { $any: true } }, { a: null }],
    [{ a: { $absent: true } }, { b: 1 }],
    [{ $length: 2 }, "🐘é"],
    [{ $length: 1 }, { a: 1 }],
    [{ $contains: { a: 1 } }, [0, { a: 1, b: 2 }]],
    [{ $contains: "b" }, "abc"],
    [{ $not: { a: 1 } }, { a: 2 }],
  ])("%j matches %j", (expected, actual) => {
    check(expected, actual);
  });

  test.each<[Json, Json]>([
    [{ a: 1 }, { b: 1 }],
    [{ a: 1 }, [1]],
    [1, true],
    [1, "1"],
    [[1], [1, 2]],
    [[1], { 0: 1 }],
    [{ a: { $any: true } }, {}],
    [{ a: { $absent: true } }, { a: null }],
    [{ $length: 4 }, "🐘é"],
    [{ $length: 1 }, 1],
    [{ $contains: { a: 1 } }, [{ a: 2 }]],
    [{ $contains: 1 }, "1"],
    [{ $not: 1 }, 1],
    [{ a: { b: [0, { c: 1 }] } }, { a: { b: [0, { c: 2 }] } }],
  ])("%j does not match %j", (expected, actual) => {
    expect(() => check(expected, actual)).toThrow(Mismatch);
  });
});
