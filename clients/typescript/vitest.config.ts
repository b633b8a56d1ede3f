import { defineConfig } from "vitest/config";

const root = new URL(".", import.meta.url);

export default defineConfig({
  // Examples import the package by its name.
  resolve: {
    alias: [{ find: /^tuskpoint$/, replacement: new URL("src/index.ts", root).pathname }],
  },
  test: {
    include: ["tests/**/*.test.ts"],
    // Servers of their own are started before the first test and in some tests.
    hookTimeout: 30_000,
    testTimeout: 20_000,
    // Two, because a server and a client keep a core busy together.
    maxWorkers: 2,
  },
});
