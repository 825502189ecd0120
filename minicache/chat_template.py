"""Chat templates: from messages to the text a model was trained on.

A template is a Jinja program that came with the weights, from strangers. It runs in a sandbox that
lets it read the messages and change nothing. The environment is the one that published templates
are written for, that of Hugging Face transformers: block trimming, `raise_exception`,
`strftime_now`, a `tojson` that escapes no HTML, loop controls, and the `generation` tag.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, NoReturn

from jinja2 import TemplateError, nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from minicache.request import RequestRefused

Message = Mapping[str, Any]
"""One turn: `role`, `content`, and whatever else the model's template reads."""


class ChatTemplate:
    """A compiled template of one model."""

    def __init__(
        self,
        source: str,
        special_tokens: Mapping[str, str] | None = None,
        clock: Callable[[], datetime] = datetime.now,
    ) -> None:
        """`special_tokens`: `bos_token` and the like, by name; `clock` answers `strftime_now`.

        Raises `ValueError` when `source` is no valid template.
        """
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols, GenerationTag]
        )
        environment.filters["tojson"] = _tojson

        def strftime_now(form: str) -> str:
            return clock().strftime(form)

        names = {"raise_exception": _raise, "strftime_now": strftime_now}
        try:
            self._template = environment.from_string(source, globals=names)
        except TemplateError as error:
            raise ValueError(
                f"The model's chat template does not parse ({error}); replace chat_template.jinja, "
                "or the chat_template in tokenizer_config.json, by the model's published one."
            ) from error
        self._special_tokens = dict(special_tokens or {})

    def render(self, messages: Sequence[Message], add_generation_prompt: bool = True) -> str:
        """The text of a conversation; with `add_generation_prompt`, up to where the answer begins.

        Keys whose value is None are left out, as clients that send `"tool_calls": null` expect.
        Raises `RequestRefused` when there is no message, one has no role, or the template objects.
        """
        turns = [_checked(message) for message in messages]
        if not turns:
            raise RequestRefused("The conversation is empty; give at least one message.")
        try:
            return self._template.render(
                **self._special_tokens,
                messages=turns,
                tools=None,
                documents=None,
                add_generation_prompt=add_generation_prompt,
            )
        except Exception as error:  # a stranger's program: whatever it raises fails this request
            raise RequestRefused(
                f"The model's chat template cannot render these messages: {error}. Each message "
                "needs the keys and roles that the model was trained with, mostly 'role' (system, "
                "user, assistant) and a text as 'content'."
            ) from error


class GenerationTag(Extension):
    """`{% generation %} ... {% endgeneration %}` marks what training scores; here it prints it."""

    tags = {"generation"}

    def parse(self, parser: Parser) -> nodes.Node:
        """Parse up to the end tag. The body has a scope of its own, as it has in training."""
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.Scope(body, lineno=line)


def _checked(message: object) -> dict[str, Any]:
    if not isinstance(message, Mapping) or not isinstance(message.get("role"), str):
        raise RequestRefused(
            f"A message is {message!r}, but it must be a mapping with a 'role' and a 'content', "
            "such as {'role': 'user', 'content': 'Hello'}."
        )
    return {key: value for key, value in message.items() if value is not None}


def _raise(message: str) -> NoReturn:
    raise TemplateError(message)


def _tojson(
    value: object,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )
