import { expect, test } from "vitest";
import { filterOf, inboxOf } from "../src/inbox/filter.ts";
import { inboxLink } from "../src/links.ts";

test("the address of an inbox has its filter", () => {
  const link = inboxLink({ agent: "a&b", thread: "t", state: "all" });
  expect(link).toBe("/inbox?agent=a%26b&thread=t&state=all");
  expect(filterOf({ agent: "a", state: "no-such" })).toEqual({
    agent: "a",
    thread: "",
    unnamed: "",
    state: "",
  });
});

test("an inbox is every inbox, the inbox of an agent, or the inbox of no agent", () => {
  expect(inboxOf(filterOf({}))).toBeUndefined();
  expect(inboxOf(filterOf({ unnamed: "1" }))).toBe("");
  expect(inboxOf(filterOf({ agent: "a", unnamed: "1" }))).toBe("a");
});
