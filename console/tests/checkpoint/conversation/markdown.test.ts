import { type ComponentChild, type ComponentChildren, isValidElement, type VNode } from "preact";
import { expect, test, vi } from "vitest";
import {
  LONGEST_MARKDOWN,
  markdownTokens,
} from "../../../src/checkpoint/conversation/markdown/lexer.ts";
import { block } from "../../../src/checkpoint/conversation/markdown/markdown.tsx";

vi.hoisted(() => vi.stubGlobal("window", globalThis));

/** Everything that Markdown may become. */
const ELEMENTS = new Set(
  (
    "p strong em del code pre br hr a ul ol li blockquote span input div " +
    "table thead tbody tr th td Copy"
  ).split(" "),
);
const ATTRIBUTES = new Set(
  "key class children href title target rel type disabled checked aria-label start tabIndex text what".split(
    " ",
  ),
);

interface Walked {
  /** The page as text, with elements in angle brackets. */
  told: string;
  text: string;
  links: string[];
  elements: number;
  depth: number;
}

/** Return what the page shows for a text; fail if it has an element or attribute that it must not. */
function shown(text: string): Walked {
  const tokens = markdownTokens(text);
  const walked: Walked = { told: "", text: "", links: [], elements: 0, depth: 0 };
  expect(tokens).toBeDefined();
  walk((tokens ?? []).map(block), walked, 1);
  return walked;
}

function walk(children: ComponentChildren, into: Walked, depth: number): void {
  for (const child of Array.isArray(children) ? children : [children]) {
    if (Array.isArray(child)) {
      walk(child, into, depth);
    } else if (isValidElement(child)) {
      element(child, into, depth);
    } else if (typeof child === "string") {
      into.told += child;
      into.text += child;
    } else {
      expect([null, undefined, false]).toContain(child);
    }
  }
}

function element({ type, props }: VNode<object>, into: Walked, depth: number): void {
  const { children } = props as { children?: ComponentChildren };
  if (typeof type === "function" && type.name !== "Copy") {
    const component = type as (props: object) => ComponentChild;
    walk(type.name ? component(props) : children, into, depth);
    return;
  }
  const name = typeof type === "string" ? type : type.name;
  expect(ELEMENTS).toContain(name);
  for (const attribute of Object.keys(props)) {
    expect(ATTRIBUTES).toContain(attribute);
  }
  const { href } = props as { href?: string };
  if (href !== undefined) {
    into.links.push(href);
  }
  into.elements += 1;
  into.depth = Math.max(into.depth, depth);
  into.told += `<${name}>`;
  walk(children, into, depth + 1);
  into.told += `</${name}>`;
}

test.each<[string, string]>([
  [
    "**a** *b* ~~c~~ `d*` snake_case_name",
    "<p><strong>a</strong> <em>b</em> <del>c</del> <code>d*</code> snake_case_name</p>",
  ],
  ["# a\n\nb\nc", "<p>a</p><p>b<br></br>c</p>"],
  ["- a\n  1. b\n- [x] c", "<ul><li>a<ol><li>b</li></ol></li><li><input></input>c</li></ul>"],
  ["> a\n\n---", "<blockquote><p>a</p></blockquote><hr></hr>"],
  [
    "| a |\n|--:|\n| b |",
    "<div><table><thead><tr><th>a</th></tr></thead><tbody><tr><td>b</td></tr></tbody></table></div>",
  ],
  [
    "```js x\na < b\n```",
    "<div><p><span>js x</span><Copy></Copy></p><pre><code>a < b</code></pre></div>",
  ],
  ["[a](http://b.c/d_(e))", "<p><a>a</a></p>"],
  ["http://b.c/?d=e.", "<p><a>http://b.c/?d=e</a>.</p>"],
  ["![a](https://b.c/d.png)", "<p><a>Image: a</a> <span>(https://b.c/d.png)</span></p>"],
])("%j is formatted", (text, told) => {
  expect(shown(text).told).toBe(told);
});

test.each<[string, string]>([
  ["<b>a</b> <script>alert(1)</script>", "<b>a</b> <script>alert(1)</script>"],
  ["<div onclick=x>\n**a**\n</div>", "<div onclick=x>a</div>"],
  ["[a]: http://b.c\n\n[a] [d][a] e[^1]", "[a]: http://b.c[a] [d][a] e[^1]"],
  ["a\u0007\u202eb `c\u202e`", "a\\u0007\\u202eb c\\u202e"],
  ["&#x202e;&#7;", "\\u202e\\u0007"],
  ["| a |\n|---|\n| b | secret |", "| a |\n|---|\n| b | secret |"],
])("%j stays text", (text, visible) => {
  expect(shown(text).text).toBe(visible);
});

test.each([
  "[a](javascript:alert(1))",
  "[a](JaVaScRiPt:alert(1))",
  "[a](java\tscript:alert(1))",
  "[a](<java\nscript:alert(1)>)",
  "[a](javascript&#58;alert(1))",
  "[a](data:text/html,x)",
  "![a](data:image/png;base64,AAAA)",
  "![a](javascript:alert(1))",
  "[a](vbscript:x)",
  "[a](file:///etc/passwd)",
  "[a](blob:http://b.c/d)",
  "[a](//b.c)",
  "[a](/threads)",
  "[a](#b)",
  "<javascript:alert(1)>",
  "[a](\u0001javascript:alert(1))",
])("%j does not become a link", (text) => {
  expect(shown(text).links).toEqual([]);
});

test("a token of a kind that is not known is its text", () => {
  expect(block({ type: "html", raw: "<b>", text: "", pre: false, block: true }, 0)).toBe("<b>");
});

test("links show where they lead, and nothing of their text is lost", () => {
  const { links } = shown("[https://good.example](https://good.example@b\u00e4d.example/\u202e)");
  expect(links).toEqual(["https://good.example@xn--bd-via.example/%E2%80%AE"]);
  expect(shown("[a](javascript:b)").text).toBe("a (javascript:b)");
  expect(shown("[a](mailto:b@c.example)").links).toEqual(["mailto:b@c.example"]);
});

/** Texts that are made to take a parser long, or deep; each is repeated. */
const HOSTILE = [
  ..."[ ] ( ) * _ ~ ` < > | # - + = ! \\ & @ \n \t".split(" "),
  "[a](",
  "![[",
  "**a ",
  "*a_ ",
  "**a*",
  "*_",
  "> ",
  "- ",
  "1. ",
  "> - ",
  "`a",
  "```\n",
  "~~a ",
  "|a",
  "|-",
  "a|b\n-|-\n",
  "|a|\n|-|\n",
  "<a ",
  "<!--",
  "<![CDATA[",
  "<div>\n",
  "http://a.",
  "a@b",
  "a-_.+",
  "[a]: b\n",
  '[a]: b "',
  "- [ ] a\n",
  "-\n\n",
  "> a\n>> b\n",
  "* a\n  * b\n    * c\n",
  "- a\n\n",
  "&#65;\n",
  "x",
  "x ",
  " ",
  "\n",
  "a\n=\n",
  "*a [b](c ",
  "\u{1f600}**",
  "[[a]]",
];
const SHAPES: Record<string, (unit: string, length: number) => string> = {
  repeated: (unit, length) => unit.repeat(Math.ceil(length / unit.length)).slice(0, length),
  closed: (unit, length) =>
    `${unit.repeat(Math.floor(length / unit.length / 2))}${"*])`~>".repeat(length / 12)}`,
  indented: (unit, length) => {
    const lines = Array.from({ length: 1000 }, (_, index) => " ".repeat(index % 80) + unit);
    return lines.join("\n").slice(0, length);
  },
};

vi.setConfig({ testTimeout: 60_000 });

test.each(Object.keys(SHAPES))("hostile texts, %s, have bounded pages", (shape) => {
  let formatted = 0;
  for (const unit of HOSTILE) {
    for (const length of [500, LONGEST_MARKDOWN]) {
      const text = (SHAPES[shape]?.(unit, length) ?? "").slice(0, length);
      if (markdownTokens(text)) {
        const { elements, depth } = shown(text);
        expect(elements).toBeLessThan(10_000);
        expect(depth).toBeLessThan(40);
        formatted += 1;
      }
    }
  }
  expect(formatted).toBeGreaterThan(HOSTILE.length / 2);
});

test.each(["[", "**", "> ", "- ", "|a", "`", "x"])("5 MiB of %j are not parsed", (unit) => {
  expect(markdownTokens(unit.repeat((5 * 1024 * 1024) / unit.length))).toBeUndefined();
});

test("nesting and emphasis end at a depth, and what is deeper is text", () => {
  for (const text of [
    `${"> ".repeat(99)}end`,
    `${"- ".repeat(99)}end`,
    `${"*a **b ".repeat(30)}end${" b** a*".repeat(30)}`,
  ]) {
    const { text: visible, depth } = shown(text);
    expect(depth).toBeLessThan(40);
    expect(visible).toContain("end");
  }
  expect(markdownTokens("> ".repeat(10_000))).toBeUndefined();
  expect(markdownTokens("- ".repeat(10_000))).toBeUndefined();
});

test("no letter of a text is lost", () => {
  let seed = 7;
  const random = (below: number) => {
    seed = (seed * 1_103_515_245 + 12_345) % 2_147_483_648;
    return seed % below;
  };
  const pieces = [
    ..."*_~`#>-|[]()!\\<:",
    "\n",
    "\n\n",
    " ",
    "    ",
    "- ",
    "> ",
    "```\n",
    "|-|-|\n",
    "**",
    "a",
    "b c",
    "xyz",
  ];
  for (let run = 0; run < 500; run += 1) {
    const text = Array.from({ length: 30 }, () => pieces[random(pieces.length)]).join("");
    const letters = (of: string) => of.replace(/[^a-z]/g, "");
    expect(letters(shown(text).text), JSON.stringify(text)).toBe(letters(text));
  }
});
