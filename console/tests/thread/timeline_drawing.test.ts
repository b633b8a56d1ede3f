import { CircleX, Tag } from "lucide";
import { expect, test } from "vitest";
import type { Mark } from "../../src/thread/marks.ts";
import { roughly } from "../../src/thread/timeline/layout/gaps.ts";
import type { Bar, Row } from "../../src/thread/timeline/layout/layout.ts";
import { placed } from "../../src/thread/timeline/layout/marks.ts";
import { barAt, piecesOf, type Sight } from "../../src/thread/timeline/layout/pieces.ts";
import { Scale } from "../../src/thread/timeline/layout/scale.ts";
import { ticksOf } from "../../src/thread/timeline/layout/ticks.ts";

const NONE = new Map();
const fold = (from: number, to: number, width = 50) => ({ from, to, width });

test("a scale fits all time, and folds keep their width at every zoom", () => {
  const scale = new Scale(1000, 11_000, [fold(2000, 10_000)], 450);
  expect(scale.width(1)).toBe(450);
  expect([1000, 1500, 2000, 10_000, 11_000].map((time) => scale.x(time, 1))).toEqual([
    0, 100, 200, 250, 450,
  ]);
  expect([2000, 6000, 10_000, 11_000].map((time) => scale.x(time, 4))).toEqual([
    800, 825, 850, 1650,
  ]);
});

test("many folds together take half of the width, until the zoom makes room", () => {
  const folds = Array.from({ length: 1000 }, (_, index) => fold(20 * index + 10, 20 * index + 20));
  const scale = new Scale(0, 20_000, folds, 800);
  expect(scale.width(1)).toBeCloseTo(800);
  expect(scale.x(20, 1) - scale.x(10, 1)).toBeCloseTo(0.4);
  expect(scale.x(20, 500) - scale.x(10, 500)).toBeCloseTo(50);
});

test("every place has the time that is there", () => {
  const folds = [fold(0, 5000), fold(6000, 90_000, 120), fold(95_000, 99_000)];
  const scale = new Scale(0, 100_000, folds, 700);
  for (const zoom of [1, 3.7, 200]) {
    for (let time = 0; time <= 100_000; time += 777) {
      expect(scale.timeAt(scale.x(time, zoom), zoom)).toBeCloseTo(time, 3);
    }
  }
});

test("a thread whose checkpoints have one time has a scale", () => {
  const scale = new Scale(5, 5, [], 300);
  expect(scale.x(5, 1)).toBe(0);
  expect(scale.timeAt(0, scale.mostZoom)).toBe(5);
  expect(ticksOf(scale, 1, 0, 300).length).toBeLessThan(10);
});

test.each([1, 30, 4000])("ticks at zoom %d are at round times, with room between", (zoom) => {
  const scale = new Scale(1_700_000_000_123, 1_700_000_090_000, [], 900);
  const ticks = ticksOf(scale, zoom, 100, 1000);
  expect(ticks.length).toBeGreaterThan(3);
  ticks.slice(1).forEach(({ x }, index) => {
    expect(x - (ticks[index]?.x ?? 0)).toBeGreaterThanOrEqual(95);
  });
  expect(new Set(ticks.map(({ text }) => text)).size).toBe(ticks.length);
});

test("there is no tick inside a fold", () => {
  const scale = new Scale(0, 7_200_000, [fold(60_000, 7_140_000)], 950);
  for (const { x } of ticksOf(scale, 1, 0, 950)) {
    expect(x <= scale.x(60_000, 1) || x >= scale.x(7_140_000, 1)).toBe(true);
  }
});

function bar(id: string, start: number, end: number, kind: Bar["kind"] = "step"): Bar {
  const fact = {
    ...{ key: id, ns: "", id, parent: undefined, called: false, at: end, origin: "step" as const },
    ...{ name: id, run: "", next: [], questions: [], failures: [] },
    ...{ isRollback: false, isStart: false },
  };
  return { fact, row: 0, start, end, kind, torn: undefined, stands: true };
}

function row(bars: Bar[]): Row {
  const earliest = Float64Array.from(bars, (_, index) =>
    Math.min(...bars.slice(index).map(({ start }) => start)),
  );
  return { kind: "graph", name: "", depth: 0, colour: 0, bars, earliest, links: [] };
}

function sight(to: number, width: number, zoom = 1, left = 0): Sight {
  return { scale: new Scale(0, to, [], width), zoom, left, width };
}

test("a bar with room is a piece, and narrow bars become one shape", () => {
  const narrow = Array.from({ length: 300 }, (_, index) =>
    bar(`n${index}`, 500 + index, 501 + index),
  );
  const { pieces, shapes } = piecesOf(
    row([bar("a", 0, 500), ...narrow]),
    NONE,
    sight(1000, 1000),
    0,
  );
  expect(pieces.map(({ bar: { fact }, x, width }) => [fact.id, x, width])).toEqual([["a", 0, 500]]);
  expect(shapes.step.match(/M/g)).toHaveLength(1);
});

test("what is outside of the shown time is not drawn", () => {
  const bars = Array.from({ length: 1000 }, (_, index) =>
    bar(`b${index}`, 10 * index, 10 * index + 10),
  );
  const { pieces } = piecesOf(row(bars), NONE, sight(10_000, 1000, 40, 20_000), 0);
  const shown = pieces.map(({ bar: { fact } }) => fact.id);
  expect([shown[0], shown.at(-1)]).toEqual(["b499", "b525"]);
});

test("a bar that began long before the shown time is drawn", () => {
  const bars = [bar("short", 0, 10), bar("long", 5, 9000), bar("late", 9000, 9500)];
  const { pieces } = piecesOf(row(bars), NONE, sight(10_000, 1000, 10, 4000), 0);
  expect(pieces.map(({ bar: { fact } }) => fact.id)).toEqual(["long"]);
});

const failed: Mark = { icon: CircleX, text: "failed", shown: "", kind: "bad" };
const label: Mark = { icon: Tag, text: "label", shown: "", kind: "" };

test("marks without room are one, and the most important is first", () => {
  const bars = [bar("a", 0, 100), bar("b", 100, 105), bar("c", 105, 500)];
  const marks = placed(bars, (key) => ({ a: [label], b: [failed] })[key] ?? []);
  const near = piecesOf(row(bars), marks, sight(1000, 1000), 0);
  expect(near.clusters.map(({ x, marks: all }) => [x, all.map(({ text }) => text)])).toEqual([
    [100, ["failed", "label"]],
  ]);
  expect(near.pieces.map(({ isMarked }) => isMarked)).toEqual([true, false]);
  const far = piecesOf(row(bars), marks, sight(1000, 1000, 10), 0);
  expect(far.clusters.map(({ x }) => x)).toEqual([1000, 1050]);
});

test("a place means the mark there, else the bar there, else nothing", () => {
  const bars = [bar("a", 0, 100), bar("b", 100, 300), bar("c", 400, 500)];
  const marks = placed(bars, (key) => (key === "a" ? [failed] : []));
  const at = (x: number) => barAt(row(bars), marks, sight(1000, 1000), x)?.fact.id;
  expect([50, 105, 120, 303, 350, 450].map(at)).toEqual(["a", "a", "b", "b", undefined, "c"]);
});

test.each([
  [270, "0.27 s"],
  [38_400, "38 s"],
  [252_000, "4 min 12 s"],
  [2_290_000, "38 min"],
  [3 * 3_600_000, "3 h"],
  [49 * 3_600_000, "2 d"],
])("%d ms are %s", (milliseconds, text) => {
  expect(roughly(milliseconds)).toBe(text);
});
