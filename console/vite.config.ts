import { fileURLToPath } from "node:url";
import { defineConfig } from "vite";
import { binaryOnly, readOptionsOnly, usedMessagesOnly } from "./bundle/contract.ts";
import { importElements, lexerOnly, shortElements } from "./bundle/libraries.ts";

const contract = fileURLToPath(new URL("../clients/typescript/src/gen", import.meta.url));

export default defineConfig({
  plugins: [binaryOnly, readOptionsOnly, usedMessagesOnly, lexerOnly, importElements],
  oxc: shortElements,
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
