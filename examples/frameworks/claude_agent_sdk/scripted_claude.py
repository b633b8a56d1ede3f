#!/usr/bin/env python3
"""A stand-in for the program that the Claude Agent SDK runs: it answers from a script.

It speaks as much of the program's protocol as a conversation needs: it keeps the transcript in a
file below `CLAUDE_CONFIG_DIR`, reports each line of it to the SDK, and continues from the file that
the SDK writes when a session is resumed.
"""

import json
import os
import re
import sys
from pathlib import Path
from typing import Any
from uuid import uuid4


def option(name: str) -> str:
    """Return the value of an option of the command line; empty if it is absent."""
    words = [part for argument in sys.argv for part in argument.split("=", 1)]
    return words[words.index(f"--{name}") + 1] if f"--{name}" in words else ""


def say(message: dict[str, Any]) -> None:
    """Send a message to the SDK."""
    print(json.dumps(message), flush=True)


class Transcript:
    """The file with the entries of a session.

    Args:
        session_id: The session.
    """

    def __init__(self, session_id: str) -> None:
        project = re.sub("[^a-zA-Z0-9]", "-", os.getcwd())
        folder = Path(os.environ["CLAUDE_CONFIG_DIR"]) / "projects" / project
        folder.mkdir(parents=True, exist_ok=True)
        self._session_id = session_id
        self._file = folder / f"{session_id}.jsonl"
        lines = self._file.read_text().splitlines() if self._file.exists() else []
        self.entries: list[dict[str, Any]] = [json.loads(line) for line in lines]

    def add(self, role: str, content: Any, where: str = "") -> None:
        """Append an entry, and report it to the SDK.

        Args:
            role: Who speaks.
            content: The content of the message.
            where: A subagent, whose transcript is another file.
        """
        entry = {
            "type": role,
            "uuid": str(uuid4()),
            "parentUuid": self.entries[-1]["uuid"] if self.entries and not where else None,
            "sessionId": self._session_id,
            "timestamp": "2026-01-01T00:00:00.000Z",
            "message": {"role": role, "content": content},
        }
        file = self._file
        if where:
            file = self._file.with_suffix("") / "subagents" / f"agent-{where}.jsonl"
            file.parent.mkdir(parents=True, exist_ok=True)
        else:
            self.entries.append(entry)
        with file.open("a") as lines:
            lines.write(json.dumps(entry) + "\n")
        say({"type": "transcript_mirror", "filePath": str(file), "entries": [entry]})


def answer(prompt: str, transcript: Transcript) -> str:
    """Return what the script says to a prompt."""
    first = transcript.entries[0]["message"]["content"]
    if prompt.startswith("research"):
        transcript.add("assistant", "I looked it up.", where="researcher")
    return f"You began with '{first}'; this is entry {len(transcript.entries)}."


def main() -> None:
    """Answer until the SDK closes the input."""
    session_id = option("resume") or option("session-id") or str(uuid4())
    transcript = Transcript(session_id)
    for line in sys.stdin:
        message = json.loads(line)
        if message["type"] == "control_request":
            response = {"subtype": "success", "request_id": message["request_id"], "response": {}}
            say({"type": "control_response", "response": response})
            continue
        prompt = message["message"]["content"]
        transcript.add("user", prompt)
        text = answer(prompt, transcript)
        content = [{"type": "text", "text": text}]
        transcript.add("assistant", content)
        said = {"role": "assistant", "model": "scripted", "content": content}
        say({"type": "assistant", "message": said, "session_id": session_id})
        result = {"duration_ms": 1, "duration_api_ms": 1, "num_turns": 1, "is_error": False}
        say({"type": "result", "subtype": "success", **result, "session_id": session_id})


if __name__ == "__main__":
    main()
