"""
The generation endpoints, as ASGI applications ahead of Django.

Channels' own HTTP consumer awaits its handler in the loop that would tell it of a disconnect, so it cannot
see one while it streams. This one speaks `receive` and `send` itself: the work runs in a task of its own, and
the consumer waits for the end of the task or for the client's disconnect, whichever comes first.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from typing import Any

from django.conf import settings

from gateway_site.api.bodies.strict_json import require_json_content_type
from gateway_site.api.errors import ApiError, MethodNotAllowed
from gateway_site.api.headers import values_by_name
from inference.activity import writer as activity_writer
from inference.activity.trace import RequestTrace
from inference.dialects.base import Dialect, RequestContext, Writer
from inference.events import Event
from inference.serving import affinity, authentication, cost_headers
from inference.serving.admission import admit
from inference.serving.body_pool import BodyWork
from inference.serving.generation import Generation
from inference.serving.lifecycle.disconnect import wait_for_client
from inference.serving.lifecycle.request_task import RequestTask
from inference.serving.policy_checks import with_policies
from inference.serving.response_sender import ResponseSender
from organization.models import ProjectKey
from organization.permissions import require
from policies.enforcement.request_policies import RequestPolicies, start_snapshot_read

logger = logging.getLogger(__name__)

PERMISSION = "inference:write"


class GenerationConsumer:
    """The ASGI application of one generation endpoint, for answers in JSON and streams."""

    def __init__(self, dialect: Dialect[Any]) -> None:
        self.dialect = dialect

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["method"] != "POST":
            raise MethodNotAllowed(scope["method"], ["POST"])
        started = time.monotonic()
        key = await authentication.customer_key(scope)
        trace = RequestTrace(key, self.dialect.path, started=started)
        trace.record_step("auth", started)
        try:
            await self._serve(key, trace, scope, receive, send)
        except ApiError as error:
            trace.fail(error)
            raise without_traceback(error) from None
        finally:
            activity_writer.record(trace)

    async def _serve(self, key: ProjectKey, trace: RequestTrace, scope: Any, receive: Any, send: Any) -> None:
        require(key, PERMISSION)
        headers = values_by_name(scope["headers"], HEADERS)
        require_json(headers)
        session = affinity.session_of(headers)
        trace.includes_cost = cost_headers.includes_cost(headers)
        body = await read_body(receive)
        if body is None:
            trace.close_unread()
            return
        timing = trace.server_timing if settings.GATEWAY_SERVER_TIMING else None
        request_task = RequestTask(ResponseSender(scope, send, timing))
        task = request_task.start(self._work(request_task, key, trace, session, body))
        del body  # megabytes, which an answer of minutes has no use for
        await wait_for_client(request_task, receive)
        if request_task.has_client_left:
            trace.close_unread()
            log_unread_error(task, trace)
        else:
            task.result()

    async def _work(
        self,
        request_task: RequestTask,
        key: ProjectKey,
        trace: RequestTrace,
        session: str | None,
        body: bytes,
    ) -> None:
        in_force = start_snapshot_read(key.project)  # asked while the body is parsed
        context = RequestContext(
            request_id=trace.id,
            organization_id=key.project.organization_id,
            remote_images=settings.GATEWAY_REMOTE_IMAGES,
        )
        began = time.monotonic()
        work = BodyWork.on(body, context.organization_id)
        request = await work.run(self.dialect.parse, body, context)
        del body
        trace.model, trace.is_stream = request.prompt.model, request.stream
        parsed = trace.record_step("parse", began)
        policies = await RequestPolicies.attach(
            project=key.project, request_id=trace.id, policy_ids=request.policy_ids, snapshot=in_force
        )
        admission = await admit(
            request.prompt,
            key=key,
            session=session,
            request_id=trace.id,
            is_judged_first=policies.blocks_request,
            work=work,
        )
        trace.record_step("reserve", parsed)
        async with Generation(admission, trace, work) as generation:
            request_task.generation = generation
            writer = self.dialect.writer(request, context)
            answer = await with_policies(
                generation, policies=policies, prompt=request.prompt, is_streamed=request.stream, work=work
            )
            async with aclosing(answer) as events:
                await send_answer(
                    request_task.sender, events, writer, trace.cost_for_client, is_stream=request.stream
                )
        trace.succeed()


async def send_answer(
    sender: ResponseSender,
    events: AsyncIterator[Event],
    writer: Writer,
    cost_for_client: Callable[[], str | None],
    *,
    is_stream: bool,
) -> None:
    """
    Send the events as the dialect writes them: as they come, or folded into one JSON object.

    Both wait for the end of the events, and so for the settlement, before the last byte is sent: the cost is
    known by then.
    """
    if is_stream:
        async with aclosing(_records(events, writer, cost_for_client)) as records:
            await sender.send_stream(records, writer.fail)
    else:
        add = writer.add
        async for event in events:
            add(event)
        await sender.send_json(writer.result(), cost_for_client())


async def _records(
    events: AsyncIterator[Event], writer: Writer, cost_for_client: Callable[[], str | None]
) -> AsyncGenerator[bytes, None]:
    """The records of a stream, each with its blank line, to the last."""
    write = writer.write
    async for event in events:
        if record := write(event):
            yield record
    yield writer.end(cost_for_client())


def log_unread_error(task: asyncio.Task[None], trace: RequestTrace) -> None:
    """Log the error of a request that nobody is there to be told of; a bug of ours is raised."""
    try:
        task.result()
    except ApiError as error:
        logger.info("request %s, whose client had left: %s", trace.id, error.code)
        without_traceback(error)


def without_traceback(error: ApiError) -> ApiError:
    """
    Drop the frames that an error came through, which hold the body and all that was read of it.

    Frames and the task that ended with the error hold each other, so the megabytes of every refused body
    would stay until the garbage collector comes by.
    """
    return error.with_traceback(None)


HEADERS = (
    "Content-Type",
    "Content-Encoding",
    affinity.SESSION_HEADER,
    affinity.SESSION_ALIAS,
    cost_headers.INCLUDE_COST_HEADER,
)


def require_json(headers: dict[str, list[str]]) -> None:
    types, encodings = headers["Content-Type"], headers["Content-Encoding"]
    # What nearly everyone sends, without a parser of mail headers.
    if types != ["application/json"] or encodings:
        require_json_content_type(",".join(types), ",".join(encodings))


async def read_body(receive: Any) -> bytes | None:
    """Read the whole body, bounded already; None if the client disconnected before its end."""
    chunks = []
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        chunks.append(message.get("body", b""))
        if not message.get("more_body", False):
            return chunks[0] if len(chunks) == 1 else b"".join(chunks)
