import { timestampFromMs } from "@bufbuild/protobuf/wkt";
import { expect, test } from "vitest";
import { chipsIn, clockOf, columnsIn, roomOf } from "../../src/thread/row_layout.ts";

test("chips that do not fit are counted", () => {
  const names = ["plan", "sections", "trail", "x", "y"];
  expect(chipsIn(names, 1000)).toEqual({ shown: ["plan", "sections", "trail", "x"], more: 1 });
  expect(chipsIn(names, 150)).toEqual({ shown: ["plan", "sections"], more: 3 });
  expect(chipsIn(names, 10)).toEqual({ shown: [], more: 5 });
  expect(chipsIn([], 100)).toEqual({ shown: [], more: 0 });
});

test("the last chip needs no room for a count", () => {
  expect(chipsIn(["plan"], 46)).toEqual({ shown: ["plan"], more: 0 });
  expect(chipsIn(["plan", "trail"], 46)).toEqual({ shown: [], more: 2 });
});

test("a long name takes no more than the widest chip", () => {
  expect(chipsIn(["x".repeat(1000), "y"], 300).shown).toHaveLength(2);
});

test("in a narrow tree the least important columns are left out first", () => {
  const left = [800, 450, 320, 200].map((width) => columnsIn(width, true));
  expect(left).toEqual([
    { clock: true, step: true, tokens: true },
    { clock: true, step: true, tokens: false },
    { clock: true, step: false, tokens: false },
    { clock: false, step: false, tokens: false },
  ]);
  expect(columnsIn(800, false).tokens).toBe(false);
  const rooms = left.map((columns) => roomOf(500, 50, columns));
  expect(rooms).toEqual([...rooms].sort((one, other) => one - other));
});

test("the time of day stands once for each minute, the day once for each day", () => {
  const at = (text: string) => timestampFromMs(new Date(text).getTime());
  const later = at("2026-11-29T00:01:40");
  expect(clockOf(later, undefined)).toEqual({ day: "29 Nov", minute: "00:01" });
  expect(clockOf(at("2026-11-29T00:01:02"), later)).toEqual({ day: "", minute: "" });
  expect(clockOf(at("2026-11-29T00:00:59"), later)).toEqual({ day: "", minute: "00:00" });
  expect(clockOf(at("2026-11-28T00:01:40"), later)).toEqual({ day: "28 Nov", minute: "00:01" });
  expect(clockOf(undefined, later)).toEqual({ day: "", minute: "" });
});
