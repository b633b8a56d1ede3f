import { create } from "@bufbuild/protobuf";
import { QuestionSchema } from "@contract/step_pb.js";
import { expect, test } from "vitest";
import type { Fact } from "../../src/thread/timeline/layout/facts.ts";
import { type Layout, layoutOf } from "../../src/thread/timeline/layout/layout.ts";

function fact(id: string, at: number, parent?: string, more: Partial<Fact> = {}): Fact {
  const ns = more.ns ?? "";
  return {
    key: `${ns}/${id}`,
    ns,
    id,
    parent: parent === undefined ? undefined : parent.includes("/") ? parent : `${ns}/${parent}`,
    called: false,
    at,
    origin: "step",
    name: id,
    run: "",
    next: [],
    questions: [],
    failures: [],
    isRollback: false,
    isStart: false,
    ...more,
  };
}

/** Return each lane with its bars: names, starts and ends. */
function drawn({ rows }: Layout): string[] {
  return rows.map(
    ({ name, kind, depth, bars }) =>
      `${" ".repeat(depth)}${name || "graph"}${kind === "branch" ? "*" : ""}: ` +
      bars.map(({ fact: { id }, start, end }) => `${id} ${start}-${end}`).join(", "),
  );
}

const reader = (run: number) => ({ ns: `reader:${run}` });
const called = (run: number) => ({ ...reader(run), called: true, origin: "input" as const });

test("a bar leads from the parent's save to the own, and an input is a point", () => {
  const layout = layoutOf([
    fact("1", 100, undefined, { origin: "input" }),
    fact("2", 110, "1"),
    fact("3", 400, "2"),
    fact("4", 900, "3", { origin: "input" }),
    fact("5", 950, "4"),
  ]);
  expect(drawn(layout)).toEqual(["graph: 1 100-100, 2 100-110, 3 110-400, 4 900-900, 5 900-950"]);
});

test("parallel runs of a subgraph have lanes of their own, below the caller", () => {
  const layout = layoutOf([
    fact("1", 0),
    fact("2", 5, "/1", called(1)),
    fact("3", 6, "/1", called(2)),
    fact("4", 50, "2", reader(1)),
    fact("5", 60, "3", reader(2)),
    fact("6", 55, "reader:1/4", { ns: "reader:1|count:9", called: true }),
    fact("7", 90, "1"),
  ]);
  expect(drawn(layout)).toEqual([
    "graph: 1 0-0, 7 0-90",
    " reader: 2 5-5, 4 5-50",
    "  count: 6 50-55",
    " reader: 3 6-6, 5 6-60",
  ]);
});

test("runs of a subgraph that follow each other share a lane", () => {
  const facts = [fact("00", 0)];
  for (let run = 1; run < 50; run += 1) {
    const [id, before] = [run, run - 1].map((number) => String(number).padStart(2, "0"));
    facts.push(fact(`${before}a`, run * 10 - 5, `/${before}`, called(run)));
    facts.push(fact(`${id}`, run * 10, `${before}`));
  }
  expect(layoutOf(facts).rows.map(({ name, bars }) => [name, bars.length])).toEqual([
    ["", 50],
    ["reader", 49],
  ]);
});

test("a second child of a checkpoint is a branch, and what it left does not stand", () => {
  const layout = layoutOf([
    fact("1", 0),
    fact("2", 10, "1"),
    fact("3", 20, "2"),
    fact("4", 30, "1", { origin: "copy", isRollback: true }),
    fact("5", 40, "4"),
  ]);
  expect(drawn(layout)).toEqual(["graph: 1 0-0, 2 0-10, 3 10-20", " graph*: 4 30-30, 5 30-40"]);
  const standing = layout.bars.filter(({ stands }) => stands).map(({ fact: { id } }) => id);
  expect(standing).toEqual(["1", "4", "5"]);
});

test("what a left branch called does not stand either", () => {
  const layout = layoutOf([
    fact("1", 0),
    fact("2", 10, "1"),
    fact("3", 15, "/2", called(1)),
    fact("4", 20, "1"),
    fact("5", 25, "/4", called(2)),
  ]);
  const standing = layout.bars.filter(({ stands }) => stands).map(({ fact: { id } }) => id);
  expect(standing).toEqual(["1", "4", "5"]);
});

const planned = { next: ["work"] };
const runs = [
  fact("1", 0, undefined, { ...planned, run: "a" }),
  fact("2", 10_000, "1", { ...planned, run: "a" }),
  fact("3", 52_000, "2", { ...planned, run: "b" }),
];

test("a run that ended without its last save and was continued is a break", () => {
  const layout = layoutOf(runs);
  expect(layout.breaks).toEqual([{ from: 10_000, to: 52_000 }]);
  expect(layout.bars.map(({ kind }) => kind)).toEqual(["step", "step", "torn"]);
  expect(layout.gaps.map(({ text }) => text)).toEqual(["run ended, continued 42 s later"]);
});

test("a break tears the steps of every lane that it ends", () => {
  const layout = layoutOf([
    ...runs,
    fact("1a", 4_000, "/1", { ...called(1), ...planned, run: "a" }),
    fact("2a", 53_000, "1a", { ...reader(1), run: "b" }),
  ]);
  expect(layout.breaks).toHaveLength(1);
  expect(layout.bars.filter(({ kind }) => kind === "torn").map(({ fact: { id } }) => id)).toEqual([
    "3",
    "2a",
  ]);
});

test.each<[string, Partial<Fact>, Partial<Fact>]>([
  ["without the identity of a run", { run: "" }, { run: "" }],
  ["where only one run is known", { run: "" }, {}],
  ["by the same run", {}, { run: "a" }],
  ["after a run that had finished", { next: [] }, {}],
  ["after a question", { questions: [create(QuestionSchema, { answered: true })] }, {}],
  ["by a person's update", {}, { origin: "update" }],
])("a step %s claims no break", (_, before, after) => {
  const [first, second, third] = runs as [Fact, Fact, Fact];
  const layout = layoutOf([first, { ...second, ...before }, { ...third, ...after }]);
  expect(layout.breaks).toEqual([]);
  expect(layout.gaps.map(({ kind }) => kind)).not.toContain("break");
});

test("checkpoints that a fork copied with their runs, and the run of the fork, make no break", () => {
  const [first, second, third] = runs as [Fact, Fact, Fact];
  const copied = { at: 10_000, run: "a" };
  const facts = [
    { ...second, ...copied, isStart: true },
    fact("1a", 0, "/1", { ...called(1), ...planned, ...copied }),
    fact("1b", 0, "/1", { ...called(2), ...planned, ...copied, run: "c" }),
    third,
    fact("2a", 53_000, "1a", { ...reader(1), run: "b" }),
    fact("2b", 53_000, "1b", { ...reader(2), run: "b" }),
  ];
  expect(layoutOf(facts).breaks).toEqual([]);
  const ended = { ...first, key: "/4", id: "4", parent: "/3", at: 60_000, run: "b", ...planned };
  const continued = fact("5", 90_000, "4", { run: "d" });
  expect(layoutOf([...facts, ended, continued]).breaks).toEqual([{ from: 60_000, to: 90_000 }]);
});

test("a run that saved after the other began did not end", () => {
  const late = fact("2a", 60_000, "/2", { ...called(1), run: "a" });
  expect(layoutOf([...runs, late]).breaks).toEqual([]);
});

test("a long time without a save is folded, and says how long it was", () => {
  const steps = Array.from({ length: 20 }, (_, index) =>
    fact(`${index + 10}`, 1000 * index, index ? `${index + 9}` : undefined),
  );
  const later = layoutOf([...steps, fact("40", 19_000 + 38 * 60_000, "29")]);
  expect(later.gaps).toMatchObject([
    { from: 19_000, to: 2_299_000, kind: "later", text: "38 min later", short: "38 min" },
  ]);
  const soon = layoutOf([...steps, fact("40", 27_000, "29")]);
  expect(soon.gaps).toEqual([]);
});

test("time that a question waited for its answer is a gap of its own kind", () => {
  const questions = [create(QuestionSchema, { text: "Publish?", answered: true })];
  const layout = layoutOf([
    fact("1", 0),
    fact("2", 1000, "1", { questions }),
    fact("3", 721_000, "2"),
  ]);
  expect(layout.bars.map(({ kind }) => kind)).toEqual(["step", "step", "wait"]);
  expect(layout.gaps.map(({ text }) => text)).toEqual(["waited 12 min for a person"]);
});

test("many steps as long as each other are not folded", () => {
  const steps = Array.from({ length: 20 }, (_, index) =>
    fact(`${index + 10}`, 60_000 * index, index ? `${index + 9}` : undefined),
  );
  expect(layoutOf(steps).gaps).toEqual([]);
});

test("only the state that stands may be running", () => {
  const next = { next: ["work"] };
  const layout = layoutOf([
    fact("1", 0, undefined, next),
    fact("2", 10, "1", next),
    fact("3", 20, "1", next),
    fact("4", 25, "/3", { ...called(1), ...next }),
    fact("5", 15, "/2", { ...called(2), ...next }),
  ]);
  expect(layout.tails.map(({ after: { fact }, kind }) => [fact.id, kind])).toEqual([
    ["3", "next"],
    ["4", "next"],
  ]);
});

test("a question of a subgraph is told once", () => {
  const questions = [create(QuestionSchema, { interruptId: "q", text: "Good?" })];
  const layout = layoutOf([
    fact("1", 0, undefined, { questions, next: ["writer"] }),
    fact("2", 10, "/1", { ...called(1), questions }),
  ]);
  expect(layout.tails.map(({ kind, isInner }) => [kind, isInner])).toEqual([
    ["question", true],
    ["question", false],
  ]);
});

function complete(layout: Layout, size: number): void {
  const keys = new Set(layout.rows.flatMap(({ bars }) => bars.map(({ fact: { key } }) => key)));
  expect(keys.size).toBe(size);
  expect(layout.bars).toHaveLength(size);
  for (const { start, end } of layout.bars) {
    expect(start).toBeLessThanOrEqual(end);
  }
}

test("parents that are missing, circles of parents and of callers lose no checkpoint", () => {
  complete(
    layoutOf([
      fact("1", 0, "2"),
      fact("2", 10, "1"),
      fact("3", 20, "3"),
      fact("4", 30, "gone"),
      fact("5", 40, "b:1/6", { ns: "a:1", called: true }),
      fact("6", 50, "a:1/5", { ns: "b:1", called: true }),
      fact("7", 60, undefined, { ns: "outer:1|inner:2" }),
      fact("8", 60, "c:1/8", { ns: "c:1", called: true }),
    ]),
    8,
  );
});

test("a lane whose caller is missing is below the lanes around it by its name", () => {
  const layout = layoutOf([
    fact("1", 0),
    fact("2", 10, "/gone", { ns: "outer:1", called: true }),
    fact("3", 20, "outer:1/gone", { ns: "outer:1|inner:2", called: true }),
  ]);
  expect(drawn(layout)).toEqual(["graph: 1 0-0", " outer: 2 10-10", "  inner: 3 20-20"]);
});

test("times that go backwards and equal times give no negative durations", () => {
  complete(
    layoutOf([fact("1", 50), fact("2", 20, "1"), fact("3", 20, "2"), fact("4", 90, "3")]),
    4,
  );
});

test("any tree is laid out whole, without overlaps in a lane", () => {
  let seed = 11;
  const random = (below: number) => {
    seed = (seed * 1103515245 + 12345) % 2 ** 31;
    return seed % below;
  };
  for (let round = 0; round < 200; round += 1) {
    const facts: Fact[] = [];
    const size = 1 + random(60);
    for (let index = 0; index < size; index += 1) {
      const any = facts[random(facts.length || 1)];
      const id = String(index).padStart(4, "0");
      const calls = any && random(3) === 0;
      const ns = calls ? `${any.ns && `${any.ns}|`}n${random(3)}:${index}` : (any?.ns ?? "");
      facts.push(fact(id, 10 * index, any?.key, { ns, called: Boolean(calls) }));
    }
    const layout = layoutOf(facts);
    complete(layout, size);
    for (const { bars } of layout.rows) {
      bars.slice(1).forEach(({ start }, index) => {
        expect(start).toBeGreaterThanOrEqual(bars[index]?.end ?? 0);
      });
    }
  }
});

test.each<[string, (index: number) => Fact]>([
  ["in a line", (index) => fact(id(index), index, index ? id(index - 1) : undefined)],
  ["of one parent", (index) => fact(id(index), index, index ? id(0) : undefined)],
  ["without parents, at one time", (index) => fact(id(index), 7)],
  ["in parallel lanes", (index) => parallel(index)],
  ["nested in each other", (index) => nested(index)],
  ["each of a run of its own", (index) => broken(index)],
])("10,000 checkpoints %s are laid out within one drawing of the page", (_, make) => {
  const facts = Array.from({ length: 10_000 }, (_, index) => make(index));
  const layout = layoutOf(facts);
  expect(layout.bars).toHaveLength(10_000);
});

function id(index: number): string {
  return String(index).padStart(6, "0");
}

function parallel(index: number): Fact {
  return index === 0
    ? fact(id(0), 0)
    : fact(id(index), 10_000 + index, `/${id(0)}`, { ns: `reader:${index}`, called: true });
}

function nested(index: number): Fact {
  const ns = index ? `n:${index}` : "";
  const caller = index > 1 ? `n:${index - 1}/${id(index - 1)}` : `/${id(0)}`;
  return fact(id(index), index, index ? caller : undefined, { ns, called: index > 0 });
}

function broken(index: number): Fact {
  const parent = index ? id(index - 1) : undefined;
  return fact(id(index), 20_000 * index, parent, { run: `run ${index}`, next: ["work"] });
}
