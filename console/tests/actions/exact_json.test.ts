import { expect, test } from "vitest";
import { JsonTextError, readExact, writeExact } from "../../src/actions/exact_json.ts";

function problem(text: string): JsonTextError {
  try {
    readExact(text);
  } catch (error) {
    if (error instanceof JsonTextError) {
      return error;
    }
    throw error;
  }
  throw new Error(`${text} was read`);
}

test("numbers keep their digits", () => {
  const text = '{"a":10.0,"b":12345678901234567890,"c":-0.0,"d":1e+16,"e":[true,null]}';
  expect(writeExact(readExact(text))).toBe(text);
});

test("white space goes, and comes back with an indent", () => {
  const text = '{\n  "a": [\n    1,\n    "x y"\n  ],\n  "b": {},\n  "c": []\n}';
  expect(writeExact(readExact(text))).toBe('{"a":[1,"x y"],"b":{},"c":[]}');
  expect(writeExact(readExact(text), 2)).toBe(text);
});

test("whatever JSON.parse reads is read, and what it refuses is refused", () => {
  const texts = ["1", " 1 ", '"\\u0041\\n"', "[]", "[[],{}]", '"a\u2028b"', '"\\ud800"', "-1.5E-3"];
  for (const text of texts) {
    expect(JSON.parse(writeExact(readExact(text)))).toEqual(JSON.parse(text));
  }
  const wrong = [
    "",
    "01",
    "1.",
    "+1",
    "NaN",
    "[1,]",
    '{"a":1,}',
    "{a:1}",
    "'a'",
    '"a\nb"',
    '"\\x"',
    "[1 2]",
    "1 2",
    '{"a"}',
    "tru",
    "truex",
    '"a',
    "[",
    "]",
  ];
  for (const text of wrong) {
    expect(() => JSON.parse(text)).toThrow();
    expect(problem(text)).toBeInstanceOf(JsonTextError);
  }
});

test("an error says where it is", () => {
  const { line, column, message } = problem('[\n  "look",\n  "ask"\n  "do"]');
  expect([line, column]).toEqual([4, 3]);
  expect(message).toBe('Line 4, column 3: "," or "]" is expected, not "do".');
  expect(problem('{"a": ').message).toBe(
    "Line 1, column 7: The text ends where a value is expected.",
  );
});

test("a key that comes twice is refused", () => {
  expect(problem('{"a":1,"\\u0061":2}').message).toContain("comes twice");
});

test("a deep text is refused and does not overflow the stack", () => {
  expect(problem("[".repeat(100_000)).message).toContain("500 levels");
});

test("a text of a megabyte is read", () => {
  const text = JSON.stringify(["é\\".repeat(300_000), ...Array.from({ length: 50_000 }, Number)]);
  expect(writeExact(readExact(text))).toBe(text);
});
