"""
The generation endpoints, as ASGI applications ahead of Django.

Channels' own HTTP consumer awaits its handler in the loop that would tell it of a hang-up, so it cannot see
one while it streams. This one speaks `receive` and `send` itself: the work runs in a task of its own, and
here one waits for its end or the client's, whichever comes first.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from typing import Any

from django.conf import settings

from gateway_site.api.bodies.strict_json import require_json_content_type
from gateway_site.api.errors import ApiError, MethodNotAllowed
from gateway_site.api.headers import values_by_name
from inference.activity import writer
from inference.activity.trace import RequestTrace
from inference.dialects.chat import dialect as chat
from inference.dialects.chat import parse as chat_prompt
from inference.dialects.chat.completion_info import CompletionInfo
from inference.dialects.chat.parse import ChatCall
from inference.dialects.responses import dialect as responses
from inference.events import Event
from inference.serving import affinity, authentication
from inference.serving.admission import admit
from inference.serving.body_pool import BodyWork
from inference.serving.generation import Generation
from inference.serving.lifecycle.cancellation import CancelReason
from inference.serving.lifecycle.disconnect import wait_for_client
from inference.serving.lifecycle.request_task import RequestTask
from inference.serving.policy_checks import with_policies
from inference.serving.response_sender import ResponseSender
from organization.models import ProjectKey
from organization.permissions import require
from policies.enforcement.request_policies import Gate, look

PERMISSION = "inference:write"


@dataclass(frozen=True, slots=True)
class Dialect:
    """What differs between the endpoints: how a request is read, and how events are written."""

    path: str
    parse: Callable[..., Any]
    # Of a call, its organization and the request's id: what the other three need to write its answer.
    head: Callable[[Any, uuid.UUID, uuid.UUID], Any]
    fold: Callable[[AsyncIterator[Event], Any], Awaitable[bytes]]
    records: Callable[[AsyncIterator[Event], Any], AsyncGenerator[bytes, None]]
    error_record: Callable[[Any, ApiError], bytes]


def _parse_chat(raw: bytes, *, organization_id: uuid.UUID, remote_images: bool) -> ChatCall:
    return chat_prompt.parse(raw, remote_images=remote_images)


def _chat_head(call: ChatCall, organization_id: uuid.UUID, identifier: uuid.UUID) -> CompletionInfo:
    return CompletionInfo(
        id=f"chatcmpl-{identifier.hex}",
        created=int(time.time()),
        model=call.prompt.model,
        include_usage=call.include_usage,
        show_reasoning=call.prompt.reasoning.shown,
    )


CHAT = Dialect(
    path=chat.PATH,
    parse=_parse_chat,
    head=_chat_head,
    fold=chat.fold,
    records=chat.records,
    error_record=lambda head, error: chat.error_record(error),
)
RESPONSES = Dialect(
    path=responses.PATH,
    parse=responses.parse,
    head=responses.begin,
    fold=responses.fold,
    records=responses.records,
    error_record=responses.error_record,
)


class GenerationConsumer:
    """Serves one endpoint, whole or streamed."""

    def __init__(self, dialect: Dialect) -> None:
        self.dialect = dialect

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["method"] != "POST":
            raise MethodNotAllowed(scope["method"], ["POST"])
        came = time.monotonic()
        key = await authentication.customer_key(scope)
        trace = RequestTrace(key, self.dialect.path, started=came)
        trace.record_step("auth", came)
        try:
            await self._serve(key, trace, scope, receive, send)
        except ApiError as error:
            trace.fail(error)
            raise without_frames(error) from None
        finally:
            writer.record(trace)

    async def _serve(self, key: ProjectKey, trace: RequestTrace, scope: Any, receive: Any, send: Any) -> None:
        require(key, PERMISSION)
        headers = values_by_name(scope["headers"], HEADERS)
        require_json(headers)
        session = affinity.session_of(headers)
        body = await read_body(receive)
        if body is None:
            trace.close_unread()
            return
        timing = trace.server_timing if settings.GATEWAY_SERVER_TIMING else None
        request_task = RequestTask(ResponseSender(scope, send, timing))
        task = request_task.start(self._work(request_task, key, trace, session, body))
        del body  # megabytes, which an answer of minutes has no use for
        await wait_for_client(request_task, receive)
        if request_task.reason in (CancelReason.DISCONNECT, CancelReason.SLOW_READER):
            trace.close_unread()
        task.result()

    async def _work(
        self,
        request_task: RequestTask,
        key: ProjectKey,
        trace: RequestTrace,
        session: str | None,
        body: bytes,
    ) -> None:
        in_force = look(key.project)  # asked while the body is parsed
        organization_id = key.project.organization_id
        began = time.monotonic()
        work = BodyWork.on(body, organization_id)
        call = await self._parse(body, organization_id, work)
        del body
        trace.model, trace.is_stream = call.prompt.model, call.stream
        parsed = trace.record_step("parse", began)
        gate = await Gate.open(
            project=key.project, request_id=trace.id, policy_ids=call.policy_ids, snapshot=in_force
        )
        admission = await admit(
            call.prompt,
            key=key,
            session=session,
            request_id=trace.id,
            is_judged_first=gate.blocks_request,
            work=work,
        )
        trace.record_step("reserve", parsed)
        head = self.dialect.head(call, organization_id, trace.id)
        async with Generation(admission, trace, work) as generation:
            request_task.generation = generation
            answer = await with_policies(
                generation, gate=gate, prompt=call.prompt, is_streamed=call.stream, work=work
            )
            async with aclosing(answer) as events:
                await self._answer(request_task, events, head, call.stream)
        trace.succeed()

    async def _answer(
        self, request_task: RequestTask, events: AsyncIterator[Event], head: Any, is_stream: bool
    ) -> None:
        if is_stream:
            async with aclosing(self.dialect.records(events, head)) as records:
                await request_task.sender.send_stream(records, partial(self.dialect.error_record, head))
        else:
            await request_task.sender.send_json(await self.dialect.fold(events, head))

    async def _parse(self, body: bytes, organization_id: uuid.UUID, work: BodyWork) -> Any:
        remote = settings.GATEWAY_REMOTE_IMAGES
        return await work.run(self.dialect.parse, body, organization_id=organization_id, remote_images=remote)


def without_frames(error: ApiError) -> ApiError:
    """
    The error without the frames that it came through, which hold the body and all that was read of it.

    They and the task that ended with the error hold each other, so the megabytes of every refused body would
    stay until the garbage collector comes by.
    """
    return error.with_traceback(None)


HEADERS = ("Content-Type", "Content-Encoding", affinity.SESSION_HEADER, affinity.SESSION_ALIAS)


def require_json(headers: dict[str, list[str]]) -> None:
    types, encodings = headers["Content-Type"], headers["Content-Encoding"]
    # What nearly everyone sends, without a parser of mail headers.
    if types != ["application/json"] or encodings:
        require_json_content_type(",".join(types), ",".join(encodings))


async def read_body(receive: Any) -> bytes | None:
    """The whole body, which the edge has bounded; None if the client left before it was here."""
    chunks = []
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        chunks.append(message.get("body", b""))
        if not message.get("more_body", False):
            return chunks[0] if len(chunks) == 1 else b"".join(chunks)


chat_completions = GenerationConsumer(CHAT)
responses_endpoint = GenerationConsumer(RESPONSES)
