import { fileURLToPath } from "node:url";
import { defineConfig, type Plugin } from "vite";

const contract = fileURLToPath(new URL("../clients/typescript/src/gen", import.meta.url));

/**
 * Leaves out the JSON form of messages, 33 kB: the console asks for the binary form only, and the
 * Connect protocol's own JSON, for errors, does not use this code.
 */
const binaryOnly: Plugin = {
  name: "binary-messages-only",
  load: {
    filter: { id: /@bufbuild\/protobuf\/dist\/esm\/(from|to)-json\.js$/ },
    handler(id) {
      const name = id.endsWith("from-json.js") ? "fromJson" : "toJson";
      const refuse = `() => { throw new Error("the bundle has no ${name}"); }`;
      return `export const ${name} = ${refuse}; export const ${name}String = ${name};`;
    },
  },
};

/**
 * Leaves out all of `marked` but its lexer, 11 kB. The package is one file; its last statements
 * make an instance that renders HTML, which would keep the rest of the file in the bundle.
 */
const lexerOnly: Plugin = {
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

export default defineConfig({
  plugins: [binaryOnly, lexerOnly],
  resolve: {
    alias: { "@contract": `${contract}/tuskpoint/v1`, "@google": `${contract}/google` },
    // The generated stubs are outside of this package and must not add a second runtime.
    dedupe: ["@bufbuild/protobuf"],
  },
  build: {
    outDir: "../server/src/tuskpoint_server/api/web/assets",
    emptyOutDir: true,
    assetsDir: "static",
    // The licenses of the bundled packages, which every distributor of the bundle must pass on.
    license: { fileName: "licenses.md" },
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    target: "es2022",
    reportCompressedSize: false,
  },
  server: { proxy: { "/tuskpoint.v1.": "http://127.0.0.1:7391" } },
});
