import { defineConfig } from "vitest/config";

const root = new URL(".", import.meta.url);

export default defineConfig({
  // Examples import the package by its name.
  resolve: {
    alias: [
      { find: /^tuskpoint$/, replacement: new URL("src/index.ts", root).pathname },
      {
        find: /^tuskpoint\/v1\/(.*)$/,
        replacement: new URL("src/gen/tuskpoint/v1/$1_pb.ts", root).pathname,
      },
      {
        find: /^tuskpoint\/rpc\/(.*)$/,
        replacement: new URL("src/gen/google/rpc/$1_pb.ts", root).pathname,
      },
    ],
  },
  test: {
    include: ["tests/**/*.test.ts"],
    // Servers are started before the first test and in some tests, which is slow on a busy machine.
    hookTimeout: 120_000,
    testTimeout: 120_000,
    // Two workers, because a server and a client together keep a core busy.
    maxWorkers: 2,
  },
});
