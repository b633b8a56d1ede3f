import { timestampFromMs } from "@bufbuild/protobuf/wkt";
import { expect, test } from "vitest";
import { ago, bytes, counted, oneLine, short, visible } from "../src/words.ts";

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

test("characters that hide or turn text are shown", () => {
  expect(visible("a\u0000b\u202ec\n")).toBe("a\\u0000b\\u202ec\n");
  expect(oneLine("two\nlines")).toBe("two lines");
  expect(oneLine("x".repeat(400))).toHaveLength(301);
});

test("a long ID keeps what tells it from its neighbours", () => {
  expect(short("1f1e92fb-a69d-68ea-b80a-7b5081ae004b")).toBe("1f1e92fb…004b");
  expect(short("brief")).toBe("brief");
});
