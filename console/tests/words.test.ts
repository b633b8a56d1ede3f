import { timestampFromMs } from "@bufbuild/protobuf/wkt";
import { expect, test } from "vitest";
import {
  age,
  ago,
  bytes,
  counted,
  duration,
  elapsedMs,
  oneLine,
  short,
  visible,
} from "../src/words.ts";

test("counts name one thing or many", () => {
  expect(counted(1n, "thread")).toBe("1 thread");
  expect(counted(2000, "thread")).toBe("2,000 threads");
});

test("sizes have the unit that makes them short", () => {
  expect(bytes(512)).toBe("512 B");
  expect(bytes(1536n)).toBe("1.5 KiB");
  expect(bytes(5 * 1024 ** 4)).toBe("5.0 TiB");
});

test("moments are told from now", () => {
  const now = Date.UTC(2026, 0, 2);
  expect(ago(timestampFromMs(now - 120_000), now)).toBe("2 minutes ago");
  expect(ago(timestampFromMs(now + 3_600_000), now)).toBe("in 1 hour");
});

test("ages have one unit", () => {
  const now = Date.UTC(2026, 0, 2);
  const old = (seconds: number) => age(timestampFromMs(now - seconds * 1000), now);
  expect([-60, 9, 10, 59, 60, 3599].map(old)).toEqual([
    "now",
    "now",
    "10 s",
    "59 s",
    "1 min",
    "59 min",
  ]);
  expect([3600, 86_400, 30 * 86_400, 360 * 86_400].map(old)).toEqual(["1 h", "1 d", "1 mo", "1 y"]);
});

test("durations have at most two units", () => {
  expect([-5, 0, 4, 274, 9994, 9996].map(duration)).toEqual([
    "0 s",
    "0 s",
    "0.00 s",
    "0.27 s",
    "9.99 s",
    "10.0 s",
  ]);
  expect([59_940, 59_960, 252_000].map(duration)).toEqual(["59.9 s", "1 min 0 s", "4 min 12 s"]);
  expect([18_720_000, 86_399_600, 273_600_000].map(duration)).toEqual([
    "5 h 12 min",
    "1 d 0 h",
    "3 d 4 h",
  ]);
});

test("characters that hide or turn text are shown", () => {
  expect(visible("a\u0000b\u202ec\n")).toBe("a\\u0000b\\u202ec\n");
  expect(oneLine("two\nlines")).toBe("two lines");
  expect(oneLine("x".repeat(400))).toHaveLength(301);
});

test("a long ID keeps what tells it from its neighbours", () => {
  expect(short("1f1e92fb-a69d-68ea-b80a-7b5081ae004b")).toBe("1f1e92fb…004b");
  expect(short("brief")).toBe("brief");
});

test("the time between two moments is exact below a millisecond", () => {
  const from = { ...timestampFromMs(1999), nanos: 999_500_000 };
  expect(elapsedMs(from, timestampFromMs(2000))).toBe(0.5);
});
