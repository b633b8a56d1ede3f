/**
 * Markdown as elements of the page. No HTML string exists on the way: tokens become elements, and
 * everything else of an agent's text becomes text.
 */
import type { MarkedToken, Token, Tokens } from "marked";
import type { ComponentChildren } from "preact";
import { useMemo, useState } from "preact/hooks";
import { Text } from "../../../parts/json/json_tree.tsx";
import { Copy } from "../../../parts/labels.tsx";
import { count, oneLine, visible } from "../../../words.ts";
import { closed, LONGEST_MARKDOWN, markdownTokens } from "./lexer.ts";
import "./markdown.css";

interface MarkdownProps {
  text: string;
  /** Number of characters after which the rest is folded, at the end of a block. */
  short: number;
}

export function Markdown({ text, short }: MarkdownProps) {
  const tokens = useMemo(() => markdownTokens(text), [text]);
  const [whole, setWhole] = useState(false);
  if (!tokens) {
    const reason = text.length > LONGEST_MARKDOWN ? "long" : "complex";
    return (
      <div class="markdown">
        <Text text={text} short={short} />
        <p class="quiet">Not formatted: the text is too {reason}.</p>
      </div>
    );
  }
  const shown = whole ? tokens : beginning(tokens, short);
  return (
    <div class="markdown">
      {shown.map(block)}
      {shown.length < tokens.length && (
        <button type="button" class="plain markdown-more" onClick={() => setWhole(true)}>
          Show all {count(text.length)} characters
        </button>
      )}
    </div>
  );
}

/** Return the first tokens that have `short` characters together; all tokens if few more follow. */
function beginning(tokens: MarkedToken[], short: number): MarkedToken[] {
  let length = 0;
  let shown = 0;
  for (const [index, { raw }] of tokens.entries()) {
    shown = length < short ? index + 1 : shown;
    length += raw.length;
  }
  return length < short * 1.5 ? tokens : tokens.slice(0, shown);
}

/** Return the element of a block. */
export function block(token: MarkedToken, key: number): ComponentChildren {
  switch (token.type) {
    case "space":
      return null;
    case "heading":
      // Not a heading of the page: the outline of the page is the console's.
      return (
        <p key={key} class={token.depth > 2 ? "markdown-heading low" : "markdown-heading"}>
          {inlines(token)}
        </p>
      );
    case "paragraph":
      return <p key={key}>{inlines(token)}</p>;
    case "code":
      return <CodeBlock key={key} text={token.text} language={token.lang ?? ""} />;
    case "blockquote":
      return <blockquote key={key}>{closed(token.tokens).map(block)}</blockquote>;
    case "list":
      return <List key={key} list={token} />;
    case "table":
      return <Table key={key} table={token} />;
    case "hr":
      return <hr key={key} />;
    default:
      return inline(token, key);
  }
}

function inlines({ tokens }: { tokens: Token[] }): ComponentChildren {
  return closed(tokens).map(inline);
}

function inline(token: MarkedToken, key: number): ComponentChildren {
  switch (token.type) {
    case "strong":
      return <strong key={key}>{inlines(token)}</strong>;
    case "em":
      return <em key={key}>{inlines(token)}</em>;
    case "del":
      return <del key={key}>{inlines(token)}</del>;
    case "codespan":
      return <code key={key}>{visible(token.text)}</code>;
    case "br":
      return <br key={key} />;
    case "link":
      return <Link key={key} link={token} />;
    case "image":
      return <ImageLink key={key} image={token} />;
    case "checkbox": {
      const label = token.checked ? "done" : "not done";
      return (
        <input key={key} type="checkbox" disabled checked={token.checked} aria-label={label} />
      );
    }
    case "text":
      return token.tokens ? closed(token.tokens).map(inline) : visible(token.text);
    case "escape":
      return visible(token.text);
    default:
      return visible(token.raw);
  }
}

function CodeBlock({ text, language }: { text: string; language: string }) {
  const name = oneLine(language, 60);
  return (
    <div class="markdown-code">
      <p class="markdown-code-head">
        <span>{name}</span>
        <Copy text={text} what="the code" />
      </p>
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: the keyboard scrolls the code sideways */}
      <pre tabIndex={0}>
        <code>{visible(text)}</code>
      </pre>
    </div>
  );
}

function List({ list }: { list: Tokens.List }) {
  const items = list.items.map((item, index) => (
    <li key={index} class={item.task ? "markdown-task" : undefined}>
      {closed(item.tokens).map(block)}
    </li>
  ));
  return list.ordered ? <ol start={Number(list.start)}>{items}</ol> : <ul>{items}</ul>;
}

function Table({ table }: { table: Tokens.Table }) {
  if (dropsCells(table)) {
    return <CodeBlock text={table.raw.trim()} language="" />;
  }
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: the keyboard scrolls the table sideways
    <div class="markdown-table" tabIndex={0}>
      <table>
        <thead>
          <tr>
            {table.header.map((cell, index) => (
              <th key={index} class={cell.align ?? undefined}>
                {inlines(cell)}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {table.rows.map((row, line) => (
            <tr key={line}>
              {row.map((cell, index) => (
                <td key={index} class={cell.align ?? undefined}>
                  {inlines(cell)}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

/** Return whether a row has more cells than the header: Markdown drops them, without a trace. */
function dropsCells({ raw, header }: Tokens.Table): boolean {
  return raw.split("\n").some((line) => {
    const row = line.replaceAll("\\|", "").trim().replace(/^\|/, "").replace(/\|$/, "");
    return row.split("|").length > header.length;
  });
}

const PROTOCOLS = ["http:", "https:", "mailto:"];

/** Return the address of a link as a browser would open it; undefined if no link leads there. */
export function linkAddress(text: string): string | undefined {
  const url = URL.canParse(text) ? new URL(text) : undefined;
  return url && PROTOCOLS.includes(url.protocol) ? url.href : undefined;
}

function Link({ link }: { link: Tokens.Link }) {
  const address = linkAddress(link.href);
  if (address === undefined) {
    return (
      <>
        {inlines(link)} <span class="quiet">({oneLine(link.href)})</span>
      </>
    );
  }
  return (
    <a href={address} title={oneLine(address)} target="_blank" rel="noreferrer noopener">
      {inlines(link)}
    </a>
  );
}

/** An image as the link to it: the console loads nothing from other hosts. */
function ImageLink({ image }: { image: Tokens.Image }) {
  const address = linkAddress(image.href);
  const name = image.text ? `Image: ${oneLine(image.text)}` : "Image";
  return (
    <>
      {address === undefined ? (
        name
      ) : (
        <a href={address} title={oneLine(address)} target="_blank" rel="noreferrer noopener">
          {name}
        </a>
      )}{" "}
      <span class="quiet">({oneLine(address ?? image.href, 80)})</span>
    </>
  );
}
