/** Values that JSON cannot represent are refused, with their path. */

import { runInNewContext } from "node:vm";
import { describe, expect, test } from "vitest";

import { InvalidRequest, UnreadableValue } from "../src/errors.js";
import {
  decodeObject,
  decodeValue,
  encodeJson,
  encodeObject,
  encodeState,
} from "../src/messages/json.js";

const cycle: Record<string, unknown> = {};
cycle["itself"] = { again: cycle };
const deep: unknown[] = [];
for (let n = 0, inner = deep; n < 100_000; n += 1) {
  const next: unknown[] = [];
  inner.push(next);
  inner = next;
}

describe("encoding", () => {
  test.each([
    ["null", null, "null"],
    ["numbers", [0, -1.5, 1e21], "[0,-1.5,1e+21]"],
    ["text", "é🐘\u0000\u2028", '"é🐘\\u0000\u2028"'],
    ["objects in their order", { b: 1, a: {} }, '{"b":1,"a":{}}'],
    ["an object without prototype", Object.assign(Object.create(null), { a: 1 }), '{"a":1}'],
    ["an object of another realm", runInNewContext("({ a: [{}] })"), '{"a":[{}]}'],
    ["what has toJSON", { at: new Date(0) }, '{"at":"1970-01-01T00:00:00.000Z"}'],
    ["the same object twice", ((one) => [one, one])({ a: 1 }), '[{"a":1},{"a":1}]'],
    ["a key that is __proto__", JSON.parse('{"__proto__":1}'), '{"__proto__":1}'],
  ])("says %s", (_, value, text) => {
    expect(Buffer.from(encodeJson("v", value)).toString()).toBe(text);
  });

  test.each<[string, unknown, string]>([
    ["undefined", undefined, "v"],
    ["undefined inside", { a: [1, undefined] }, "v.a[1]"],
    // biome-ignore lint/suspicious/noSparseArray: the test passes a sparse array to be refused
    ["an empty slot", [1, , 2], "v[1]"],
    ["NaN", { "a b": Number.NaN }, 'v["a b"]'],
    ["an infinite number", [Number.NEGATIVE_INFINITY], "v[0]"],
    ["a bigint", { a: 1n }, "v.a"],
    ["a function", { a: { b: () => 1 } }, "v.a.b"],
    ["a symbol", [Symbol("a")], "v[0]"],
    ["a key that is a symbol", { [Symbol("a")]: 1 }, "v"],
    ["a cycle", cycle, "v.itself.again"],
    ["a map", { a: new Map() }, "v.a"],
    ["a set", [new Set()], "v[0]"],
    ["an instance of a class", { a: new (class Plan {})() }, "v.a"],
    ["bytes", { a: new Uint8Array(1) }, "v.a"],
    ["bytes of Node", { a: Buffer.from("a") }, "v.a"],
    ["half of a surrogate pair", ["\ud83d"], "v[0]"],
    ["such a key", { a: { "\udc00": 1 } }, "v.a"],
    ["what has a toJSON of no use", { a: { toJSON: () => undefined } }, "v.a"],
  ])("refuses %s", (_, value, field) => {
    const refused = () => encodeJson("v", value);
    expect(refused).toThrow(InvalidRequest);
    expect(refused).toThrow(expect.objectContaining({ metadata: { field } }));
  });

  test("refuses what is nested too deeply, as an error of the value", () => {
    expect(() => encodeJson("v", deep)).toThrow(InvalidRequest);
  });

  test("a state names its channels", () => {
    const values = encodeState({ a: 1, "é b": [2] });
    expect([...values].map(([name, data]) => [name, Buffer.from(data).toString()])).toEqual([
      ["a", "1"],
      ["é b", "[2]"],
    ]);
    expect(() => encodeState({ a: { b: undefined } })).toThrow(
      expect.objectContaining({ metadata: { field: "state.a.b" } }),
    );
    for (const none of [null, [], new Map(), { "": 1 }, { "\ud800": 1 }]) {
      expect(() => encodeState(none as unknown as Record<string, unknown>)).toThrow(InvalidRequest);
    }
  });

  test("metadata is an object or nothing", () => {
    expect(encodeObject("metadata", undefined)).toHaveLength(0);
    expect(Buffer.from(encodeObject("metadata", { a: 1 })).toString()).toBe('{"a":1}');
    expect(() => encodeObject("metadata", [] as unknown as Record<string, unknown>)).toThrow(
      InvalidRequest,
    );
  });
});

describe("decoding", () => {
  test("what is json, null or bytes", () => {
    expect(decodeValue("a", "json", Buffer.from('{"a":[1]}'))).toEqual({ a: [1] });
    expect(decodeValue("a", "null", new Uint8Array())).toBeNull();
    expect(decodeValue("a", "bytes", Uint8Array.of(1))).toEqual(Uint8Array.of(1));
    expect(decodeObject(new Uint8Array())).toEqual({});
  });

  test("what is anything else is not read", () => {
    expect(() => decodeValue("a", "msgpack", new Uint8Array())).toThrow(UnreadableValue);
    expect(() => decodeValue("a", "json", Buffer.from("{"))).toThrow(UnreadableValue);
  });
});
