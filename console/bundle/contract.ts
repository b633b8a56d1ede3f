/** Plugins that make the generated contract and its runtime smaller. */
import { createHash } from "node:crypto";
import { fromBinary, toBinary } from "@bufbuild/protobuf";
import { base64Decode, base64Encode } from "@bufbuild/protobuf/wire";
import {
  type DescriptorProto,
  type EnumDescriptorProto,
  FileDescriptorProtoSchema,
} from "@bufbuild/protobuf/wkt";
import type { Plugin } from "vite";

/**
 * Leaves out the JSON form of messages, 33 kB: the console asks for the binary form only, and the
 * Connect protocol's own JSON, for errors, does not use this code.
 */
export const binaryOnly: Plugin = {
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

/** An enum as the TypeScript compiler writes it, which no bundler may leave out. */
const ENUM = /export var (\w+);\n\(function \(\1\) \{([\s\S]*?)\n\}\)\(\1 \|\| \(\1 = \{\}\)\);/g;

interface DescribedMessage {
  name: string;
  field: { name: string }[];
}

/**
 * Leaves out options that no descriptor of the contract has, 15 kB, and unused enums, 4 kB. The
 * runtime describes protobuf's own descriptors by one literal; a message without fields keeps its
 * place in it.
 */
export const readOptionsOnly: Plugin = {
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
      const enums = code
        .slice(end)
        .replace(ENUM, "export var $1 = /* @__PURE__ */ (($1) => {$2 return $1; })({});");
      return { code: code.slice(0, begin) + literal + enums, map: null };
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
  effect_service_pb: /^(Begin|Complete|Fail|GetEffect|AttemptOutcome|OnUnknown)/,
  error_details_pb: /^(?!ErrorInfo$)/,
  errors_pb: /^(ErrorReason|FieldViolation|CallError)$/, // errors carry the names of reasons
  history_service_pb: /^ReplayThread/,
  snapshot_service_pb: /^GetLatestSnapshot/,
  thread_service_pb: /^(DeleteRuns|PreviewRetention|Retention|EraseThreads)/,
};

const names = new Map<string, string>();

/** Return a short name: nothing but other descriptors asks for the names of messages and enums. */
function shortName(name: string): string {
  const short = createHash("sha256").update(name).digest("base64url").slice(0, 3);
  if ((names.get(short) ?? name) !== name) {
    throw new Error(`${name} and ${names.get(short)} have one short name: take more characters`);
  }
  names.set(short, name);
  return short;
}

/** Return a reference to a message or an enum, by its short name if it is of the contract. */
function withShortName(type: string): string {
  return type.replace(/^\.tuskpoint\.v1\.(\w+)/, (_, name) => `.${shortName(name)}`);
}

/** Give a message or an enum its short name, and its fields the short names of their types. */
function shorten(described: DescriptorProto | EnumDescriptorProto): void {
  described.name = shortName(described.name);
  if ("field" in described) {
    for (const field of [described, ...described.nestedType].flatMap((message) => message.field)) {
      field.typeName = withShortName(field.typeName);
    }
  }
}

/** Leaves the content of unused messages, unused calls and the values of enums out of the descriptors. */
export const usedMessagesOnly: Plugin = {
  name: "used-messages-only",
  transform: {
    filter: { id: /(tuskpoint\/v1|google\/rpc)\/\w+_pb\.ts$/ },
    handler(code, id) {
      const unused = UNUSED[/(\w+)\.ts$/.exec(id)?.[1] ?? ""] ?? /^$/;
      const [whole = "", text = ""] = /fileDesc\("([^"]+)"/.exec(code) ?? [];
      if (!text) {
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
      for (const numbers of file.enumType) {
        numbers.value = numbers.value.slice(0, 1); // the generated code has the names and numbers
      }
      if (file.package === "tuskpoint.v1") {
        file.package = ""; // each reference would repeat it; only services need it, in addresses
        for (const service of file.service) {
          service.name = `tuskpoint.v1.${service.name}`;
        }
        file.messageType.forEach(shorten);
        file.enumType.forEach(shorten);
        for (const method of file.service.flatMap((service) => service.method)) {
          method.inputType = withShortName(method.inputType);
          method.outputType = withShortName(method.outputType);
        }
      }
      const used = base64Encode(toBinary(FileDescriptorProtoSchema, file), "std_raw");
      return { code: code.replace(whole, `fileDesc("${used}"`), map: null };
    },
  },
};
