"""The sentences, costs and commands of `why`."""

import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from chunkproof.models.json import display_name
from chunkproof.why.report import Cause


@dataclass(frozen=True)
class Commands:
    """Writes commands that reach the same store or stack; `where` has its options, such as `--data DIR`."""

    query_text: str
    collection: str
    top_k: int
    threshold: float
    filters: Mapping[str, Any]
    where: str = ""
    mode: str | None = None

    def search(self, **changes: Any) -> str:
        """Return the search with other options."""
        now = replace(self, **changes)
        options = [f"-k {now.top_k}"]
        if now.threshold:
            options.append(f"--threshold {now.threshold:g}")
        if now.mode:
            options.append(f"--mode {now.mode}")
        return self.command("search", " ".join([*options, *now.filter_options()]), self.query_text)

    def filter_options(self) -> list[str]:
        """Return the filters as options."""
        return [
            f"--filter {shlex.quote(f'{name}={json.dumps(value, ensure_ascii=False, default=str)}')}"
            for name, value in self.filters.items()
        ]

    def command(self, name: str, options: str = "", argument: str | None = None) -> str:
        """Return a command, quoted for a shell."""
        quoted = "" if argument is None else shlex.quote(argument)
        end = "--" if argument is not None and argument.startswith("-") else ""
        at = f"--collection {shlex.quote(self.collection)}"
        return " ".join(part for part in ("chunkproof", name, options, at, self.where, end, quoted) if part)


def describe_cause(cause: Cause, name: str, collection: str, evidence: str | None) -> str:
    """Say what is wrong, as a clause about the chunk."""
    shown = display_name(name, 80)
    sentences = {
        Cause.NOT_IN_COLLECTION: f"{shown} is not in {collection}",
        Cause.DELETED: f"{shown} was deleted: the snapshot has it, {collection} does not",
        Cause.SPLIT_DIFFERENTLY: f"{shown} was split differently: {evidence}",
        Cause.ID_CHANGED: f"{shown} has another id now",
        Cause.TEXT_CHANGED: f"the text of {shown} was changed",
        Cause.UNREADABLE: f"{shown} is stored without a readable text, so that searches leave it out",
        Cause.STALE_VECTOR: f"the vector of {shown} is not the embedding of its text",
        Cause.OTHER_MODEL: f"the vector of {shown} is another model's",
        Cause.FIELD_RENAMED: f"a field of {shown} was renamed: {evidence}",
        Cause.VALUE_CHANGED: f"a field of {shown} that the filter names has another value",
        Cause.FILTERED_OUT: f"{shown} is stored, but the filter on {evidence or 'some fields'} excludes it",
        Cause.MISSED_BY_INDEX: f"{shown} was missed by the index",
        Cause.DUPLICATES: f"near-duplicates take the places before {shown}",
        Cause.OTHER_LEG: f"what the search compares does not find {shown}",
        Cause.RERANKED: f"the reranking puts {shown} behind others",
        Cause.LEFT_OUT: f"{shown} is left out for results that are more different",
        Cause.BELOW_THRESHOLD: f"{shown} scores less than the threshold",
        Cause.BEYOND_TOP_K: f"{shown} is outranked: other chunks are nearer to the question",
    }
    sentence = sentences[cause]
    in_sentence = cause in (Cause.SPLIT_DIFFERENTLY, Cause.FIELD_RENAMED, Cause.FILTERED_OUT)
    return sentence if in_sentence or not evidence else f"{sentence} ({evidence})"
