import { expect, test } from "vitest";
import { type Knot, lanesOf } from "../../src/thread/lanes.ts";

function knots(...pairs: [string, string | undefined, boolean?][]): Knot[] {
  return pairs.map(([key, parent, aside = false]) => ({ key, parent, aside }));
}

test("a line of checkpoints stays in one lane", () => {
  const rows = lanesOf(knots(["3", "2"], ["2", "1"], ["1", undefined]));
  expect(rows.map(({ lane }) => lane)).toEqual([0, 0, 0]);
  expect(rows.map(({ leaving }) => leaving !== undefined)).toEqual([true, true, false]);
});

test("two continuations of one checkpoint join at it", () => {
  const rows = lanesOf(knots(["b", "1"], ["a", "1"], ["1", undefined]));
  expect(rows.map(({ lane }) => lane)).toEqual([0, 1, 0]);
  expect(rows[1]?.passing).toEqual([{ lane: 0, aside: false }]);
  expect(rows[2]?.arriving.map(({ lane }) => lane)).toEqual([0, 1]);
});

test("a lane is used again once it ended", () => {
  const rows = lanesOf(knots(["d", "1"], ["c", "1"], ["1", "0"], ["b", "0"], ["0", undefined]));
  expect(rows.map(({ lane }) => lane)).toEqual([0, 1, 0, 1, 0]);
});

test("a subgraph leads to the checkpoint that ran it with a dashed line", () => {
  const rows = lanesOf(knots(["2", "1"], ["sub", "1", true], ["1", undefined]));
  expect(rows[1]?.leaving).toEqual({ lane: 1, aside: true });
  expect(rows[2]?.arriving).toEqual([
    { lane: 0, aside: false },
    { lane: 1, aside: true },
  ]);
});

test("a parent that is missing, or above, gets no line", () => {
  const rows = lanesOf(knots(["1", "gone"], ["0", "1"]));
  expect(rows.map(({ leaving }) => leaving)).toEqual([undefined, undefined]);
});

test("every line ends where its parent is, in any tree", () => {
  let seed = 7;
  const random = (below: number) => {
    seed = (seed * 1103515245 + 12345) % 2 ** 31;
    return seed % below;
  };
  for (let round = 0; round < 200; round += 1) {
    const size = 1 + random(40);
    const all: Knot[] = Array.from({ length: size }, (_, index) => ({
      key: String(index),
      parent: random(5) === 0 ? undefined : String(index + 1 + random(size)),
      aside: false,
    }));
    const rows = lanesOf(all);
    all.forEach(({ parent }, index) => {
      const at = all.findIndex(({ key }) => key === parent);
      const { lane, leaving } = rows[index] ?? { lane: -1, leaving: undefined };
      expect(leaving !== undefined).toBe(at > index);
      for (let row = index + 1; row < at; row += 1) {
        expect(rows[row]?.lane).not.toBe(lane);
        expect(rows[row]?.passing.map((line) => line.lane)).toContain(lane);
      }
      if (at > index) {
        expect(rows[at]?.arriving.map((line) => line.lane)).toContain(lane);
      }
    });
  }
});

test("10,000 checkpoints are laid out within one drawing of the page", () => {
  const all: Knot[] = Array.from({ length: 10_000 }, (_, index) => ({
    key: String(index),
    parent: String(index + 1 + (index % 7 === 0 ? 3 : 0)),
    aside: false,
  }));
  expect(lanesOf(all)).toHaveLength(10_000);
});
