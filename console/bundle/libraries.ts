/** Plugins that make the libraries, and the code that calls them, smaller. */
import type { Plugin } from "vite";

/**
 * Leaves out all of `marked` but its lexer, 11 kB. The package is one file; its last statements
 * make an instance that renders HTML, which would keep the rest of the file in the bundle.
 */
export const lexerOnly: Plugin = {
  name: "lexer-of-marked-only",
  transform: {
    filter: { id: /marked\.esm\.js$/ },
    handler(code) {
      const instance = /;var \w+=new \w+;function \w+\(/.exec(code);
      const lexer = /[{,](\w+) as Lexer[,}]/.exec(code);
      const tokenizer = /[{,](\w+) as Tokenizer[,}]/.exec(code);
      if (!instance || !lexer || !tokenizer) {
        throw new Error("marked has another form: adapt or remove this plugin");
      }
      const exported = `export{${lexer[1]} as Lexer,${tokenizer[1]} as Tokenizer};`;
      return { code: `${code.slice(0, instance.index)};${exported}`, map: null };
    },
  },
};

/** How JSX becomes code: `h("p", null, "text")` is shorter than `jsx("p", { children: "text" })`, 11 kB. */
export const shortElements = {
  jsx: { runtime: "classic", development: false, pragma: "_h", pragmaFrag: "_Fragment" },
} as const;

/** Imports the functions that `shortElements` calls into every module with JSX. */
export const importElements: Plugin = {
  name: "import-elements",
  enforce: "pre",
  transform: {
    filter: { id: /\/console\/(src|tests)\/.*\.tsx$/ },
    handler: (code) => ({
      code: `${code}\nimport { Fragment as _Fragment, h as _h } from "preact";`,
      map: null,
    }),
  },
};
