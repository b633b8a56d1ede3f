import { create } from "@bufbuild/protobuf";
import { WarningKind } from "@contract/errors_pb.js";
import { SearchCheckpointsResponseSchema, SearchMode } from "@contract/search_service_pb.js";
import { expect, test } from "vitest";
import { leftOut, metricText } from "../src/search/answer.ts";
import { filterOf, objection, questionOf, requestOf } from "../src/search/asking.ts";
import { excerpt, pieces } from "../src/search/marking.ts";

const marked = (text: string, query: string) =>
  pieces(text, query)
    .filter((piece) => piece.marked)
    .map((piece) => piece.text);

test("searched words are marked in every form, whatever their case and accents", () => {
  expect(marked("Asked for Approval: approvals wait", "ask approval")).toEqual([
    "Approval",
    "approvals",
  ]);
  expect(marked("Started in São Paulo", "starts sao")).toEqual(["Started", "São"]);
  expect(marked("the cat", "category")).toEqual([]);
});

test("pieces put together are the text", () => {
  const text = "<b>refund</b> of refund-7, then more";
  expect(
    pieces(text, "refund")
      .map((piece) => piece.text)
      .join(""),
  ).toBe(text);
  expect(pieces("", "x")).toEqual([]);
  expect(pieces("no word", "***")).toEqual([{ text: "no word", marked: false }]);
});

test("an excerpt has the first word that matches", () => {
  const text = `${"before ".repeat(100)}refund${" after".repeat(100)}`;
  const cut = excerpt(text, "refund", 80);
  expect(cut.length).toBe(82);
  expect(cut.startsWith("…") && cut.endsWith("…")).toBe(true);
  expect(cut.indexOf("refund")).toBe(13);
  expect(excerpt("short", "refund", 80)).toBe("short");
  expect(excerpt(text, "absent", 80).startsWith("before")).toBe(true);
  expect(excerpt(`${"a ".repeat(90)}refund`, "refund", 80)).toBe(`…${"a ".repeat(6)}refund`);
  expect(excerpt("near the refund", "refund", 80)).toBe("near the refund");
  expect(excerpt("", "refund", 80)).toBe("");
});

test("an address names a question, and what it cannot be is left out", () => {
  const question = questionOf({ q: "refund", mode: "words", limit: "50", thread: "t" });
  expect(requestOf(question)).toMatchObject({
    query: { case: "text", value: "refund" },
    threadId: "t",
    limit: 50,
    mode: SearchMode.LEXICAL,
  });
  expect(questionOf({ mode: "guess", limit: "9999" })).toMatchObject({ mode: "", limit: "25" });
  expect(filterOf(questionOf({ q: "refund" })).limit).toBe("");
});

test("a filter that the server would refuse is refused before", () => {
  const of = (filter: string) => objection(questionOf({ q: "x", filter }));
  expect(of("")).toBe("");
  expect(of('{"a": 1}')).toBe("");
  expect(of("{a: 1}")).toContain("not JSON");
  expect(of("[1]")).toContain("must be a JSON object");
  expect(of("null")).toContain("must be a JSON object");
  expect(of('{"$gt": 1}')).toContain("$gt");
});

test("everything that an answer leaves out is said, with what to do", () => {
  const answer = create(SearchCheckpointsResponseSchema, {
    mode: SearchMode.MEMWAL,
    metric: "cosine",
    truncated: true,
    unindexedCheckpoints: 1n,
    warnings: [
      { kind: WarningKind.SEARCH_FELL_BACK, message: "MemWal did not answer." },
      { kind: WarningKind.TEXT_TRUNCATED, message: "Not found: 2." },
      { kind: 99 as WarningKind, message: "Something new." },
    ],
    results: [{}, {}],
  });
  const said = leftOut(answer, 2);
  expect(said.map((one) => one.what)).toEqual([
    "MemWal cannot recall 1 checkpoint yet.",
    "More results may exist: MemWal returns at most 100 memories, and the filters apply to these.",
    "Only the nearest 2 are shown.",
    "The search was made in another mode than the server is set up for.",
    "Some checkpoints have more text than is indexed, so this search may have missed them.",
    "The server has a remark.",
  ]);
  expect(said[3]?.detail).toBe("MemWal did not answer.");
  expect(said[4]?.detail).toBe("Not found: 2.");
  expect(said[5]?.detail).toBe("Something new.");
  expect(leftOut(create(SearchCheckpointsResponseSchema, {}), 25)).toEqual([]);
});

test("a metric that is not known yet is named", () => {
  expect(metricText("bm25")).toContain("BM25");
  expect(metricText("angular")).toBe("angular: smaller is nearer.");
});
