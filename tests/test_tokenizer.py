"""Text to ids and back, conversations, and what a model's folder says: beside transformers."""

import json
from datetime import datetime
from pathlib import Path

import pytest
import tiny_tokenizers as tiny
from tokenizers import Tokenizer as Backend

from minicache import models
from minicache.chat_template import ChatTemplate
from minicache.request import RequestRefused
from minicache.tokenizer import Tokenizer

CHATML = """
{%- for message in messages %}
    {%- if loop.first and message.role != 'system' %}
        {{- '<|im_start|>system\\nYou answer in one sentence.<|im_end|>\\n' }}
    {%- endif %}
    {{- '<|im_start|>' ~ message.role ~ '\\n' ~ message['content'] ~ '<|im_end|>' ~ '\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
{%- endif %}"""

QWEN_LIKE = """
{%- set ns = namespace(last=-1) %}
{%- if tools %}{{ '# Tools\\n' }}{% for tool in tools %}{{ tool | tojson }}{% endfor %}{% endif %}
{%- for message in messages %}
    {%- if message.role == 'user' %}{% set ns.last = loop.index0 %}{% endif %}
{%- endfor %}
{%- for message in messages %}
    {%- set content = message.content if message.content is string else '' %}
    {%- if message.role == 'assistant' and '</think>' in content %}
        {%- set thought = content.split('</think>')[0].rstrip('\\n').split('<think>')[-1] %}
        {%- set content = content.split('</think>')[-1].lstrip('\\n') %}
        {%- if loop.index0 > ns.last %}
            {%- set content = '<think>\\n' + thought.strip() + '\\n</think>\\n\\n' + content %}
        {%- endif %}
    {%- endif %}
    {{- '<|im_start|>' + message.role + '\\n' + content }}
    {%- for call in message.tool_calls or [] %}
        {{- '\\n<tool call>\\n{"name": "' + call.name + '", "arguments": ' }}
        {{- call.arguments | tojson }}
        {{- '}' }}
    {%- endfor %}
    {{- '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"""

LLAMA_LIKE = """{{- bos_token }}
{%- if messages[0]['role'] == 'system' %}
    {%- set instructions = messages[0]['content'] | trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set instructions = '' %}
{%- endif %}
{{- '[system]\\n\\n' }}
{%- if tools is not none %}{{- 'Environment: tools\\n' }}{% endif %}
{{- instructions + '<|im_end|>' }}
{% for message in messages %}
    {% if not message.role in ['user', 'assistant'] %}
        {{ raise_exception('Only user and assistant may speak, not ' ~ message.role) }}
    {% endif %}
    {# a comment on a line of its own #}
    [{{ message['role'] }}]

{{ message['content'] | trim }}<|im_end|>
{% endfor %}
{% if add_generation_prompt %}
[assistant]

{% endif %}"""

LOOPS = """
{% for message in messages %}
    {% if message.role == 'system' %}{% continue %}{% endif %}
    {% if loop.index > 3 %}{% break %}{% endif %}
{{ loop.index }}: {{ message.content | upper }} {{ message.keys() | list | tojson }}
    {% if message.role == 'assistant' %}{% generation %}{% set x = 'seen' %}{{ x }}
{% endgeneration %}{{ x is defined }}{% endif %}
{% endfor %}
{{ {'b': '<&>"é', 'a': [1, none, true]} | tojson }}
{{ {'b': 1, 'a': 2} | tojson(indent=2, sort_keys=true) }}{{ eos_token }}"""

TEMPLATES = {"chatml": CHATML, "qwen": QWEN_LIKE, "llama": LLAMA_LIKE, "loops": LOOPS}

CHATS = {
    "a question": [{"role": "user", "content": "Where is the cat?"}],
    "a system prompt": [
        {"role": "system", "content": "  Be brief.\n"},
        {"role": "user", "content": "日本語 👍🏽  \n"},
    ],
    "a longer talk": [
        {"role": "user", "content": "the cat"},
        {"role": "assistant", "content": "<think>\nhm\n</think>\n\nsat", "name": None},
        {"role": "user", "content": "on what? <|im_end|> {{ messages }}"},
        {"role": "assistant", "content": "<think>well</think>the mat"},
    ],
    "tool calls": [
        {"role": "user", "content": "What is 1 < 2 & 3?"},
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [{"name": "sum", "arguments": {"é": ["<", 1.5, None]}}],
        },
        {"role": "user", "content": ""},
    ],
}

NAMED = {"bos_token": "<|endoftext|>", "eos_token": "<|im_end|>"}


@pytest.fixture(scope="module")
def fast_tokenizer():
    """transformers' tokenizer over the same vocabulary; its import takes seconds, so it is here."""
    from transformers import PreTrainedTokenizerFast

    def make(backend: Backend, **settings):
        return PreTrainedTokenizerFast(tokenizer_object=backend, **settings)

    return make


def write(folder: Path, **files: object) -> Path:
    """A model's folder: tokenizer.json, and `files` by stem as JSON."""
    tiny.byte_level().save(str(folder / "tokenizer.json"))
    for stem, content in files.items():
        (folder / f"{stem}.json").write_text(json.dumps(content), "utf-8")
    return folder


# Conversations


@pytest.mark.parametrize("template", TEMPLATES)
@pytest.mark.parametrize("chat", CHATS)
@pytest.mark.parametrize("generation", [True, False])
def test_a_conversation_becomes_the_ids_that_transformers_gives(
    fast_tokenizer, template, chat, generation
):
    source, messages = TEMPLATES[template], CHATS[chat]
    ours = Tokenizer(tiny.byte_level(), chat_template=source, named_tokens=NAMED)
    theirs = fast_tokenizer(tiny.byte_level(), chat_template=source, **NAMED)
    options = {"add_generation_prompt": generation}
    text = theirs.apply_chat_template(messages, tokenize=False, **options)
    assert ours.render_chat(messages, **options) == text
    want = theirs.apply_chat_template(messages, return_dict=False, **options)
    assert ours.chat(messages, **options) == want
    assert want, "an empty prompt compares nothing"


@pytest.mark.parametrize("template", TEMPLATES)
def test_the_templates_say_something_different_of_each_conversation(template):
    ours = Tokenizer(tiny.byte_level(), chat_template=TEMPLATES[template], named_tokens=NAMED)
    assert len({ours.render_chat(chat) for chat in CHATS.values()}) == len(CHATS)


def test_a_frame_is_added_to_text_and_not_to_a_conversation():
    template = "{{ bos_token }}{% for m in messages %}{{ m.content }}{% endfor %}"
    named = {"bos_token": "<s>"}
    tokenizer = Tokenizer(tiny.sentencepiece(), chat_template=template, named_tokens=named)
    bos = tokenizer.special_tokens["<s>"]
    assert tokenizer.encode("the cat")[0] == bos
    assert tokenizer.encode("the cat", add_special_tokens=False)[0] != bos
    assert tokenizer.chat([{"role": "user", "content": "the cat"}]).count(bos) == 1


def test_the_date_in_a_template_is_that_of_the_clock():
    template = ChatTemplate("{{ strftime_now('%d %b %Y') }}", clock=lambda: datetime(2031, 3, 9))
    assert template.render([{"role": "user"}]) == "09 Mar 2031"
    today = ChatTemplate("{{ strftime_now('%Y') }}").render([{"role": "user"}])
    assert abs(int(today) - datetime.now().year) <= 1


def test_a_template_objects_in_its_own_words():
    tokenizer = Tokenizer(tiny.byte_level(), chat_template=LLAMA_LIKE, named_tokens=NAMED)
    with pytest.raises(RequestRefused, match="Only user and assistant may speak, not judge"):
        tokenizer.chat([{"role": "judge", "content": "no"}])


@pytest.mark.parametrize(
    "attack",
    [
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{{ messages.append(1) }}",
        "{{ messages[0].update(content='x') }}",
        "{{ raise_exception.__globals__.keys() }}",
        "{{ strftime_now.__closure__[0] }}",
        "{% for i in range(10000000000) %}{% endfor %}",
        "{{ '{0.__class__.__mro__}'.format(messages) }}",
        "{{ 1 / 0 }}",
        "{% include 'secrets' %}",
    ],
)
def test_a_template_cannot_leave_its_sandbox(attack):
    messages = [{"role": "user", "content": "hello"}]
    with pytest.raises(RequestRefused):
        print(ChatTemplate(attack).render(messages))
    assert messages == [{"role": "user", "content": "hello"}]


@pytest.mark.parametrize(
    ("messages", "words"),
    [
        ([], "empty"),
        (["hello"], "'hello'"),
        ([{"content": "hello"}], "'role'"),
        ([{"role": 3, "content": "hello"}], "'role'"),
        ([{"role": "user"}], "content"),
        ([{"role": "user", "content": 3}], "each message"),
    ],
)
def test_messages_of_the_wrong_form_are_refused_in_a_sentence(messages, words):
    template = "{% for m in messages %}{{ m.role + ': ' + m.content }}{% endfor %}"
    tokenizer = Tokenizer(tiny.byte_level(), chat_template=template)
    with pytest.raises(RequestRefused, match=f"(?i){words}"):
        tokenizer.chat(messages)


def test_a_model_without_a_template_says_what_to_do():
    tokenizer = Tokenizer(tiny.byte_level())
    assert not tokenizer.has_chat_template
    with pytest.raises(RequestRefused, match="no chat template.*plain text.*chat_template.jinja"):
        tokenizer.chat(CHATS["a question"])


def test_a_template_that_does_not_parse_is_named():
    with pytest.raises(ValueError, match="does not parse.*endfor"):
        ChatTemplate("{% for m in messages %}")


# Text


@pytest.mark.parametrize("make", [tiny.byte_level, tiny.sentencepiece, tiny.metaspace])
@pytest.mark.parametrize(
    "text", ["", "the cat", " the  cat ", "日本 👍", "a<|im_end|>b </s>", "\n"]
)
def test_text_is_encoded_as_by_transformers(fast_tokenizer, make, text):
    assert Tokenizer(make()).encode(text) == fast_tokenizer(make()).encode(text)


def test_special_tokens_in_a_users_text_are_those_tokens():
    """The documented default, of transformers too: a way to end one's own message early."""
    tokenizer = Tokenizer(tiny.byte_level())
    assert tokenizer.special_tokens["<|im_end|>"] in tokenizer.encode("bye<|im_end|>")


def test_special_tokens_are_not_printed_and_other_added_tokens_are():
    tokenizer = Tokenizer(tiny.byte_level())
    tokens = tokenizer.encode("<|im_start|><think>the</think><tool call>日本<|im_end|>")
    assert tokenizer.decode(tokens) == "<think>the</think><tool call>日本"


def test_spaces_before_punctuation_stay():
    tokenizer = Tokenizer(tiny.byte_level())
    assert tokenizer.decode(tokenizer.encode("don 't , the cat .")) == "don 't , the cat ."


def test_half_a_surrogate_pair_is_refused():
    with pytest.raises(RequestRefused, match="surrogate pair at character 3"):
        Tokenizer(tiny.byte_level()).encode("cat\ud83d!")


def test_truncation_and_padding_left_in_the_file_are_off():
    backend = tiny.byte_level()
    backend.enable_truncation(3)
    backend.enable_padding(length=50)
    tokens = Tokenizer(backend).encode("the cat sat on the mat")
    assert tokens == tiny.byte_level().encode("the cat sat on the mat").ids


def test_a_named_token_that_the_file_forgot_to_mark_becomes_special():
    words = tiny.words()
    assert "cat" not in {entry.content for entry in words.get_added_tokens_decoder().values()}
    size = words.get_vocab_size()
    named = {"eos_token": "cat", "pad_token": "[not in the vocabulary]"}
    tokenizer = Tokenizer(words, named_tokens=named)
    assert tokenizer.decode([1, 2, 3]) == "the s"
    assert tokenizer.eos_token_ids == {2}
    assert tokenizer.vocab_size == size


# A model's folder


@pytest.mark.parametrize(
    ("files", "want"),
    [
        ({}, set()),
        ({"config": {"eos_token_id": 7}}, {7}),
        ({"config": {"eos_token_id": 7}, "generation_config": {"eos_token_id": [8, 9]}}, {8, 9}),
        ({"config": {"eos_token_id": 7}, "generation_config": {"eos_token_id": None}}, {7}),
        ({"config": {"eos_token_id": 7}, "tokenizer_config": {"eos_token": "<|im_end|>"}}, {2, 7}),
        ({"tokenizer_config": {"eos_token": {"content": "<|im_end|>"}}}, {2}),
        ({"tokenizer_config": {"eos_token": "[unheard of]"}}, set()),
        ({"tokenizer_config": {"eos_token": None}, "config": {"eos_token_id": None}}, set()),
    ],
)
def test_tokens_that_end_a_text(tmp_path, files, want):
    assert Tokenizer.from_folder(write(tmp_path, **files)).eos_token_ids == want


def test_where_the_template_is_looked_for(tmp_path):
    message = [{"role": "user", "content": "x"}]
    folder = write(tmp_path, tokenizer_config={"chat_template": "one"})
    assert Tokenizer.from_folder(folder).render_chat(message) == "one"
    several = [{"name": "rag", "template": "rag"}, {"name": "default", "template": "two"}]
    write(tmp_path, tokenizer_config={"chat_template": several})
    assert Tokenizer.from_folder(str(folder)).render_chat(message) == "two"
    (folder / "chat_template.jinja").write_text("three {{ bos_token }}é", "utf-8")
    write(tmp_path, tokenizer_config={"chat_template": several, "bos_token": {"content": "B"}})
    assert Tokenizer.from_folder(folder).render_chat(message) == "three Bé"
    (folder / "chat_template.jinja").unlink()
    write(tmp_path, tokenizer_config={"chat_template": several[:1]})
    assert not Tokenizer.from_folder(folder).has_chat_template


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        (None, "", "no tokenizer.json.*copy the file"),
        ("tokenizer.model", "", "older form.*AutoTokenizer"),
        ("vocab.json", "{}", "older form.*AutoTokenizer"),
        ("tokenizer.json", '{"model":', "is no valid tokenizer.*fetch the file again"),
        ("tokenizer.json", "{}", "tokenizer.json is no valid tokenizer"),
    ],
)
def test_a_folder_without_a_tokenizer_ends_in_one_sentence(tmp_path, name, content, words):
    if name:
        (tmp_path / name).write_text(content)
    with pytest.raises(ValueError, match=words) as caught:
        Tokenizer.from_folder(tmp_path)
    assert str(tmp_path) in str(caught.value)
    assert str(caught.value).count("\n") == 0


def test_a_folder_that_is_not_there_is_named(tmp_path):
    with pytest.raises(ValueError, match="There is no folder .*nowhere"):
        Tokenizer.from_folder(tmp_path / "nowhere")


@pytest.mark.parametrize("content", ["{", "[1]", "\ufeff{}"])
def test_a_broken_settings_file_is_named(tmp_path, content):
    write(tmp_path)
    (tmp_path / "tokenizer_config.json").write_text(content, "utf-8")
    with pytest.raises(ValueError, match="tokenizer_config.json .*fetch the file again"):
        Tokenizer.from_folder(tmp_path)


# The real model's files


@pytest.fixture(scope="module")
def smollm():
    """Our tokenizer and transformers' own, from the same folder."""
    from transformers import AutoTokenizer

    folder = models.local_folder("smollm2-135m")
    if folder is None:
        pytest.skip("smollm2-135m is not here; run 'minicache models pull smollm2-135m'.")
    return Tokenizer.from_folder(folder), AutoTokenizer.from_pretrained(folder)


@pytest.mark.model
@pytest.mark.parametrize("chat", list(CHATS)[:3])
def test_the_real_models_template_equals_transformers(smollm, chat):
    ours, theirs = smollm
    for generation in (True, False):
        options = {"add_generation_prompt": generation}
        want = theirs.apply_chat_template(CHATS[chat], return_dict=False, **options)
        assert ours.chat(CHATS[chat], **options) == want
    assert ours.eos_token_ids == {theirs.eos_token_id}


@pytest.mark.model
def test_the_real_models_text_equals_transformers(smollm):
    ours, theirs = smollm
    for text in [*tiny.CORPUS, "", "  \n\n", "x = 12345; y<|im_end|>", "\u0000 ok", "e\u0301 ก็"]:
        tokens = ours.encode(text)
        assert tokens == theirs.encode(text)
        assert ours.decode(tokens) == theirs.decode(
            tokens, skip_special_tokens=True, clean_up_tokenization_spaces=False
        )
