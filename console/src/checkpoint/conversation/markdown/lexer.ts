/** Markdown text to tokens, in bounded time for any text. Pure. */
import { Lexer, type MarkedToken, type Token, Tokenizer, type TokensList } from "marked";

export const LONGEST_MARKDOWN = 20_000; // characters; longer texts are shown as plain text
const MOST_LINES = 1000;
const DEEPEST = 12; // lists and quotes inside each other, and emphasis inside emphasis
const LONGEST_INLINE = 4000; // characters of a paragraph, a heading or a cell
const MOST_MARKS = 400; // of a paragraph; the time to pair the marks grows with their square
const MOST_TOKENS = 3000; // of a text; each becomes about one element of the page

/** A line of lists and quotes inside each other: the library's time grows with their square. */
const NESTED = /(?:(?:[-*+]|\d{1,9}[.)])[ \t]+|>[ \t]*){100}/;
const MARKS = /[*_~`[\]()<>@\\&]/g;

/** Tokenizer of Markdown without HTML and without definitions of links: both stay text. */
class TextTokenizer extends Tokenizer {
  override html(): undefined {
    return undefined;
  }

  override tag(): undefined {
    return undefined;
  }

  override def(): undefined {
    return undefined;
  }

  override reflink(): undefined {
    return undefined;
  }
}

/** Lexer that leaves as text what is too deep, too long or has too many marks. */
class BoundedLexer extends Lexer {
  #depth = 0;

  override blockTokens(src: string, tokens?: Token[], clipped?: boolean): Token[];
  override blockTokens(src: string, tokens?: TokensList, clipped?: boolean): TokensList;
  override blockTokens(src: string, tokens: Token[] = [], clipped = false): Token[] {
    return this.#bounded(src, tokens, () => super.blockTokens(src, tokens, clipped));
  }

  override inlineTokens(src: string, tokens: Token[] = []): Token[] {
    const isLong = src.length > LONGEST_INLINE || (src.match(MARKS)?.length ?? 0) > MOST_MARKS;
    return isLong
      ? withText(tokens, src)
      : this.#bounded(src, tokens, () => super.inlineTokens(src, tokens));
  }

  #bounded(src: string, tokens: Token[], lex: () => Token[]): Token[] {
    if (this.#depth >= DEEPEST) {
      return withText(tokens, src);
    }
    this.#depth += 1;
    try {
      return lex();
    } finally {
      this.#depth -= 1;
    }
  }
}

function withText(tokens: Token[], text: string): Token[] {
  tokens.push({ type: "text", raw: text, text });
  return tokens;
}

/** Return the tokens of a text; undefined if the text is too long, too complex, or fails to parse. */
export function markdownTokens(text: string): MarkedToken[] | undefined {
  if (text.length > LONGEST_MARKDOWN || lines(text) > MOST_LINES || NESTED.test(text)) {
    return undefined;
  }
  const lexer = new BoundedLexer({ gfm: true, breaks: true, tokenizer: new TextTokenizer() });
  try {
    const tokens = closed(lexer.lex(text));
    return size(tokens) <= MOST_TOKENS ? tokens : undefined;
  } catch {
    return undefined; // Whatever a hostile text does to the library, the text itself is shown.
  }
}

function lines(text: string): number {
  return text.split("\n", MOST_LINES + 2).length;
}

/** Return tokens with the type that a lexer without extensions gives them: a closed set of kinds. */
export function closed(tokens: readonly Token[] = []): MarkedToken[] {
  return tokens as MarkedToken[];
}

/** Return the number of the tokens and of all tokens inside. */
function size(tokens: MarkedToken[]): number {
  return tokens.reduce((sum, token) => sum + 1 + inside(token), 0);
}

function inside(token: MarkedToken): number {
  switch (token.type) {
    case "list":
      return size(token.items);
    case "table":
      return [token.header, ...token.rows]
        .flat()
        .reduce((sum, cell) => sum + 1 + size(closed(cell.tokens)), 0);
    default:
      return "tokens" in token ? size(closed(token.tokens)) : 0;
  }
}
