"""A protoc plugin that writes gRPC's Python stubs (``*_pb2_grpc.py``).

The generator of those stubs is compiled into grpcio-tools and is not a plugin of its own, and buf
does not count it among protoc's built-in generators. This program reads a
``CodeGeneratorRequest`` on stdin, passes its descriptors to ``grpc_tools.protoc`` and returns the
written files. It runs in the generator's environment (requirements/generate.in).
"""

import sys
import tempfile
from pathlib import Path

from google.protobuf.compiler import plugin_pb2
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from grpc_tools import protoc


def generate(request: plugin_pb2.CodeGeneratorRequest) -> plugin_pb2.CodeGeneratorResponse:
    """Run protoc's grpc_python generator on the request's own descriptors."""
    response = plugin_pb2.CodeGeneratorResponse(
        supported_features=plugin_pb2.CodeGeneratorResponse.FEATURE_PROTO3_OPTIONAL
    )
    with tempfile.TemporaryDirectory() as scratch:
        descriptors = Path(scratch, "descriptors.binpb")
        descriptors.write_bytes(FileDescriptorSet(file=request.proto_file).SerializeToString())
        out = Path(scratch, "out")
        out.mkdir()
        prefix = f"{request.parameter}:" if request.parameter else ""
        status = protoc.main(
            [
                "protoc",
                f"--descriptor_set_in={descriptors}",
                f"--grpc_python_out={prefix}{out}",
                *request.file_to_generate,
            ]
        )
        if status != 0:
            response.error = f"grpc_python: protoc ended with status {status}"
            return response
        for path in sorted(out.rglob("*.py")):
            name = path.relative_to(out).as_posix()
            response.file.add(name=name, content=path.read_text(encoding="utf-8"))
    return response


def main() -> None:
    """Answer the request that protoc or buf sends on stdin."""
    request = plugin_pb2.CodeGeneratorRequest.FromString(sys.stdin.buffer.read())
    sys.stdout.buffer.write(generate(request).SerializeToString())


if __name__ == "__main__":
    main()
