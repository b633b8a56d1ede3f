import { create } from "@bufbuild/protobuf";
import { ChangeKind, ChangeSchema } from "@contract/thread_service_pb.js";
import { expect, test } from "vitest";
import { byChannel, pathOf, sideOf, tally } from "../src/diff/change.ts";
import { compareTexts, type Piece, shortened } from "../src/diff/text_diff.ts";

/** Return pieces as text with the changes in brackets. */
function marked(pieces: Piece[]): string {
  return pieces.map(({ text, changed }) => (changed ? `[${text}]` : text)).join("");
}

test.each([
  ["on Friday at nine", "on Saturday at nine", "on [Friday] at nine", "on [Saturday] at nine"],
  ["a b c d", "a c d e", "a [b ]c d", "a c d[ e]"],
  ["same", "same", "same", "same"],
  ["", "new", "", "[new]"],
  ["old", "", "[old]", ""],
  ["x = 1;", "x = 12;", "x = [1];", "x = [12];"],
  [
    "We may do some work.",
    "We replace two disks.",
    "We [may do some work].",
    "We [replace two disks].",
  ],
])("%j and %j differ in words", (from, to, left, right) => {
  const compared = compareTexts(from, to);
  expect(marked(compared.from)).toBe(left);
  expect(marked(compared.to)).toBe(right);
});

test("pieces make up the texts, whatever they are", () => {
  let state = 7;
  const random = (below: number) => {
    state = (state * 48271) % 2147483647;
    return state % below;
  };
  for (let round = 0; round < 200; round += 1) {
    const text = () => Array.from({ length: random(30) }, () => "ab \n."[random(5)]).join("");
    const [from, to] = [text(), text()];
    const compared = compareTexts(from, to);
    const all = (pieces: Piece[]) => pieces.map((piece) => piece.text).join("");
    // Spaces between changed words count as changed.
    const kept = (pieces: Piece[]) =>
      all(pieces.filter(({ changed }) => !changed)).replaceAll(/\s/g, "");
    expect(all(compared.from)).toBe(from);
    expect(all(compared.to)).toBe(to);
    expect(kept(compared.from)).toBe(kept(compared.to));
  }
});

test("texts that differ in too many words are compared by sentences", () => {
  const sentence = (number: number) => `Sentence ${number} is about ${"words ".repeat(9)}. `;
  const from = Array.from({ length: 60 }, (_, number) => sentence(2 * number)).join("");
  const to = Array.from({ length: 120 }, (_, number) => sentence(number)).join("");
  const compared = compareTexts(from, to);
  expect(compared.from).toEqual([{ text: from, changed: false }]);
  expect(compared.to.filter(({ changed }) => changed)[0]?.text.trim()).toBe(sentence(1).trim());
});

test("what follows the end of a cut text is not told as changed", () => {
  const from = "one two three four five six";
  const to = "one 2 two three fo";
  const compared = compareTexts(from, to, { from: false, to: true });
  expect(marked(compared.from)).toBe("one two three ");
  expect(marked(compared.to)).toBe("one [2 ]two three ");
  const swapped = compareTexts(to, from, { from: true, to: false });
  expect(marked(swapped.from)).toBe("one [2 ]two three ");
  expect(marked(swapped.to)).toBe("one two three ");
});

test("large texts that have nothing in common are compared without a search", () => {
  const from = "a b\n".repeat(300_000);
  const to = "c d\n".repeat(300_000);
  expect(compareTexts(from, to).from).toEqual([{ text: from, changed: true }]);
});

test("what is unchanged is cut far from changes", () => {
  const long = "x".repeat(1000);
  const pieces = [
    { text: long, changed: false },
    { text: "new", changed: true },
    { text: "short", changed: false },
  ];
  expect(shortened(pieces, 5).map(({ text }) => text)).toEqual([" … xxxxx", "new", "short"]);
  expect(shortened(pieces.slice(0, 1), 5)).toEqual(pieces.slice(0, 1));
});

test("sides are what the JSON says", () => {
  expect(sideOf(undefined)).toEqual({ kind: "absent" });
  expect(sideOf('"two\\nlines"')).toEqual({ kind: "text", text: "two\nlines", cut: false });
  expect(sideOf("1.0")).toEqual({ kind: "json", text: "1.0", cut: false });
  expect(sideOf("[1]")).toEqual({ kind: "tree", json: [1] });
});

test("a side that was cut is shown as far as it goes", () => {
  expect(sideOf('"begins')).toEqual({ kind: "text", text: "begins", cut: true });
  expect(sideOf('"begins\\u00')).toEqual({ kind: "text", text: "begins", cut: true });
  expect(sideOf('{"a": [1,')).toEqual({ kind: "json", text: '{"a": [1,', cut: true });
});

test("paths are read as RFC 6901 says", () => {
  expect(pathOf("")).toEqual([]);
  expect(pathOf("/messages/3/a~1b/~0/$$ref/")).toEqual(["messages", "[3]", "a/b", "~", "$ref", ""]);
});

test("changes are told by channel and kind", () => {
  const change = (channel: string, kind: ChangeKind) => create(ChangeSchema, { channel, kind });
  const changes = [
    change("a", ChangeKind.ADDED),
    change("a", ChangeKind.CHANGED),
    change("b", ChangeKind.REMOVED),
  ];
  expect(byChannel(changes).map(({ channel, changes: some }) => [channel, tally(some)])).toEqual([
    ["a", "1 added, 1 changed"],
    ["b", "1 removed"],
  ]);
});
