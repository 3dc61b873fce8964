"""
The register of what the interface description leaves open.

The description marks 23 places `not shown`. Each has a row here: what it says, what we do, why, and
the one file to change when its owner answers. Code that depends on a row carries a comment with
`Unspecified:` and the row's id; a test keeps both in step, and OPEN_QUESTIONS.md equal to this register.

`python -m gateway_site.api.openapi.open_questions` prints that document.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class OpenQuestion:
    id: str
    question: str
    words: str  # the description's own, so that the place can be found
    choice: str
    evidence: str
    where: str | None  # the file that holds the choice; None while nothing is built on it


QUESTIONS = [
    OpenQuestion(
        "response-status",
        "Values of a response's `status` other than `completed`",
        "Values of `status` other than `completed`: not shown.",
        "`incomplete` where the answer was cut at its bound or by a filter; in streams also `in_progress`, "
        "and `failed` after an error",
        "pinned: the OpenAI SDK's `ResponseStatus`, less what belongs to background work",
        "inference/dialects/responses/response.py",
    ),
    OpenQuestion(
        "effective-policy-source",
        "Values of an effective policy's `source` other than `organization`",
        "Other values of `source`: not shown.",
        "Only `organization` is given: every policy is the organization's, whatever its scope",
        "open: no public contract has this resource",
        "policies/serializers.py",
    ),
    OpenQuestion(
        "project-record",
        "Fields of the project record",
        "Fields of the project record itself: not shown beyond the identifier returned on archive.",
        "No route returns a project; operators see it in the console",
        "open: no route of the description needs it",
        None,
    ),
    OpenQuestion(
        "sampling-limits",
        "Contents of a model's `sampling_limits`",
        "Contents of sampling_limits: not shown.",
        "An empty object, whose `sampling_limits_revision` is `0`",
        "open: no public schema has the field; SDKs ignore it",
        "inference/serializers.py",
    ),
    OpenQuestion(
        "policy-publication",
        "Publishing, resuming, and the mode after publication",
        "Publish, resume and the choice between monitoring and enforcing after publication: not shown.",
        "No route; operators publish and resume in the console and by command. The state is then the "
        "published mode",
        "open: no public contract has this resource",
        "policies/services.py",
    ),
    OpenQuestion(
        "key-transitions",
        "Transitions among revoked, expired and suspended keys",
        "Transitions among revoked, expired and suspended: not shown.",
        "Revocation is final; expiry comes with time; suspension can be taken back; shown in that order",
        "open: the smallest reading in which each word keeps its meaning",
        "organization/models.py",
    ),
    OpenQuestion(
        "creation-status",
        "Success status of the creation endpoints",
        "Numeric success status codes of the creation endpoints (policy draft, project key): not shown.",
        "200, for a creation and for its replay",
        "suggested: every creation of OpenAI's administration API answers 200; SDKs take any 2xx with a body",
        "organization/views.py",
    ),
    OpenQuestion(
        "unshown-endpoints",
        "Endpoints for probes, credits, limits, creation, listing, usage reports, publishing",
        "Endpoints for health probes, credits, spending limits, project creation and listing, model "
        "listing, project and admin key creation and retrieval, usage reports, policy listing and "
        "publishing: not shown.",
        "No route is invented under `/v1`; the capabilities are in the console and in `manage.py`. Probes "
        "are `/healthz` and `/readyz`. `GET /v1/models` is a labelled extension, off with "
        "`GATEWAY_EXTENSIONS=false`",
        "open; the OpenAI SDK pins the list of models",
        "gateway_site/health.py",
    ),
    OpenQuestion(
        "responses-fields",
        "Body fields of `POST /v1/responses`",
        "Full list of body fields and their names beyond those above: not shown.",
        "Those that the description has a clue for, under the SDK's names, and what a stateless answer "
        "needs: `instructions`, `text`, `reasoning`, `metadata`, `stream`. Others are refused by name. "
        "`truncation: auto` drops nothing: an input that is too long is a 400 either way",
        "pinned: the OpenAI SDK's names",
        "inference/dialects/responses/request.py",
    ),
    OpenQuestion(
        "messages-headers",
        "Names of the Messages version, beta and session headers",
        "Their exact names: not shown.",
        "`anthropic-version` (optional, any value), `anthropic-beta` (at most 512 characters), and the "
        "session header of chat",
        "pinned: the Anthropic SDK sends these two",
        "inference/serving/count_tokens_consumer.py",
    ),
    OpenQuestion(
        "count-tokens-fields",
        "Body fields of token counting",
        "Full body fields beyond these: not shown.",
        "All of the Anthropic SDK's, of its usual client and of its beta one; tools are custom ones, and web "
        "search and fetch under the description's names and the SDK's",
        "pinned: the Anthropic SDK's names",
        "inference/dialects/messages/request.py",
    ),
    OpenQuestion(
        "model-status-codes",
        "Status codes of reading one model",
        "Errors: an error envelope; status codes not shown here (see Errors).",
        "401, 403 and 404 by the description's general rules; 400, 413, 429, 500 and 503 as on every route",
        "suggested: the SDKs map statuses by number alone",
        "gateway_site/api/openapi/document.py",
    ),
    OpenQuestion(
        "key-name-length",
        "Bounds of a project key's `name`",
        "Length bounds of `name`: not shown.",
        "1 to 200 characters, not blank",
        "open: what the column holds",
        "organization/services.py",
    ),
    OpenQuestion(
        "admin-key-list-parameters",
        "Query names of the admin key list",
        "Names of the query parameters: not shown.",
        "`after`, `limit` (default 20) and `order`",
        "pinned: the OpenAI SDK sends these",
        "gateway_site/api/pagination.py",
    ),
    OpenQuestion(
        "cost-parameters",
        "Query names of the cost report, and its buckets where it begins or ends within a day",
        "Names of these query parameters: not shown.",
        "`start_time` (required), `end_time`, `bucket_width` (`1d`), `project_ids`, `api_key_ids`, "
        "`group_by`, `limit` (default 7), `page`; lists repeated, with commas, or as `name[]`. A bucket is a "
        "UTC day, or the part of it between the bounds: `start_time` and `end_time` say which",
        "names pinned: the OpenAI SDK sends these, lists as `name[]`; buckets open: the bounds are seconds "
        "and the buckets daily, and only if buckets are cut off at the bounds do adjacent reports add up",
        "billing/reports/query.py",
    ),
    OpenQuestion(
        "customer-header-key",
        "Header of the scheme `customerHeaderKey`",
        "The header name and format of `customerHeaderKey`: not shown.",
        "`X-Api-Key`, the bare key",
        "suggested: the Anthropic SDK up to 1.x sends this",
        "organization/authentication.py",
    ),
    OpenQuestion(
        "key-permissions",
        "How permissions are assigned to a created key",
        "How permissions are assigned to a created key: not shown.",
        "A key gets every permission of its kind; an operator may name fewer, a request body none",
        "open: the description's creation body has `name` alone",
        "organization/services.py",
    ),
    OpenQuestion(
        "stream-events",
        "Names and shapes of streamed records",
        "Event names and payload shapes of the SSE records: not shown.",
        "Chat: records without a name whose `data` is a `chat.completion.chunk`, then `[DONE]`; a failure "
        "is a record with the error envelope and no `[DONE]`, a comment keeps a silent stream alive",
        "pinned: the OpenAI SDK reads chunks so, and raises on a record with `error`",
        "inference/dialects/chat/stream.py",
    ),
    OpenQuestion(
        "webhooks",
        "Outbound notifications",
        "Outbound event notifications (webhooks): not shown.",
        "There are none",
        "open",
        None,
    ),
    OpenQuestion(
        "error-codes",
        "Values of `code`, and of `type` other than `policy_error`",
        "Values of the `code` field and of `type` other than `policy_error`: not shown.",
        "The types are the Anthropic SDK's words, the codes our own; both in one file",
        "suggested: that SDK has a closed list of types; no SDK branches on `code`",
        "gateway_site/api/errors.py",
    ),
    OpenQuestion(
        "other-status-codes",
        "Status codes of endpoints other than chat completions",
        "Status codes of the other endpoints: not shown beyond the chat table",
        "Organization routes: 400, 401, 403, 404, 409, 413, 415, 429, 500, 503; responses: those of chat "
        "without 409; token counting: without 402 and 501 as well",
        "open: these ten, fourteen and twelve fit the numbers of bodies that are shown",
        "gateway_site/api/openapi/document.py",
    ),
    OpenQuestion(
        "limits",
        "Request rate, concurrency, body size, deadline",
        "Numeric request rate, concurrency, body size and inference deadline values: not shown.",
        "Settings with defaults: see .env.example",
        "open: a deployment decides; SDKs give up after 300 to 600 seconds",
        "gateway_site/settings.py",
    ),
    OpenQuestion(
        "deprecation-policy",
        "Deprecation and change policy",
        "Deprecation and change policy: not shown.",
        "The document says 0.2.0 and marks nothing deprecated",
        "open",
        "gateway_site/settings.py",
    ),
]


@dataclass(frozen=True, slots=True)
class Extension:
    """What the gateway offers and the description has no word of: marked x-extension in the document."""

    name: str
    what: str
    evidence: str
    where: str


EXTENSIONS = [
    Extension(
        "`GET /v1/models`",
        "The models that are switched on and have a price",
        "pinned: the OpenAI SDK's `models.list`",
        "inference/views.py",
    ),
    Extension(
        "`X-Include-Cost: true`",
        "What a request is charged, in USD, told to its own caller where it is final and stored: "
        "`X-Cost-Usd` on a JSON answer, `cost` beside the usage in the last record of a stream that has one. "
        "Other values than `true` and `false` are a 400",
        "suggested: other gateways tell a request's cost in a header or beside its usage; no name is common",
        "inference/serving/cost_headers.py",
    ),
]


HEADING = f"""\
# Open questions

The interface description marks {len(QUESTIONS)} places as not shown. This is what the gateway does there, on
which evidence, and the file to change when its owner answers. Written by

    python -m gateway_site.api.openapi.open_questions > gateway_site/api/OPEN_QUESTIONS.md

"""

EXTENSIONS_HEADING = """
## Extensions

What the description does not have at all. In the document each is marked `x-extension`; with
`GATEWAY_EXTENSIONS=false` none of them is there, and a header of theirs is as any that nobody knows.

"""


def markdown() -> str:
    """The register as the document OPEN_QUESTIONS.md."""
    lines = ["| id | open question | what we do | evidence | where |", "|---|---|---|---|---|"]
    for row in QUESTIONS:
        where = f"`{row.where}`" if row.where else "nothing built on it yet"
        lines.append(f"| {row.id} | {row.question} | {row.choice} | {row.evidence} | {where} |")
    return HEADING + "\n".join(lines) + "\n" + EXTENSIONS_HEADING + "\n".join(_extension_lines()) + "\n"


def _extension_lines() -> list[str]:
    return [
        "| extension | what it does | evidence | where |",
        "|---|---|---|---|",
        *(f"| {row.name} | {row.what} | {row.evidence} | `{row.where}` |" for row in EXTENSIONS),
    ]


if __name__ == "__main__":
    sys.stdout.write(markdown())
