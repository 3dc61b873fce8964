"""Folding the events of an answer into one chat completion."""

from __future__ import annotations

from typing import Any

import msgspec

from inference.dialects.chat.completion_info import CompletionInfo
from inference.dialects.chat.response import (
    CalledFunction,
    ChatChoice,
    ChatCompletion,
    ChatResponseMessage,
    ChatUsage,
    ChoiceLogprobs,
    MessageToolCall,
    UrlCitationAnnotation,
)
from inference.events import (
    Annotation,
    Event,
    Finish,
    FinishReason,
    FunctionCallArguments,
    FunctionCallStart,
    PromptLogprobs,
    ReasoningDelta,
    RefusalDelta,
    TextDelta,
    TokenLogprob,
    ToolCallArguments,
    ToolCallStart,
    Usage,
)


class ChatFold:
    """One chat completion as it grows, event by event."""

    def __init__(self, info: CompletionInfo) -> None:
        self._info = info
        self._choices: dict[int, _ChoiceFold] = {}
        self._usage: Usage | None = None
        self._prompt_logprobs: list[Any] | None = None

    def add(self, event: Event) -> None:
        if type(event) is TextDelta and event.logprobs is None and event.index in self._choices:
            self._choices[event.index].text.append(event.text)  # what nearly every event is
            return
        match event:
            case Usage():
                self._usage = event
            case PromptLogprobs(entries=entries):
                self._prompt_logprobs = list(entries)
            case ReasoningDelta() if not self._info.show_reasoning:
                return
            case _:
                choice = self._choices.get(event.index)
                if choice is None:
                    choice = self._choices[event.index] = _ChoiceFold()
                choice.add(event)

    def result(self) -> bytes:
        return msgspec.json.encode(self.completion())

    def completion(self) -> ChatCompletion:
        info = self._info
        return ChatCompletion(
            id=info.id,
            object="chat.completion",
            created=info.created,
            model=info.model,
            choices=[self._choices[index].result(index) for index in sorted(self._choices)],
            usage=None if self._usage is None else ChatUsage.of(self._usage),
            system_fingerprint=info.system_fingerprint,
            service_tier=info.service_tier,
            prompt_logprobs=self._prompt_logprobs,
        )


class _ChoiceFold:
    """One choice as it grows. Lists, because text joined piece by piece costs its square."""

    def __init__(self) -> None:
        self.text: list[str] = []
        self.refusal: list[str] = []
        self.reasoning: list[str] = []
        self.calls: list[_CallFold] = []
        self.function: _CallFold | None = None
        self.annotations: list[Annotation] = []
        self.text_logprobs: list[TokenLogprob] = []
        self.refusal_logprobs: list[TokenLogprob] = []
        self.finish: FinishReason | None = None

    def add(self, event: Event) -> None:
        match event:
            case TextDelta(text=text, logprobs=logprobs):
                self.text.append(text)
                self.text_logprobs += logprobs or ()
            case RefusalDelta(text=text, logprobs=logprobs):
                self.refusal += [text] if text else []
                self.refusal_logprobs += logprobs or ()
            case ReasoningDelta(text=text) if text:
                self.reasoning.append(text)
            case Annotation():
                self.annotations.append(event)
            case Finish(reason=reason):
                self.finish = reason
            case _:
                self._add_call(event)

    def _add_call(self, event: Event) -> None:
        match event:
            case ToolCallStart(id=identifier, name=name, arguments=arguments):
                self.calls.append(_CallFold(identifier, name, arguments))
            case ToolCallArguments(call=call, text=text):
                self.calls[call].arguments.append(text)
            case FunctionCallStart(name=name, arguments=arguments):
                self.function = _CallFold("", name, arguments)
            case FunctionCallArguments(text=text) if self.function is not None:
                self.function.arguments.append(text)

    def result(self, index: int) -> ChatChoice:
        return ChatChoice(
            index=index, message=self._message(), logprobs=self._logprobs(), finish_reason=self.finish
        )

    def _message(self) -> ChatResponseMessage:
        is_empty = not (
            self.refusal or self.reasoning or self.calls or self.function is not None or self.annotations
        )
        tool_calls = [MessageToolCall(id=call.id, function=call.to_function()) for call in self.calls]
        return ChatResponseMessage(
            role="assistant",
            # Null where the answer is something else than text; a choice with nothing at all said "".
            content="".join(self.text) if self.text or is_empty else None,
            refusal="".join(self.refusal) or None,
            reasoning_content="".join(self.reasoning) or None,
            tool_calls=tool_calls or None,
            function_call=None if self.function is None else self.function.to_function(),
            annotations=[UrlCitationAnnotation.of(event) for event in self.annotations] or None,
        )

    def _logprobs(self) -> ChoiceLogprobs | None:
        if not self.text_logprobs and not self.refusal_logprobs:
            return None
        return ChoiceLogprobs(content=self.text_logprobs or None, refusal=self.refusal_logprobs or None)


class _CallFold:
    def __init__(self, identifier: str, name: str, arguments: str) -> None:
        self.id = identifier
        self.name = name
        self.arguments = [arguments]

    def to_function(self) -> CalledFunction:
        return CalledFunction(self.name, "".join(self.arguments))
