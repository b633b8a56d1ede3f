import { fileURLToPath } from "node:url";
import { fromBinary, toBinary } from "@bufbuild/protobuf";
import { base64Decode, base64Encode } from "@bufbuild/protobuf/wire";
import { FileDescriptorProtoSchema } from "@bufbuild/protobuf/wkt";
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

/** Options that the runtime reads in the descriptors of the contract. */
const READ_OPTIONS: Record<string, string[]> = {
  MessageOptions: ["map_entry"],
  FieldOptions: ["packed"],
  MethodOptions: ["idempotency_level"],
};

const UNREAD = /Options?$|^FeatureSet|CodeInfo$/;

interface DescribedMessage {
  name: string;
  field: { name: string }[];
}

/**
 * Leaves out options that no descriptor of the contract has, 15 kB. The runtime describes protobuf's
 * own descriptors by one literal; a message without fields keeps its place in it.
 */
const readOptionsOnly: Plugin = {
  name: "read-options-only",
  transform: {
    filter: { id: /wkt\/google\/protobuf\/descriptor_pb\.js$/ },
    handler(code) {
      const begin = code.indexOf("boot({") + "boot(".length;
      const end = code.indexOf(");", begin);
      const file: { messageType: DescribedMessage[] } = JSON.parse(code.slice(begin, end));
      const messageType = file.messageType.map((message) => {
        const { name, field } = message;
        const read = READ_OPTIONS[name] ?? [];
        return UNREAD.test(name)
          ? { name, field: field.filter((one) => read.includes(one.name)), ...nestedOf(message) }
          : message;
      });
      const literal = JSON.stringify({ ...file, messageType });
      return { code: code.slice(0, begin) + literal + code.slice(end), map: null };
    },
  },
};

/** The enum that the remaining field of `MethodOptions` has. */
function nestedOf(message: DescribedMessage): object {
  return message.name === "MethodOptions" && "enumType" in message
    ? { enumType: message.enumType }
    : {};
}

/** Messages and enums of the contract that the console neither sends nor reads, by module. */
const UNUSED: Record<string, RegExp> = {
  admin_service_pb: /^AcceptClock/,
  checkpoint_service_pb: /^(Exchange|Hello$|Frame$|Answer$|GetDelta|DeltaChannel)/,
  effect_service_pb: /^(Begin|Complete|Fail|Resolve|GetEffect|AttemptOutcome|OnUnknown)/,
  error_details_pb: /^(?!ErrorInfo$)/,
  errors_pb: /^(ErrorReason|FieldViolation|CallError)$/, // errors carry the names of reasons
  handoff_service_pb: /^(Handoff$|HandoffState|ListHandoffs|WatchHandoffs|WithdrawHandoff)/,
  history_service_pb: /^ReplayThread/,
  snapshot_service_pb: /^GetLatestSnapshot/,
  thread_service_pb: /^(DeleteRuns|PreviewRetention|Retention|EraseThreads)/,
};

/** Leaves the content of unused messages and enums, and unused calls, out of the descriptors, 11 kB. */
const usedMessagesOnly: Plugin = {
  name: "used-messages-only",
  transform: {
    filter: { id: /(tuskpoint\/v1|google\/rpc)\/\w+_pb\.ts$/ },
    handler(code, id) {
      const unused = UNUSED[/(\w+)\.ts$/.exec(id)?.[1] ?? ""];
      const [whole = "", text = ""] = /fileDesc\("([^"]+)"/.exec(code) ?? [];
      if (!unused || !text) {
        return null;
      }
      const file = fromBinary(FileDescriptorProtoSchema, base64Decode(text));
      for (const service of file.service) {
        service.method = service.method.filter(
          ({ inputType }) => !unused.test(inputType.replace(".tuskpoint.v1.", "")),
        );
      }
      // The generated code knows messages by their position: each keeps its place, without its name.
      for (const [n, message] of file.messageType.entries()) {
        if (unused.test(message.name)) {
          Object.assign(message, { name: `M${n}`, field: [], oneofDecl: [], nestedType: [] });
        }
      }
      for (const numbers of file.enumType.filter(({ name }) => unused.test(name))) {
        numbers.value = numbers.value.slice(0, 1);
      }
      const used = base64Encode(toBinary(FileDescriptorProtoSchema, file), "std_raw");
      return { code: code.replace(whole, `fileDesc("${used}"`), map: null };
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
  plugins: [binaryOnly, readOptionsOnly, usedMessagesOnly, lexerOnly],
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
