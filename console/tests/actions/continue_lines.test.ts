import { expect, test } from "vitest";
import { pythonLine, typescriptLine } from "../../src/actions/what_next/continue_lines.ts";

const ODD = `a'b"c\\\n\t\u0007\u007f\u0085\u202e\u2028é\u{1f469}\u200d\u{1f680}\u{e0041}\${x}\``;

/** Return the config that a line of TypeScript hands to a graph. */
async function configOf(line: string): Promise<unknown> {
  const run = new Function("graph", `return async () => { return ${line} }`);
  return await run({ invoke: (_: null, config: unknown) => config })();
}

test("the lines name the thread", () => {
  expect(pythonLine("t")).toBe('graph.invoke(None, {"configurable": {"thread_id": "t"}})');
  expect(typescriptLine("t")).toBe(
    'await graph.invoke(null, { configurable: { thread_id: "t" } });',
  );
});

test("Python quotes what nobody can see or type", () => {
  expect(pythonLine("a'b\"c\n")).toBe(
    String.raw`graph.invoke(None, {"configurable": {"thread_id": "a'b\"c\n"}})`,
  );
  expect(pythonLine("\u202e\u2028\u0085\u{e0041}")).toContain(
    String.raw`"\u202e\u2028\u0085\U000e0041"`,
  );
});

test("TypeScript reads the name that was quoted", async () => {
  expect(await configOf(typescriptLine(ODD))).toEqual({ configurable: { thread_id: ODD } });
});

test("no line has a break or an invisible character besides the joiner of emoji", () => {
  for (const line of [pythonLine(ODD), typescriptLine(ODD)]) {
    expect(line.replaceAll("\u200d", "")).not.toMatch(/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/u);
  }
});
