/** The lines of code that continue a run in the program that has its graph. Pure. */

/** Return the line of Python that continues a graph from the head of its thread. */
export function pythonLine(threadId: string): string {
  return `graph.invoke(None, {"configurable": {"thread_id": ${quoted(threadId, pythonEscape)}}})`;
}

/** Return the line of TypeScript that continues a graph from the head of its thread. */
export function typescriptLine(threadId: string): string {
  const id = quoted(threadId, typescriptEscape);
  return `await graph.invoke(null, { configurable: { thread_id: ${id} } });`;
}

/** Characters that are invisible, or change the direction of text; emoji need U+200D. */
const UNSEEN = /(?!\u200d)[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu;

/** JSON's escapes mean the same in Python and in TypeScript; JSON leaves most unseen characters. */
function quoted(text: string, escapeOf: (code: number) => string): string {
  return JSON.stringify(text).replace(UNSEEN, (unseen) => escapeOf(unseen.codePointAt(0) ?? 0));
}

function pythonEscape(code: number): string {
  return code > 0xffff ? `\\U${hex(code, 8)}` : `\\u${hex(code, 4)}`;
}

function typescriptEscape(code: number): string {
  return code > 0xffff ? `\\u{${hex(code, 1)}}` : `\\u${hex(code, 4)}`;
}

function hex(code: number, digits: number): string {
  return code.toString(16).padStart(digits, "0");
}
